"""Weights that get to know a laboratory's own standards."""

import shutil

import pytest

from duallgd_cli.checkpoint.format import load
from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.chem.joining import cut, parts_of
from duallgd_cli.errors import UnreadableError, WeightsError
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.predict.model import load_model
from duallgd_cli.sources.collection import Collection
from duallgd_cli.train import adapt as adapt_module
from duallgd_cli.train.adapt import adapt, merged
from duallgd_cli.train.settings import DrawSettings
from tests.made_prepared import ESTERS, row_of, table
from tests.made_training import cpu
from tests.recipe.conftest import told

PHENOLS = {f"{'C' * n}c1ccc(O)cc1": "C7H7O" for n in range(3, 15)}


def standards(path, molecules):
    """A table of two spectra of each molecule."""
    rows = (
        row_of(f"{number}-{energy}", smiles, "[M+H]+", fragment, energy, "")
        for number, (smiles, fragment) in enumerate(molecules.items())
        for energy in ("20", "21")
    )
    return table(path, *rows)


def described(blocks):
    """How often each block was seen, its atoms and its bits, in their order."""
    ends = blocks.n_bits.cumsum()
    return {
        smiles: (int(seen), counts.tolist(), blocks.bits[end - n : end].tolist())
        for smiles, seen, counts, n, end in zip(
            blocks.smiles, blocks.seen, blocks.counts, blocks.n_bits, ends, strict=True
        )
    }


def test_merged_blocks_are_those_of_both_counted_together():
    first, second = ("CCOC(C)=O", "CCOC(=O)CC"), ("CCOC(C)=O", "OCCc1ccccc1")
    one, other = (cut(parts_of(parse_smiles(text)) for text in texts) for texts in (first, second))

    both = merged(one, other)

    parts, found = [described(blocks) for blocks in (one, other)], described(both)
    assert both.fit
    assert found == {
        smiles: (sum(part[smiles][0] for part in parts if smiles in part), *of_block[1:])
        for part in parts
        for smiles, of_block in part.items()
    }
    order = [(smiles.count("*"), -seen) for smiles, (seen, *_) in found.items()]
    assert order == sorted(order)  # ends before linkers, the most frequent first


@pytest.mark.slow
def test_weights_get_to_know_standards(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(adapt_module, "ENOUGH_FOR_CONFIDENCE", 10)
    start, made, lines = whole / "duallgd.safetensors", tmp_path / "mine.safetensors", []
    table, draw = standards(tmp_path / "mine.tsv", PHENOLS), DrawSettings(samples=4, steps=2)

    adapt(table, start, made, cpu(), told(lines), draw=draw)

    before, after = load(start), load(made)
    names = Collection.of(after.templates).names
    new = {inchikey_block(parse_smiles(text)) for text in PHENOLS}
    assert set(names) == {*Collection.of(before.templates).names, *new}
    assert len(after.kernel["n_places"]) == len(names)
    assert after.record["adapted"]["new_molecules"] == len(PHENOLS)
    assert after.ranking != before.ranking
    assert "confidence fitted to 12 molecules, cross-validated: top-1 " in " ".join(lines)
    assert TrainingHashes.read(tmp_path / "mine.train.hashes").contains(sorted(new)).all()
    assert set(load_model(made, cpu()).known) >= new


@pytest.mark.slow
def test_weights_without_a_list_of_training_molecules_get_none_and_that_is_said(whole, tmp_path):
    start, made, lines = tmp_path / "copied.safetensors", tmp_path / "mine.safetensors", []
    shutil.copy(whole / "duallgd.safetensors", start)
    (tmp_path / "mine.train.hashes").write_text("of earlier weights of that name")

    adapt(standards(tmp_path / "mine.tsv", PHENOLS), start, made, cpu(), told(lines))

    assert made.is_file()
    assert not (tmp_path / "mine.train.hashes").exists()
    said = f"no list of training molecules {tmp_path / 'copied.train.hashes'}, so none is written"
    assert said in " ".join(lines)


@pytest.mark.slow
def test_too_few_standards_and_weights_without_templates_are_refused(whole, tmp_path):
    few = standards(tmp_path / "few.tsv", dict(list(ESTERS.items())[:4]))
    for weights, error, message in (
        ("duallgd.safetensors", UnreadableError, "has 8 usable spectra; give 20 or more"),
        ("encoder/model.safetensors", WeightsError, "hold no templates with spectra"),
    ):
        with pytest.raises(error, match=message):
            adapt(few, whole / weights, tmp_path / "new.safetensors", cpu(), told([]))
    assert not (tmp_path / "new.safetensors").exists()
