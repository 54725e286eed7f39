"""What describes predictions and what imitates them."""

import imitation
import numpy as np
import pytest

from duallgd_cli.checkpoint.format import Checkpoint, save
from tests.made_graphs import made_molecules, small_settings, stirred
from tests.made_prepared import spectra_folder, structures_folder


def test_perfect_predictions_are_described_as_such():
    molecules = made_molecules(40)
    truth = imitation.true_bits(molecules, np.arange(40))
    isomers = imitation.Isomers(molecules).of(molecules.atom_counts, truth)

    described = imitation.figures(truth.astype(float), truth, isomers)

    assert described["Tanimoto similarity to the truth"] == "1.00 (1.00 to 1.00)"
    assert described["true, of chances 0.9 to 1"] == "100.0%"
    assert described["chance of a true bit"] == "1.00 (1.00 to 1.00)"


def test_isomers_have_the_formula_and_not_the_fingerprint():
    molecules = made_molecules(300)
    truth = imitation.true_bits(molecules, np.arange(300))

    found = imitation.Isomers(molecules).of(molecules.atom_counts, truth)

    counts = [tuple(row) for row in molecules.atom_counts.tolist()]
    for row in range(300):
        expected = [n for n in range(300) if counts[n] == counts[row] and n != row]
        given = sorted(tuple(bits.tolist()) for bits in found[row])
        assert given == sorted(tuple(molecules.fingerprint_bits(n).tolist()) for n in expected)


@pytest.mark.parametrize("size", [3, 6, 9])
def test_structures_are_of_the_sizes_that_are_asked_for(size):
    molecules = made_molecules(200, fold=[0, 0, 0, 3] * 50)

    rows = imitation.of_sizes(molecules, np.full(20, size))

    assert (molecules.n_heavy[rows] == size).all()
    assert molecules.in_folds("train")[rows].all()


def test_a_run_prints_both_columns(tmp_path, capsys):
    spectra_folder(tmp_path / "measured")
    structures_folder(tmp_path / "structures")
    model = stirred(small_settings())
    weights = tmp_path / "w.safetensors"
    save(weights, Checkpoint(model.settings, dict(model.state_dict()), {"trained": ["encoder"]}))

    imitation.main(tmp_path / "measured", tmp_path / "structures", weights, 5)

    said = capsys.readouterr().out
    assert "predicted, fold val" in said
    assert "cross entropy" in said
    assert (tmp_path / "structures" / "neighbours.npy").is_file()
