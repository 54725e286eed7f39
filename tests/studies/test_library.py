"""Library hits among the spectra of other contributors, with and without the molecule."""

import numpy as np
import pytest
from library import calibration_error, cases_of, entries_of, main, queries_of

from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import formula_of

pytest.importorskip("matchms")

FOLDS = ("train", "val")
PROTON = 1.007276
COLUMNS = (
    *("identifier", "mzs", "intensities", "smiles", "inchikey", "formula", "precursor_mz"),
    *("adduct", "instrument_type", "collision_energy", "fold"),
)


def spectrum(identifier, smiles, peaks, fold="train"):
    """A row of the table: the peaks are as high as they lie."""
    mol = parse_smiles(smiles)
    formula = formula_of(mol)
    values = (
        *(identifier, ",".join(map(str, peaks)), ",".join(map(str, peaks)), smiles),
        *(inchikey_block(mol), formula, formula.mass + PROTON, "[M+H]+", "Orbitrap", 20, fold),
    )
    return "\t".join(map(str, values))


@pytest.fixture
def table(tmp_path):
    """Pairs of isomers that A and B measured, and one molecule that A alone did."""
    rows = ["\t".join(COLUMNS), spectrum("MSBNK-A-9", "NCCS", [40.0, 50.0])]
    rng = np.random.default_rng(0)
    for number in range(2, 22):
        for isomer in ("C" * number + "O", "C" * (number - 1) + "OC"):
            peaks = sorted(rng.uniform(20, 40, 4).round(3))
            fold = "val" if number > 16 else "test" if number == 2 else "train"
            rows += (
                spectrum(f"MSBNK-{who}-{number}", isomer, [*peaks, 45.0 + place], fold)
                for place, who in enumerate("ABA")
            )
    (tmp_path / "massbank.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path / "massbank.tsv"


@pytest.mark.slow
def test_a_query_is_searched_among_others_with_and_without_its_molecule(table):
    entries = entries_of(table)
    assert {entry.fold for entry in entries} == {"train", "val"}
    molecules = [len({query.block for query in queries_of(entries, fold)}) for fold in FOLDS]
    assert molecules == [28, 10]

    cases, n_queries = cases_of(entries, "train")

    assert n_queries == 28 * 3
    held = [case for case in cases if case.is_held]
    assert all(case.is_right for case in held)
    assert len(held) == n_queries
    assert not any(case.is_right for case in cases if not case.is_held)
    assert all(0 <= case.hit.similarity <= 1 + 1e-9 for case in cases)


def test_the_calibration_error_is_how_far_bins_are_off():
    stated, right = np.array([0.25, 0.25, 0.95, 1.0]), np.array([False, True, True, True])

    assert calibration_error(stated, right, np.ones(4)) == pytest.approx((0.5 + 0.05) / 4)
    assert calibration_error(stated, right, np.array([1, 0, 0, 0])) == pytest.approx(0.25)


@pytest.mark.slow
def test_the_study_prints_weights_and_how_far_they_hold(study, table):
    done = study(main, table)

    assert done.code == 0, done.err
    assert "'similarity_by_peaks'" in done.out
    assert "84 queries" in done.out
    assert done.out.count("expected calibration error") == 2
