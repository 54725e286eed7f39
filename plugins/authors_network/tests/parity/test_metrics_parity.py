"""Scores by the authors' rules against their own metrics."""

from pathlib import Path

import pytest

from duallgd_cli.chem.identity import inchi, parse_smiles
from duallgd_cli.errors import MoleculeError
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Predicted, Truth

pytestmark = pytest.mark.parity
TOP_K = (1, 2, 3, 5, 10)
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def samples(parity):
    listed = parity.json("metrics_examples.json")["samples"]
    # The repair pass makes molecules out of impossible graphs; we never emit one.
    return [sample for sample in listed if not sample["repair"]]


def ranked(sample):
    """SMILES in the order of the reference's ranking."""
    smiles = {}
    for text in sample["candidates"]:
        try:
            smiles[inchi(parse_smiles(text))] = text
        except MoleculeError:
            continue
    return [smiles[text] for text in sample["ranked_inchis"]]


def test_the_scores_are_the_reference_s_numbers(samples, monkeypatch):
    pytest.importorskip("myopic_mces", reason="needs the evaluate extra")
    monkeypatch.syspath_prepend(ROOT / "examples" / "studies")
    from authors_protocol import reference_scores

    truths = [Truth(str(i), sample["true"], "m") for i, sample in enumerate(samples)]
    predicted = [Predicted(tuple(ranked(sample)), ()) for sample in samples]

    scores = reference_scores(truths, predicted, EvaluateSettings(top_k=TOP_K))

    assert samples
    for row, sample in enumerate(samples):
        for ours, theirs in (("accuracy", "acc"), ("tanimoto", "tanimoto"), ("mces", "mces")):
            for k in TOP_K:
                got = scores.columns[f"{ours}@{k}"][row]
                assert got == pytest.approx(sample["metrics"][f"{theirs}@{k}"]), (sample, ours, k)
