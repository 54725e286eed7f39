"""The script that fits the numbers behind `--parts`."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from duallgd_cli.chem import identity
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest
from recipes import parts as recipe
from tests.labelled_table import packed
from tests.made_runs import rows_of
from tests.stub_model import stub_model
from tests.unit.predict.test_ranking import outcome, structure

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PHENOLS = [f"{'C' * n}c1ccc(O)cc1" for n in range(1, 9)]
ESTERS = [f"{'C' * n}OC(=O){'C' * m}" for n in range(1, 9) for m in range(1, 6)]


@pytest.fixture
def data(tmp_path):
    """The two tables that the recipe learns from; a row of another fold must not count."""
    known = [{"smiles": one, "source": "unpd", "fold": "train"} for one in ESTERS + PHENOLS]
    packed(tmp_path / "structures" / "structures.tsv.xz", list(known[0]), known)
    measured = [
        {"smiles": PHENOLS[0], "inchikey": "A", "fold": "train"},
        {"smiles": "CCN", "inchikey": "B", "fold": "val"},
    ]
    packed(tmp_path / "massbank" / "massbank.tsv.xz", list(measured[0]), measured)
    return tmp_path


@pytest.fixture
def run(tmp_path):
    """A run of a stand-in for the model, and the table of the truth."""
    output, truth = tmp_path / "out.csv", tmp_path / "truth.tsv"
    inputs, formulas = (str(EXAMPLES / "spectra.mgf"),), EXAMPLES / "formulas.csv"
    predict(PredictRequest(inputs=inputs, output=str(output), formulas=formulas), stub_model())
    found = {row["spectrum_id"]: row["smiles"] for row in rows_of(output)}
    lines = ["identifier\tsmiles\tinchikey"]
    for name, smiles in found.items():
        key = identity.inchikey(identity.parse_smiles(smiles))
        lines.append(f"{name}\t{smiles}\t{key}")
    truth.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return output, truth


def test_rows_of_other_folds_are_not_read(data):
    assert recipe.known_molecules(data) == (ESTERS + PHENOLS, [PHENOLS[0]])


def test_it_writes_what_the_package_reads_and_prints_how_good_it_is(data, run, monkeypatch, capsys):
    monkeypatch.setattr(recipe, "load", lambda _: SimpleNamespace(ranking={}))
    output, truth = run

    recipe.main(data, [output], truth, output=data / "parts.npz")
    said = capsys.readouterr().out
    written, shipped = dict(np.load(data / "parts.npz")), dict(recipe.likely._fitted())

    assert written.keys() == shipped.keys()
    assert {name: value.shape for name, value in written.items()} == {
        name: value.shape for name, value in shipped.items()
    }
    assert np.isfinite(written["weights"]).all()
    assert "fold val, all samples" in said
    assert "area under precision-recall" in said


def test_average_precision_is_one_where_all_true_ones_come_first():
    has = np.array([True, True, False, False])

    assert recipe.average_precision(np.array([0.9, 0.8, 0.2, 0.1]), has) == 1.0
    assert recipe.average_precision(np.array([0.1, 0.2, 0.8, 0.9]), has) == pytest.approx(
        (1 / 3 + 2 / 4) / 2
    )


def drawn_twice(sampled=100):
    """A feature of 100 samples: 50 became A, 30 B (10 repaired), 2 C, the rest no molecule."""
    structures = (
        structure("A", 50),
        structure("B", 30, repaired=10),
        structure("C", 2),
    )
    return (outcome(*structures, sampled=sampled),)


def test_parts_are_right_on_average_and_all_samples_are_themselves():
    drawn, generator = drawn_twice(), np.random.default_rng(1)

    whole = [recipe.part_of(drawn, 10, generator)[0] for _ in range(500)]
    parts = [part.structures for part in whole]

    for part in whole:
        assert part.sampled == 10
        assert sum(one.samples for one in part.structures) <= 10
        assert all(one.repaired <= one.samples > 0 for one in part.structures)
    counts = {
        name: np.mean([sum(one.samples for one in part if one.smiles == name) for part in parts])
        for name in "AB"
    }
    assert counts == pytest.approx({"A": 5.0, "B": 3.0}, abs=0.3)
    assert tuple(recipe.part_of(drawn, 100, generator)) == drawn
