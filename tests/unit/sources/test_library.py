"""Spectral libraries: read, kept, searched; what is found, what is alike, how probable a hit is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.sources import library
from duallgd_cli.sources.known import Known
from duallgd_cli.sources.library import (
    Library,
    Match,
    analogues_among,
    best_hit,
    probability_of,
)
from tests.made_spectra import made_spectrum

pytest.importorskip("matchms")

CAFFEINE, ANALOGUE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "CCn1cnc2c1c(=O)n(C)c(=O)n2C"
PEAKS = ((56.05, 10), (83.06, 20), (110.0713, 40), (138.0662, 100), (195.0877, 60))
FORMATS = sorted((Path(__file__).parents[2] / "data" / "libraries").iterdir())


def msp(peaks=PEAKS, precursor=195.0877, name="caffeine", **fields):
    head = {"NAME": name, "PRECURSORMZ": precursor, "SMILES": CAFFEINE} | fields
    lines = [f"{key}: {value}" for key, value in head.items() if value is not None]
    return "\n".join([*lines, f"Num Peaks: {len(peaks)}", *(f"{m} {i}" for m, i in peaks), "\n"])


def measured(precursor=195.0877, polarity=1, peaks=PEAKS):
    mz, intensity = zip(*peaks, strict=True) if peaks else ((), ())
    return made_spectrum(mz, intensity, precursor_mz=precursor, polarity=polarity)


@pytest.fixture
def made(tmp_path):
    """A library of this text."""

    def read(text, name="lib.msp"):
        (tmp_path / name).write_text(text)
        return Library.read(tmp_path / name)

    return read


def test_a_spectrum_with_the_precursor_is_found_and_named(made):
    known = made(msp() + msp(PEAKS[:2], name="other", SMILES="CCO"))

    best, second = known.search([measured(), measured(peaks=PEAKS[2:])])

    assert (best.is_found, second.is_found) == (True, False)
    assert best.values() | {"inchi": ""} == {
        "name": "caffeine", "library": "lib.msp", "score": 1.0, "matched_peaks": 5, "inchi": "",
        "smiles": CAFFEINE, "inchikey": "RYYVLZVUVIJVGH-UHFFFAOYSA-N", "formula": "C8H10N4O2",
        "mz": (56.05, 83.06, 110.0713, 138.0662, 195.0877), "intensity": (0.1, 0.2, 0.4, 1.0, 0.6),
    }  # fmt: skip


def test_another_precursor_gives_an_analogue_by_shared_losses(made):
    """All peaks are shifted: the spectra share neutral losses alone."""
    shifted = [(mz + 14.0157, intensity) for mz, intensity in PEAKS]

    (match,) = made(msp(shifted, 209.1033, SMILES=ANALOGUE)).search([measured()])

    assert (match.is_same, match.is_found, match.peaks) == (False, False, 5)
    assert match.score == pytest.approx(1, abs=1e-3)
    (row,) = analogues_among([match, match])
    assert (row.smiles, row.name) == (ANALOGUE, "caffeine")


@pytest.mark.parametrize(
    ("values", "is_compared"),
    [
        ({}, False), ({"polarity": 0}, True), ({"polarity": -1}, True),
        ({"polarity": -1, "peaks": ()}, False), ({"polarity": -1, "precursor": None}, False),
    ],
)  # fmt: skip
def test_of_the_other_polarity_without_peaks_or_precursor_nothing_is_compared(
    made, values, is_compared
):
    assert bool(made(msp(IONMODE="Negative")).search([measured(**values)])) == is_compared


def test_bad_records_are_counted_and_the_others_read(made, caplog):
    text = msp() + msp(SMILES=None) + msp(SMILES="xx(") + msp(precursor=None) + msp(((1, "x"),))

    for _ in ("read", "kept"):
        caplog.clear()
        known = made(text + msp(SMILES=None, INCHI="InChI=1S/CH4O/c1-2/h2H,1H3"))
        assert list(known.smiles) == [CAFFEINE, "CO"]
        for said in ("without a structure", "not a molecule", "without a precursor"):
            assert f"1 spectrum left out ({said}" in caplog.text


@pytest.mark.parametrize(
    ("smiles", "said"),
    [
        ("[*:1]c1ccc(cc1)C(=O)NCC(=O)O", "has no InChI"), ("CC(C)~[#6]", "has no InChI"),
        ("[R1]CC", "left out (not a molecule)"), ("C" * 101, "more than 100 heavy atoms"),
        ("C" * 100_000, "more than 2,000 characters"),
    ],
)  # fmt: skip
def test_structures_that_are_no_molecule_here_are_left_out_and_counted(made, caplog, smiles, said):
    known = made(msp(SMILES=smiles) * 2 + msp())

    assert list(known.smiles) == [CAFFEINE]
    (warned,) = caplog.messages
    assert "2 spectra left out (" in warned
    assert said in warned


@pytest.mark.parametrize("path", FORMATS, ids=lambda path: path.name)
def test_json_mzspeclib_and_mgf_are_read_alike(made, path):
    (match,) = made(path.read_text(), path.name).search([measured()])

    assert (match.smiles, match.name, round(match.score, 4)) == (CAFFEINE, "caffeine", 1)


@pytest.mark.parametrize(
    ("name", "text", "error", "said"),
    [
        ("a.msp", msp(SMILES=None), UsageError, "holds no spectrum with a structure: 1 spectrum"),
        ("a.msp", msp() * 4, UsageError, "holds more than 3 spectra"),
        ("a.json", "[{", UsageError, "holds no spectrum with a structure: 1 spectrum"),
        ("a.txt", "hello", UnreadableError, "a.txt"),
    ],
)
def test_what_is_of_no_use_is_one_sentence(made, monkeypatch, name, text, error, said):
    monkeypatch.setattr(library, "_MOST_SPECTRA", 3)

    with pytest.raises(error) as refused:
        made(text, name)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


SCORES, PEAK_COUNTS = st.floats(0, 1), st.integers(0, 300)


@given(SCORES, SCORES, PEAK_COUNTS, PEAK_COUNTS, PEAK_COUNTS, st.none() | SCORES, SCORES)
def test_a_probability_rises_with_similarity_and_peaks_and_falls_as_another_comes_near(
    one, other, first, second, peaks, rival, nearer
):
    (lower, higher), (few, many) = sorted((one, other)), sorted((first, second))
    least = probability_of(lower, few, peaks, rival)

    assert 0 < least < 1
    assert least <= probability_of(higher, few, peaks, rival)
    assert least <= probability_of(lower, many, peaks, rival)
    if rival is not None:
        far, near = sorted((rival, nearer))
        of_near, of_far = (probability_of(one, few, peaks, score) for score in (near, far))
        assert of_near <= of_far


@pytest.mark.parametrize(
    ("hit", "probability"),
    [
        ((0.95, 12, 15), 0.963),  # nothing else of the formula
        ((0.95, 12, 15, 0.93), 0.702),  # an isomer that is as similar
        ((0.3, 1, 5, 0.0), 0.170),
    ],
)
def test_hits_as_they_come(hit, probability):
    assert round(probability_of(*hit), 3) == probability


def match(score, smiles, peaks=9, is_same=True):
    return Match(score, peaks, smiles, "", "lib.mgf", is_same)


ASPIRIN, CAFFEIC_ACID = "CC(=O)Oc1ccccc1C(=O)O", "O=C(O)C=Cc1ccc(O)c(O)c1"
MATCHES = (
    match(0.99, CAFFEIC_ACID, is_same=False),
    match(0.98, "CCO"),
    match(0.9, ASPIRIN, peaks=7),
    match(0.85, "CC(=O)Oc1c(C(O)=O)cccc1"),  # the same
    match(0.8, CAFFEIC_ACID),
    match(0.7, r"O=C(O)/C=C/c1ccc(O)c(O)c1"),
)
NO_FORMULA = [match(0.9, smiles) for smiles in ("[Fe]CCO", "CC[Se]C")]


@pytest.mark.parametrize(
    ("matches", "formula", "hit"),
    [
        (MATCHES, "C9H8O4", (MATCHES[2], 0.8)),
        (MATCHES[:4], "C9H8O4", (MATCHES[2], None)),
        (MATCHES, "C2H6O", (MATCHES[1], None)),
        (MATCHES, "CH4", None),
        (NO_FORMULA, "C9H8O4", None),
        ([], "C9H8O4", None),
    ],
)
def test_the_best_of_the_formula_is_taken_and_other_structures_are_its_rivals(
    matches, formula, hit
):
    assert best_hit(matches, formula) == hit


@pytest.mark.parametrize(("forbidden", "offered"), [((), True), (("[OX2H]",), False)])
def test_a_match_is_offered_where_it_is_as_the_guide_says(forbidden, offered):
    known = Known(Guide(forbid=forbidden), matches=MATCHES, n_peaks=12)

    found = known.match(Formula.parse("C9H8O4"))

    assert (found["smiles"], found["offered"], found["found"]) == (ASPIRIN, offered, True)
    assert found["probability"] == round(probability_of(0.9, 7, 12, 0.8), 4)
    assert known.match(Formula.parse("CH4"))["offered"] is False
    assert Known(None).match(Formula.parse("CH4")) is None
