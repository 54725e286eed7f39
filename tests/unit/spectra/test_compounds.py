"""Which features are ions of one molecule, and which ion each is; runs of which that is known."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.spectra.cleaning import CleaningSettings, clean
from duallgd_cli.spectra.compounds import ElutingIon, OfCompound, answering, link, with_compound
from duallgd_cli.spectra.features import Inputs, group
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.run import FeatureSettings
from tests.made_run import ions_of, measure, mzml, together
from tests.made_spectra import made_spectrum

CAFFEINE = 194.080376


def ion(adduct, mass=CAFFEINE, rt=60.0, isotope=0.0, charge=0, height=1e6):
    of = parse_adduct(adduct)
    mz = (mass * of.molecules + of.mass_shift + isotope) / abs(of.charge)
    return ElutingIon(mz, 7e-6 * mz, rt, of.polarity, charge, height)


@pytest.mark.parametrize(
    "ions",
    [
        "[M+H]+ [M+Na]+",
        "[M+Na]+ [M+K]+",
        "[M+H]+ [M-H]-",
        "[M+H]+ [M+Na]+ [M+NH4]+ [2M+Na]+ [M-H2O+H]+",
        "[M-H]- [M+HCOO]- [M+Cl]- [2M-H]-",
        "[M+H]+ [M+2H]2+ [M+Na]+ [M+K]+",
    ],
)
def test_ions_of_one_molecule_are_linked_and_named(ions):
    found = link([*map(ion, ions.split())])

    assert {one.compound for one in found} == {0}
    assert [one.adducts[0][0] for one in found] == ions.split()
    assert all(one.adducts[0][1] > 0.9 for one in found)


@pytest.mark.parametrize(
    "ions",
    [
        [ion("[M+H]+")],
        [],
        [ion("[M+H]+"), ion("[M+Na]+", rt=75)],
        [ion("[M+H]+"), ion("[M+Na]+", CAFFEINE * (1 + 3e-5))],
        [ion("[M+H]+"), ion("[M+Na]+", charge=2)],
        [ion("[M+H]+"), ion("[M+H]+", rt=66)],  # isomers
        [ion("[M+H]+"), ion("[M+H]+", isotope=1.00336, height=9e6)],  # stronger than isotopes are
        [ion("[M+H]+"), ion("[M+H]+", CAFFEINE + 43.9898)],
    ],
)
def test_strangers_stay_alone(ions):
    assert link(ions) == [OfCompound(number) for number in range(len(ions))]


def test_what_is_hardly_told_is_not_decided():
    """An isotope tells no adduct; a dimer and its monomer differ as [M+H]+ and [M+2H]2+ do."""
    light, heavy = ion("[M+H]+"), ion("[2M+H]+")

    isotope = link([light, ion("[M+H]+", isotope=1.00336, height=1e5)])
    unsaid, said = link([light, heavy]), link([light._replace(charge=2), heavy])

    assert isotope == [OfCompound(0)] * 2
    assert dict(unsaid[1].adducts).keys() == {"[2M+H]+", "[M+H]+"}
    assert max(share for _, share in unsaid[1].adducts) < 0.9
    assert [one.adducts[0][0] for one in said] == ["[M+2H]2+", "[M+H]+"]


def test_what_elutes_otherwise_is_of_another_molecule():
    time = np.arange(40, 80, 1.0)

    def eluting(adduct, rt):
        return ion(adduct, rt=rt)._replace(time=time, trace=np.exp(-(((time - rt) / 4) ** 2)))

    for rt, compounds in ((60, [0, 0]), (65, [0, 1])):
        linked = link([eluting("[M+H]+", 60), eluting("[M+Na]+", rt)])
        assert [one.compound for one in linked] == compounds


@pytest.mark.parametrize(
    ("adducts", "adduct", "said"),
    [
        ((), "", ""),
        ([("[M+Na]+", 0.97), ("[M+K]+", 0.02)], "[M+Na]+",
         "adduct [M+Na]+ (0.97) by other ions of compound 5; next is [M+K]+ (0.02)"),
        ([("[M+Na]+", 1.0)], "[M+Na]+", "adduct [M+Na]+ (0.99) by other ions of compound 5"),
        ([("[2M+H]+", 0.6), ("[M+H]+", 0.4)], "",
         "one of several ions of compound 5: [2M+H]+ (0.6) or [M+H]+ (0.4)"),
    ],
)  # fmt: skip
def test_a_spectrum_says_what_is_known_of_its_adduct(adducts, adduct, said):
    found = with_compound(made_spectrum([100.0]), "5", adducts)

    of_adduct = (found.adduct_text, found.adduct_source)
    assert (found.compound_id, *of_adduct) == ("5", adduct, "linked" if adduct else "file")
    assert found.assumptions == ((said,) if said else ())


SURE = {"H": (("[M+H]+", 0.95),), "-H": (("[M-H]-", 0.97),), "Na": (("[M+Na]+", 0.92),)}
SURE |= {"?": (("[M+Na]+", 0.6), ("[M+K]+", 0.4)), "": ()}


@pytest.mark.parametrize(
    ("ions", "heights", "expected"),
    [
        (["Na", "H", "-H"], (9, 1, 5), {0: 1, 2: 1}),  # the protonated one, however weak
        (["Na", "-H"], (9, 1), {0: 1}),
        (["Na", "Na"], (1, 9), {0: 1}),  # else the strongest
        (["H"], (1,), {}),
        (["H", "?", ""], (1, 2, 3), {}),  # those in doubt answer for themselves
    ],
)
def test_the_best_ion_answers_for_its_compound(ions, heights, expected):
    linked = [OfCompound(0, SURE[ion]) for ion in ions]

    assert answering(linked, heights) == expected
    assert answering([*linked, OfCompound(1, SURE["H"])], (*heights, 99)) == expected


# What is measured beside the first ion of a polarity, and how much of it.
BESIDE = {
    "[M+H]+": {"[M+Na]+": 0.3, "[M+NH4]+": 0.25, "[M-H2O+H]+": 0.3, "[M+K]+": 0.12,
               "[M+2H]2+": 0.2, "[2M+H]+": 0.1, "[2M+Na]+": 0.1},
    "[M-H]-": {"[M+HCOO]-": 0.3, "[M+Cl]-": 0.2, "[2M-H]-": 0.15, "[M-H2O-H]-": 0.1},
}  # fmt: skip


def run_of(rng, count, length_s, share=0.45):
    """A run of both polarities of random molecules, with a share of what may stand beside them."""
    made, runs = [], [[], []]
    while len(made) < count:
        mass, rt = float(rng.uniform(150, 600)), float(rng.uniform(20, length_s - 20))
        if any(abs(m - mass) < 0.1 and abs(r - rt) < 60 for m, r in made):
            continue
        name, height, sigma = f"m{len(made)}", 10 ** rng.uniform(5.3, 6.8), rng.uniform(2.5, 5)
        made.append((mass, rt))
        for ions, (first, others) in zip(runs, BESIDE.items(), strict=True):
            parts = {one: part for one, part in others.items() if rng.random() < share}
            heights = {
                one: height * part * rng.uniform(0.5, 1.5)
                for one, part in ({first: 1.0} | parts).items()
            }
            ions += ions_of(rng, name, mass, rt, heights, sigma)
    return together(*(measure(rng, ions, length_s) for ions in runs))


def features_of(run, tmp_path, **settings):
    with Inputs((mzml(run, tmp_path / "run.mzML"),)) as inputs:
        return list(inputs.features("run", None, FeatureSettings(**settings)))


def assert_told(features, run, count, n_adducts, least=1.0):
    """Each molecule is one compound and no two are one; adducts that are told are true."""
    truth, compounds, inside, adducts = run.truth(), defaultdict(set), defaultdict(set), []
    for feature in features:
        scans = (m.source.index for one in feature.spectra for m in one.merged or (one,))
        name = Counter(truth[index] for index in scans).most_common(1)[0][0]
        molecule, _, adduct = name.partition("/")
        if molecule:
            compounds[molecule].add(feature.first.compound_id)
            inside[feature.first.compound_id].add(molecule)
        if text := feature.first.adduct_text:
            adducts.append((text, adduct.replace("++", "+").replace("-+", "-")))
    assert len(compounds) == count
    assert sum(len(ids) == 1 for ids in compounds.values()) >= least * count
    assert max(map(len, inside.values())) == 1
    assert len(adducts) > n_adducts
    assert all(told == true for told, true in adducts)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "share"), [(0, 0.45), (2, 0.15)])
def test_molecules_of_a_run_of_both_polarities_are_linked_and_no_two_are_one(seed, share, tmp_path):
    run = run_of(np.random.default_rng(seed), 30, 300, share)

    assert_told(features_of(run, tmp_path), run, 30, 60, least=0.95)


def test_a_run_tells_compounds_and_adducts_of_its_features(tmp_path):
    run = run_of(np.random.default_rng(5), 4, 120)

    features = features_of(run, tmp_path)

    assert_told(features, run, 4, 12)
    firsts = [one.first for one in features]
    named = [one for one in firsts if one.adduct_text]
    assert {one.adduct_source for one in named} == {"linked"}
    answered = [one for one in firsts if one.answered_by]
    assert len(answered) == len(named) - 4  # all ions of the four molecules but the best
    assert {one.answered_by.split()[1] for one in answered} == {"([M+H]+)"}
    ids = {one.feature_id: one.compound_id for one in firsts}
    assert all(ids[one.answered_by.split()[0]] == one.compound_id for one in answered)
    assert clean(answered[0], CleaningSettings()).failure.status == "same_compound"
    assert not any(one.first.answered_by for one in features_of(run, tmp_path, by="feature"))
    unlinked = features_of(run, tmp_path, link=False)
    assert {(one.first.compound_id, one.first.adduct_text) for one in unlinked} == {("", "")}
    forced = group(read(str(tmp_path / "run.mzML")), "run", "[M+H]+")
    assert {one.first.compound_id for one in forced} == {""}
