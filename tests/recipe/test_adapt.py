"""Weights that get to know a laboratory's own standards."""

from itertools import pairwise

import numpy as np
import pytest

from duallgd_cli.checkpoint.format import load
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.chem.joining import cut, parts_of
from duallgd_cli.errors import UnreadableError, WeightsError
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.predict.model import load_model
from duallgd_cli.sources.collection import Collection
from duallgd_cli.train import adapt as adapt_module
from duallgd_cli.train.adapt import adapt, merged
from duallgd_cli.train.settings import DrawSettings
from tests.made_prepared import COLUMNS, ESTERS, cells_of
from tests.made_training import cpu
from tests.recipe.test_recipe import told, whole  # noqa: F401 - a fixture

PHENOLS = {f"{'C' * n}c1ccc(O)cc1": "C7H7O" for n in range(3, 15)}


def standards(path, molecules):
    rows = [COLUMNS]
    for number, (smiles, fragment) in enumerate(molecules.items()):
        rows += [
            cells_of(2 * number + e, smiles, "[M+H]+", fragment, str(20 + e), "") for e in (0, 1)
        ]
    path.write_text("\n".join("\t".join(cells) for cells in rows) + "\n")
    return path


def mols(*texts):
    return [parse_smiles(text) for text in texts]


def test_merged_blocks_are_those_of_both_counted_together():
    first, second = mols("CCOC(C)=O", "CCOC(=O)CC"), mols("CCOC(C)=O", "OCCc1ccccc1")
    one, other = cut(map(parts_of, first)), cut(map(parts_of, second))

    both = merged(one, other)

    assert both._is_sound
    assert set(both.smiles) == {*one.smiles, *other.smiles}
    seen = dict(zip(both.smiles, both.seen.tolist(), strict=True))
    for blocks in (one, other):
        ends = np.cumsum(blocks.n_bits)[:-1]
        for smiles, n, bits in zip(
            blocks.smiles, blocks.seen, np.split(blocks.bits, ends), strict=True
        ):
            assert seen[smiles] >= n
            row = both.smiles.index(smiles)
            start = int(both.n_bits[:row].sum())
            np.testing.assert_array_equal(both.bits[start : start + len(bits)], bits)
    assert sum(seen.values()) == one.seen.sum() + other.seen.sum()
    kinds = [(text.count("*"), -seen[text]) for text in both.smiles]
    assert all(a <= b for a, b in pairwise(kinds))
    assert both.bits.max() < FINGERPRINT_BITS


@pytest.mark.slow
def test_weights_get_to_know_standards(whole, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(adapt_module, "ENOUGH_FOR_CONFIDENCE", 10)
    out, _ = whole
    start, lines = out / "duallgd.safetensors", []
    table = standards(tmp_path / "mine.tsv", PHENOLS)
    made, draw = tmp_path / "mine.safetensors", DrawSettings(samples=4, steps=2)

    adapt(table, start, made, cpu(), told(lines), draw=draw)

    before, after = load(start), load(made)
    names = Collection.of(after.templates).names
    new = {inchikey_block(parse_smiles(text)) for text in PHENOLS}
    assert set(names) == {*Collection.of(before.templates).names, *new}
    assert len(after.kernel["n_places"]) == len(names)
    assert after.record["adapted"]["new_molecules"] == len(PHENOLS)
    assert after.ranking != before.ranking
    assert "confidence fitted to 12 molecules, cross-validated: top-1 " in " ".join(lines)
    listed = TrainingHashes.read(tmp_path / "mine.train.hashes")
    assert listed.contains(sorted(new)).all()
    assert set(load_model(made, cpu()).known) >= new


@pytest.mark.slow
def test_too_few_standards_and_weights_without_templates_are_refused(whole, tmp_path):  # noqa: F811
    out, _ = whole
    few = standards(tmp_path / "few.tsv", dict(list(ESTERS.items())[:4]))
    for weights, error, message in (
        (out / "duallgd.safetensors", UnreadableError, "has 8 usable spectra; give 20 or more"),
        (out / "encoder" / "model.safetensors", WeightsError, "hold no templates with spectra"),
    ):
        with pytest.raises(error, match=message):
            adapt(few, weights, tmp_path / "new.safetensors", cpu(), told([]))
    assert not (tmp_path / "new.safetensors").exists()
