"""What is lost where: predictions from true fingerprints."""

import numpy as np
import pytest
import true_fingerprints
from true_fingerprints import assembly_recovers, steps

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.config import SamplingSettings
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.evaluate.run import evaluate
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.predict.settings import PredictSettings
from tests import labelled_table
from tests.made_graphs import small_settings, stirred
from tests.scored_entries import scored

SMILES = ("CCO", "CCN", "CCC", "CC(=O)O")


def test_a_perfect_matrix_is_worth_the_molecule_wherever_it_can_express_it():
    assert assembly_recovers("CC(=O)Oc1ccccc1C(=O)O")
    assert not assembly_recovers("CCO.CC")  # it cannot say that there are two molecules
    assert not assembly_recovers("[Fe]")


def test_shares_fall_from_the_perfect_matrix_to_the_first_candidate():
    settings = EvaluateSettings(mces=False, workers=1)
    drawn = (["CCO"], ["C"] * 4 + ["CCN"], ["C"] * 20 + ["CCC"], [])
    ours, bound = (
        scored([(s, s, s, row) for s, row in zip(SMILES, ranked, strict=True)], settings)
        for ranked in (drawn, [[smiles] for smiles in SMILES])
    )

    assert {name: estimate.mean for name, estimate in steps(ours, bound).items()} == {
        "perfect bond matrix, assembled": 1.0,
        "true fingerprint, any sample": 1.0,
        "true fingerprint, first candidate": 1.0,
        "predicted fingerprint, any sample": 0.75,
        "predicted fingerprint, first 10": 0.5,
        "predicted fingerprint, first 1": 0.25,
    }


@pytest.mark.slow
def test_an_evaluation_is_predicted_from_the_true_fingerprints(study, table, tmp_path, monkeypatch):
    network, weights = stirred(small_settings()), tmp_path / "w.safetensors"
    save(weights, Checkpoint(network.settings, dict(network.state_dict()), {"step": 7}))
    TrainingHashes.of(["AAAAAAAAAAAAAA"]).write(tmp_path / "none.train.hashes")
    prediction = PredictSettings(sampling=SamplingSettings(samples=4, steps=2))
    files = {"benchmark": table, "out": tmp_path / "val", "weights": str(weights), "device": "cpu"}
    few = {"fold": "test", "limit": 2, "mces": False, "workers": 1, "prediction": prediction}
    evaluate(EvaluateSettings(**files, **few, train_hashes=tmp_path / "none.train.hashes"))
    seen, told = [], true_fingerprints.TrueFingerprints.__call__
    monkeypatch.setattr(
        true_fingerprints.TrueFingerprints,
        "__call__",
        lambda *given: seen.append(told(*given)) or seen[-1],
    )

    done = study(true_fingerprints.main, tmp_path / "val", "--weights", weights, "--device", "cpu")

    assert done.code == 0, done.err
    assert "true fingerprint, first candidate" in done.out
    expected = {tuple(np.sort(fingerprint(parse_smiles(s)))) for s, *_ in labelled_table.MOLECULES}
    assert len(seen) >= 2
    assert {tuple(np.flatnonzero(dense)) for dense, _ in seen} <= expected
