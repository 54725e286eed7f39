"""A folder of simulated spectra is one of prepared spectra, of structures of fold train."""

import numpy as np
import pytest

from duallgd_cli.chem.adduct import ADDUCTS, precursor_mz
from duallgd_cli.data.peaks import MAX_ROWS, from_prepared
from duallgd_cli.data.prepared import FOLDS, load_molecules, load_spectra
from duallgd_cli.data.simulation import Selection, prepare_simulated
from duallgd_cli.data.structures import prepare_structures
from duallgd_cli.errors import UnreadableError
from tests.made_prepared import SMILES, structures_folder, verify
from tests.made_simulation import drawn_by, simulator

ALL = Selection(seed=3)
ASPIRIN = "BSYNRYMUTXBXSQ"


@pytest.fixture(scope="module")
def structures(tmp_path_factory):
    return structures_folder(tmp_path_factory.mktemp("made") / "structures")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, structures):
    out = tmp_path_factory.mktemp("made") / "simulated"
    prepare_simulated(structures, simulator(), out, {"steps": 5}, ALL)
    return out


def ids(folder):
    return [name.decode() for name in load_spectra(folder).spectrum_id]


def test_every_structure_has_one_spectrum_of_fold_train(folder, structures):
    verify(folder)
    spectra, given = load_spectra(folder), load_molecules(structures)

    assert len(spectra) == len(spectra.molecules) == len(SMILES)
    assert spectra.molecule.tolist() == list(range(len(SMILES)))
    assert set(spectra.spectrum_fold.tolist()) == {FOLDS.index("train")}
    np.testing.assert_array_equal(spectra.molecules.inchikey, given.inchikey)
    np.testing.assert_array_equal(spectra.molecules.charge, given.charge)
    for row in range(len(SMILES)):
        for name in ("bond_class", "fingerprint_bits"):
            expected = getattr(given, name)(row)
            np.testing.assert_array_equal(getattr(spectra.molecules, name)(row), expected)


@pytest.mark.parametrize("row", range(len(SMILES)))
def test_peaks_read_back_as_they_were_drawn(folder, structures, row):
    drawn = drawn_by(simulator(), load_molecules(structures), row, np.random.default_rng((3, row)))

    stored = from_prepared(load_spectra(folder), [row])

    np.testing.assert_array_equal(stored.subformula, drawn.subformula)
    # Kept in half precision, m/z in single.
    np.testing.assert_allclose(stored.numbers, drawn.numbers, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(stored.parent, drawn.parent)
    np.testing.assert_array_equal(stored.carrier, drawn.carrier)
    assert (stored.adduct, stored.instrument) == (drawn.adduct, drawn.instrument)
    assert 1 <= len(stored.carrier) <= MAX_ROWS


def test_precursors_and_energies_are_those_of_the_ions(folder):
    spectra = load_spectra(folder)
    molecules = spectra.molecules

    for row in range(len(spectra)):
        expected = precursor_mz(molecules.formula(row), ADDUCTS[spectra.adduct[row]])
        assert float(spectra.precursor_mz[row]) == pytest.approx(expected, abs=1e-4)
        peaks = slice(*spectra.peak_offset[row : row + 2].tolist())
        energies = set(spectra.peak_energy_ev[peaks].astype(str).tolist())
        assert energies == {str(spectra.energy_ev[row])}


def test_what_was_held_out_of_the_structures_is_kept_on_record(tmp_path):
    table = tmp_path / "structures.smi"
    table.write_text("\n".join(SMILES))
    source = tmp_path / "structures"
    prepare_structures(table, source, holdout=frozenset({ASPIRIN, "AAAAAAAAAAAAAA"}))

    manifest = prepare_simulated(source, simulator(), tmp_path / "out", {})

    assert (manifest["holdout_keys"], manifest["holdout_removed"]) == (2, 1)
    assert manifest["source"]["simulated"]["file"] == "structures.smi"
    assert ASPIRIN.encode() not in load_spectra(tmp_path / "out").molecules.inchikey


def test_structures_of_other_folds_are_left_out(tmp_path):
    structures = structures_folder(tmp_path / "s", "CCO", "CCN", "CCS", "CCF", fold=[0, 1, 2, 3])

    prepare_simulated(structures, simulator(), tmp_path / "out", {})

    assert ids(tmp_path / "out") == ["simulated-0"]


def test_a_limit_takes_some_at_random_and_changes_no_spectrum(tmp_path, structures, folder):
    prepare_simulated(structures, simulator(), tmp_path / "4", {}, Selection(limit=4, seed=3))
    prepare_simulated(structures, simulator(), tmp_path / "99", {}, Selection(limit=99, seed=3))

    rows = [int(name.partition("-")[2]) for name in ids(tmp_path / "4")]
    assert len(rows) == 4
    assert rows == sorted(set(rows)) != list(range(4))
    for place, row in enumerate(rows):
        got = from_prepared(load_spectra(tmp_path / "4"), [place])
        np.testing.assert_array_equal(
            got.numbers, from_prepared(load_spectra(folder), [row]).numbers
        )
    assert ids(tmp_path / "99") == ids(folder)


@pytest.mark.parametrize(("fold", "max_atoms"), [([1, 2], 50), ([0, 0], 2)])
def test_without_a_structure_to_simulate_it_says_so(tmp_path, fold, max_atoms):
    structures = structures_folder(tmp_path / "s", "CCO", "CCN", fold=fold)

    with pytest.raises(UnreadableError, match="s holds no structure of fold train"):
        prepare_simulated(
            structures, simulator(), tmp_path / "out", {}, Selection(max_atoms=max_atoms)
        )

    assert not (tmp_path / "out").exists()
