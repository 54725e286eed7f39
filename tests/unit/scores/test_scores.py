"""Scores of candidates: as computed by hand, on substructures and peaks from chemistry."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from duallgd_cli.chem.building_blocks import NO_BLOCKS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, parse_smiles
from duallgd_cli.chem.joining import cut, known_halves, parts_of
from duallgd_cli.data.fragmentation import N_INPUTS, SHIFTS
from duallgd_cli.data.simulation import FragmentModel
from duallgd_cli.errors import OutOfTimeError, WeightsError
from duallgd_cli.ranking.ranking import FEATURES
from duallgd_cli.scores import (
    FingerprintLikelihood,
    FingerprintTanimoto,
    FragmentScorer,
    Molecule,
    environments,
    fitted_scores,
    isomer_log_odds,
    known_environments,
    score,
)
from duallgd_cli.sources import Query
from duallgd_cli.train.scorers import ScorerModel
from tests.made_queries import chances
from tests.made_spectra import annotated as made_annotated

N_BITS = 4096
HEADS = ("presence", "worth")


def network(*stirred):
    """A fragment model, of which these parameters of its two heads are random."""
    torch.manual_seed(1)
    model = ScorerModel(FragmentModel(8)).eval()
    for head in HEADS:
        for name in stirred:
            torch.nn.init.normal_(getattr(getattr(model, head), name))
    return model


def arrays_of(model, **tables):
    """What a weights file holds of a fragment model and of tables."""
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return arrays | {"log_prevalence": np.zeros(N_BITS, np.float32)} | tables


def even(log_odds):
    """A model that gives every fragment with every number of hydrogens the same log-odds."""
    model = network()
    torch.nn.init.constant_(model.presence.bias, log_odds)
    return arrays_of(model)


def annotated(*fragments, adduct="[M+H]+", formula="C2H6O", energy=20.0, carrier=0):
    """A spectrum explained by these fragment ions."""
    counts = [Formula.parse(text).array for text in fragments]
    energies, carriers = [energy] * len(counts), [carrier] * len(counts)
    return made_annotated(counts, formula, adduct, energy_ev=energies, carrier=carriers)


ETHYL = annotated("C2H5")


def query(seen=ETHYL, chance=None, **changes):
    return Query(seen, chances(low=0.5) if chance is None else chance, **changes)


def molecule(smiles):
    mol = parse_smiles(smiles)
    return Molecule.of(mol, canonical_smiles(mol))


def filter_of(*smiles):
    """The filter of environments that these molecules have in common."""
    return known_environments(map(environments, map(parse_smiles, smiles)))


def scored(arrays, seen=ETHYL, smiles="CCO", ends=NO_BLOCKS.ends):
    """All that a weights file with these arrays says of a molecule."""
    scores, _ = fitted_scores(arrays, ends)
    (values,) = score(scores, query(seen), [molecule(smiles)])
    return values


def test_the_network_in_plain_arrays_is_the_network():
    model = network("weight", "bias")
    features = np.random.default_rng(1).random((5, N_INPUTS), np.float32)

    scorer = FragmentScorer.of(arrays_of(model))
    weight, bias = scorer.layers[0]
    got = scorer.worth(features @ weight.T + bias)

    for said, there in zip(got, (True, False), strict=True):
        with torch.inference_mode():
            _, expected = model(torch.from_numpy(features), torch.full((5, 11), there))
        np.testing.assert_allclose(said, expected.numpy(), atol=1e-4)


def test_familiarity_is_the_mean_log_share_of_the_bits():
    bits, table = molecule("CCO").bits, np.full(N_BITS, -9, np.float32)
    table[bits] = np.linspace(-3, -1, len(bits))

    got = scored(arrays_of(network(), log_prevalence=table))

    assert got["familiarity"] == pytest.approx(-2, abs=1e-4)


@pytest.mark.parametrize(
    ("known", "smiles", "value"),
    [
        ("CCO CCO", "CCO", "0.0"),  # and not -0.0
        ("CCO CCO", "CCCO", "-3.0"),  # by hand in tests/unit/chem/test_formula.py
        ("CCO", "CCO", "-6.0"),  # what a single structure has says nothing
    ],
)
def test_environments_that_no_known_structure_has_speak_against_a_molecule(known, smiles, value):
    got = scored(arrays_of(network(), environments=filter_of(*known.split())), smiles=smiles)

    assert str(got["known_environments"]) == value


def test_the_halves_of_a_molecule_are_as_usual_as_their_ends():
    ends = cut(map(parts_of, map(parse_smiles, ["CCO", "CCCO", "CC(C)O"]))).ends

    got = scored(arrays_of(network()), smiles="CCCO", ends=ends)

    assert got["known_halves"] == round(known_halves(parse_smiles("CCCO"), ends), 4) != 0


def test_log_odds_beside_isomers_are_summed_over_the_bits():
    ethanol, odds = molecule("CCO"), np.full(N_BITS, 9, np.float32)
    odds[ethanol.bits] = 0.25

    assert isomer_log_odds(query(isomer_log_odds=odds), ethanol) == 0.25 * len(ethanol.bits)
    assert scored(arrays_of(network()))["contrast"] == 0  # without an encoder


def agreement(chance, *molecules):
    """The two scores of agreement with the fingerprint, each of all molecules."""
    asked = query(chance=chance.astype(np.float32))
    return [each(asked, molecules) for each in (FingerprintLikelihood(), FingerprintTanimoto())]


def test_agreement_with_the_fingerprint_is_read_literally():
    """Of six likely bits four are of the molecule; its others and all others are unlikely."""
    ethanol, chance = molecule("CCO"), np.full(N_BITS, 1e-4)  # as low as any is taken to be
    on = ethanol.bits.tolist()
    absent = [bit for bit in (4000, 4001) if bit not in on]
    for bit, value in zip((*on[:4], *absent), (0.9, 0.8, 0.7, 0.2, 0.4, 0.6), strict=True):
        chance[bit] = value

    (likelihood,), (tanimoto,) = agreement(chance, ethanol)

    expected = sum(
        np.log(q if bit in on else 1 - q) - np.log(max(q, 1 - q)) for bit, q in enumerate(chance)
    )
    either = sum(max(q, bit in on) for bit, q in enumerate(chance))
    assert likelihood == pytest.approx(expected, abs=1e-4)
    assert tanimoto == pytest.approx(sum(chance[bit] for bit in on) / either, abs=1e-6)


def test_agreement_with_a_fingerprint_that_is_certain_is_finite():
    (best, worse), (near, far) = agreement(chances("CCO", 0, 1), molecule("CCO"), molecule("COC"))

    assert best == 0 > worse > -np.inf
    assert 1 >= near > 0.7 > far > 0


def test_fragments_count_as_on_paper():
    """Ethanol has six fragments of eleven hydrogen counts each: 66 places, each of chance 1/2.

    C2H5+ is one of them, C2H3O+ none: it would need all atoms and has fewer hydrogens than a
    fragment may lack... but the whole molecule less four, which is in reach.
    """
    got = scored(even(0.0), annotated("C2H5", "C2H3O"))

    n_places, n_found = 6 * len(SHIFTS), 2
    found, missed = 0.1 * (np.log(0.5) + 4), 0.3 * np.log(0.5)
    assert got["peaks_found"] == pytest.approx(n_found * found, abs=1e-4)
    assert got["peaks_missed"] == pytest.approx((n_places - n_found) * missed, abs=1e-3)


def test_collision_energies_count_alike_however_many_peaks_they_have():
    low, high = annotated("C2H5", energy=10.0), annotated("C2H5", "HO", "CH3", energy=40.0)
    names = ("subformula", "intensity", "ppm", "mz", "share", "carrier", "energy_ev")
    both = {name: np.concatenate([getattr(low, name), getattr(high, name)]) for name in names}

    one, other = (scored(even(-1.0), seen) for seen in (low, high))
    together = scored(even(-1.0), replace(low, **both))

    assert together["peaks_found"] == pytest.approx(
        (one["peaks_found"] + other["peaks_found"]) / 2, abs=1e-3
    )


@pytest.mark.parametrize(
    ("seen", "smiles"),
    [
        (annotated("C2H5", adduct="[M+Na]+"), "CCO"),  # fragments of sodium are not understood
        (annotated("C2H5", carrier=1), "CCO"),
        (annotated(), "CCO"),
        (annotated("CH3", formula="CH4"), "C"),  # without bonds
    ],
)
def test_a_spectrum_or_a_molecule_that_says_nothing_has_no_score(seen, smiles):
    got = scored(even(0.0), seen, smiles)

    names = ("familiarity", "peaks_found", "peaks_missed", "known_halves", "contrast")
    assert [got[name] for name in names] == [0] * 5


def test_fragments_of_many_molecules_speak_as_those_of_each():
    fragments = FragmentScorer.of(arrays_of(network("weight")))
    seen = annotated("C4H9O", "C3H7", "C2H5", "CH3O", formula="C4H10O")
    isomers = ["CCCCO", "CCC(C)O", "CC(C)(C)O", "CCOCC", "COC(C)C", "CC(C)CO"] * 8
    named = [(one.smiles, one.mol) for one in map(molecule, [*isomers, "OCC1CC1", "CC(C)=O", "C"])]

    together = fragments.peaks(query(seen), named)

    alone = np.concatenate([fragments.peaks(query(seen), [pair]) for pair in named])
    np.testing.assert_allclose(together, alone, atol=2e-4)
    assert len(np.unique(alone[:6].round(2), axis=0)) == 6


def test_fragments_of_a_molecule_are_cut_once_a_query(monkeypatch):
    fragments, worth, calls = FragmentScorer.of(even(-1.0)), FragmentScorer.worth, []
    monkeypatch.setattr(FragmentScorer, "worth", lambda self, x: calls.append(1) or worth(self, x))
    asked, (ethanol, methanol) = query(), map(molecule, ("CCO", "CO"))

    def peaks(asked, *molecules):
        return fragments.peaks(asked, [(one.smiles, one.mol) for one in molecules]).tolist()

    first = peaks(asked, ethanol)

    assert peaks(asked, molecule("OCC")) == first
    assert len(calls) == 1
    (other,) = peaks(asked, methanol)
    assert peaks(asked, methanol, ethanol, methanol) == [other, *first, other]
    assert peaks(query(), ethanol) == first
    assert len(calls) == 3


def test_with_a_re_ranker_every_score_has_the_name_of_its_weight_in_the_ranking():
    arrays = arrays_of(network(), environments=filter_of("CCO"))
    scores, fragments = fitted_scores(arrays, NO_BLOCKS.ends)

    names = sorted(each.name for each in scores)
    assert isinstance(fragments, FragmentScorer)
    assert names == sorted(set(FEATURES) - {"log_share", "log_prior", "repaired_share"})


def test_without_a_re_ranker_there_are_the_two_scores_that_need_no_fit():
    scores, fragments = fitted_scores({}, NO_BLOCKS.ends)

    assert [each.name for each in scores] == ["fingerprint_log_likelihood", "fingerprint_tanimoto"]
    assert fragments is None


@dataclass
class Own:
    """A score that gives what it is told."""

    values: object
    name: str = "own"

    def __call__(self, query, molecules):
        return self.values


TWO = [molecule("CCO")] * 2


@pytest.mark.parametrize("values", [[1, 2], (1.0, 2.0), np.array([1, 2], np.int8)])
def test_numbers_of_a_score_come_in_any_form(values):
    got = score([Own(values), Own([0.5, 0], "other")], query(), TWO)

    assert got == [{"own": 1.0, "other": 0.5}, {"own": 2.0, "other": 0.0}]


def test_without_molecules_or_scores_nothing_is_looked_at():
    assert score([Own("never looked at")], query(), []) == []
    assert score([], query(), TWO) == [{}, {}]


def test_time_that_is_up_is_noticed_before_each_score():
    looked = []

    def check():
        looked.append(1)
        if len(looked) == 2:
            raise OutOfTimeError

    with pytest.raises(OutOfTimeError):
        score([Own([1, 2]), Own([2, 3])], query(check=check), TWO)


# Both have C7H17NO2: an ammonium opposite an alkoxide, in two placements, and a plain amino diol.
SALT, SAME_SALT, DIOL = "C[N+](C)(C)CCC(O)C[O-]", "C[N+](C)(C)CCC([O-])CO", "CN(C)CCC(O)CCO"
CARNITINE = "C[N+](C)(C)CC(O)CC(=O)[O-]"


def test_what_differs_in_the_placement_of_charges_alone_shares_a_placement():
    salt, same, diol, carnitine = map(molecule, (SALT, SAME_SALT, DIOL, CARNITINE))

    assert [one.is_salt for one in (salt, same, diol, carnitine)] == [True, True, False, False]
    assert salt.placement == same.placement != carnitine.placement != ""
    assert diol.placement == ""


MISSING, OTHER = "{}.*take the weights that come with", "another version.*that come with this"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("log_prevalence", None, MISSING),
        ("worth.weight", None, MISSING),
        ("hidden.0.weight", np.zeros((8, N_INPUTS - 2)), OTHER),
        ("hidden.2.weight", np.zeros((0, 8)), OTHER),
        ("worth.bias", np.zeros(4), OTHER),
        ("log_prevalence", np.zeros(0), OTHER),
        ("log_prevalence", np.zeros((1, 4096)), OTHER),
        ("environments", np.zeros(0, np.uint8), OTHER),
        ("environments", np.zeros(64), OTHER),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_a_sentence(name, value, said):
    arrays = arrays_of(network()) | {name: value}
    given = {name: array for name, array in arrays.items() if array is not None}

    with pytest.raises(WeightsError, match=said.format(name)):
        fitted_scores(given, NO_BLOCKS.ends)
