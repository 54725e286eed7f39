"""The second column set against the reference's own metrics."""

import pytest

from duallgd_cli.chem.identity import inchi, parse_smiles
from duallgd_cli.errors import MoleculeError
from duallgd_cli.evaluate import EvaluateSettings
from tests.scored_entries import scored

pytestmark = pytest.mark.parity
TOP_K = (1, 2, 3, 5, 10)


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


def test_the_reference_columns_are_the_reference_s_numbers(samples):
    pytest.importorskip("myopic_mces", reason="needs the evaluate extra")
    entries = [(str(i), "m", s["true"], ranked(s)) for i, s in enumerate(samples)]

    scores = scored(entries, EvaluateSettings(top_k=TOP_K, reference=True, workers=1))

    assert samples
    for row, sample in enumerate(samples):
        for ours, theirs in (("accuracy", "acc"), ("tanimoto", "tanimoto"), ("mces", "mces")):
            for k in TOP_K:
                got = scores.columns[f"reference_{ours}@{k}"][row]
                assert got == pytest.approx(sample["metrics"][f"{theirs}@{k}"]), (sample, ours, k)
