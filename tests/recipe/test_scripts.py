"""The script that fits the numbers behind `--parts`."""

import lzma
from types import SimpleNamespace

import numpy as np
import pytest

from duallgd_cli.chem import identity
from recipes import parts as recipe
from tests.made_runs import rows_of
from tests.unit.predict.test_ranking import outcome, structure

PHENOLS = [f"{'C' * n}c1ccc(O)cc1" for n in range(1, 9)]
ESTERS = [f"{'C' * n}OC(=O){'C' * m}" for n in range(1, 9) for m in range(1, 6)]


def packed(path, *rows):
    """Write a table as data sets are published, packed by xz."""
    path.parent.mkdir()
    lines = (list(rows[0]), *(row.values() for row in rows))
    path.write_bytes(lzma.compress("".join("\t".join(cells) + "\n" for cells in lines).encode()))


@pytest.fixture
def data(tmp_path):
    """The two tables that the recipe learns from; a row of another fold must not count."""
    known = [{"smiles": one, "source": "unpd", "fold": "train"} for one in ESTERS + PHENOLS]
    packed(tmp_path / "structures" / "structures.tsv.xz", *known)
    measured = [
        {"smiles": PHENOLS[0], "inchikey": "A", "fold": "train"},
        {"smiles": "CCN", "inchikey": "B", "fold": "val"},
    ]
    packed(tmp_path / "massbank" / "massbank.tsv.xz", *measured)
    return tmp_path


def test_rows_of_other_folds_are_not_read(data):
    assert recipe.known_molecules(data) == (ESTERS + PHENOLS, [PHENOLS[0]])


def test_it_writes_what_the_package_reads_and_prints_how_good_it_is(
    data, example_run, monkeypatch, capsys
):
    monkeypatch.setattr(recipe, "load", lambda _: SimpleNamespace(ranking={}))
    found = {row["spectrum_id"]: row["smiles"] for row in rows_of(example_run)}
    keys = {text: identity.inchikey(identity.parse_smiles(text)) for text in found.values()}
    lines = (f"{name}\t{smiles}\t{keys[smiles]}" for name, smiles in found.items())
    truth = data / "truth.tsv"
    truth.write_text("\n".join(["identifier\tsmiles\tinchikey", *lines, ""]), encoding="utf-8")

    recipe.main(data, [example_run], truth, output=data / "parts.npz")

    said = capsys.readouterr().out
    assert "fold val, all samples" in said
    assert "area under precision-recall" in said
    written, shipped = dict(np.load(data / "parts.npz")), dict(recipe.likely._fitted())
    shapes = [{name: value.shape for name, value in of.items()} for of in (written, shipped)]
    assert shapes[0] == shapes[1]
    assert np.isfinite(written["weights"]).all()


def test_average_precision_is_one_where_all_true_ones_come_first():
    has, first = np.array([True, True, False, False]), np.array([0.9, 0.8, 0.2, 0.1])

    assert recipe.average_precision(first, has) == 1.0
    assert recipe.average_precision(first[::-1], has) == pytest.approx((1 / 3 + 2 / 4) / 2)


def test_parts_are_right_on_average_and_all_samples_are_themselves():
    """Of 100 samples of a feature 50 became A, 30 B (10 repaired), 2 C, the rest no molecule."""
    structures = structure("A", 50), structure("B", 30, repaired=10), structure("C", 2)
    drawn, generator = (outcome(*structures, sampled=100),), np.random.default_rng(1)

    parts = [recipe.part_of(drawn, 10, generator)[0] for _ in range(500)]

    for part in parts:
        assert part.sampled == 10 >= sum(one.samples for one in part.structures)
        assert all(one.repaired <= one.samples > 0 for one in part.structures)
    counts = [{one.smiles: one.samples for one in part.structures} for part in parts]
    means = {name: np.mean([of.get(name, 0) for of in counts]) for name in "AB"}
    assert means == pytest.approx({"A": 5.0, "B": 3.0}, abs=0.3)
    assert tuple(recipe.part_of(drawn, 100, generator)) == drawn
