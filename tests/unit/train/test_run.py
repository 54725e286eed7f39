"""Whole runs as `duallgd train` starts them, and predictions with what they made."""

from dataclasses import replace

import pytest
import torch

from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.config import SamplingSettings, assigned, merge, parse
from duallgd_cli.errors import InterruptedRunError
from duallgd_cli.predict.api import predict_spectra
from duallgd_cli.predict.model import load_model
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.train.run import PARTS, both_parts, run_training
from duallgd_cli.train.settings import RunSettings
from tests.made_prepared import spectra_folder, structures_folder
from tests.made_simulation import simulated_folder
from tests.made_spectra import block, mgf
from tests.made_training import cpu, figures, state

# A network small enough to overfit two spectra within a test, and a smaller one.
TINY = {
    "model": {
        "denoiser": {
            "layers": 2, "atom_width": 48, "pair_width": 32, "global_width": 48, "cross_width": 32,
            "pair_features": 8,
        },
        "encoder": {"layers": 1, "width": 32, "dropout": 0.0},
    },
    "training": {"optimiser": {"matrices": "adamw", "learning_rate": 0.003, "ema": 0.95}},
}  # fmt: skip
SIZES = ("layers=1", *(f"{part}_width=16" for part in ("atom", "pair", "global", "cross")))
SMALL = [
    *(f"model.denoiser.{size}" for size in SIZES),
    *("training.data.pairs_per_batch=200", "training.data.spectra_per_batch=4"),
    "training.log_every=1",
]
# Two isomers, told apart by their fragments alone.
ALANINE, SARCOSINE = "CC(N)C(=O)O", "CNCC(=O)O"
ISOMERS = (
    (ALANINE, "[M+H]+", "C2H6N C2H4N", "20", "train"),
    (SARCOSINE, "[M+H]+", "C2H6N CH4N C3H6NO", "20", "train"),
)


@pytest.fixture(scope="module")
def spectra(tmp_path_factory):
    return spectra_folder(tmp_path_factory.mktemp("made") / "spectra")


@pytest.fixture(scope="module")
def structures(tmp_path_factory):
    return structures_folder(tmp_path_factory.mktemp("made") / "structures")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    return simulated_folder(tmp_path_factory.mktemp("made") / "simulated")


def said_of(stage, *overrides, steps=3):
    chosen = [f"training.stage={stage}", f"training.steps={steps}", *SMALL, *overrides]
    return merge(TINY, assigned(chosen))


def trained(data, out, stage, *overrides, **given):
    return started(said_of(stage, *overrides), data, out, **given)


def started(said, data, out, runtime=None, **given):
    run = parse(RunSettings, said)
    return run_training(run, data, out, runtime or cpu(), sizes=said["model"], **given)


def interrupted(data, out, stage, *overrides, **given):
    """A run that is stopped after its first step."""

    def stop(step, figures):
        raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError, match="stopped at step 1 of 3"):
        trained(data, out, stage, *overrides, on_step=stop, **given)


def parts(checkpoint, part):
    return {n: t for n, t in checkpoint.tensors.items() if n.startswith(f"{part}.")}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize(
    ("stage", "moved", "kept"),
    [("decoder", "denoiser", "encoder"), ("encoder", "encoder", "denoiser")],
)
def test_a_stage_trains_its_part_and_leaves_the_other(tmp_path, spectra, stage, moved, kept):
    fresh = trained(spectra, tmp_path / "other", stage, "training.optimiser.learning_rate=1e-30")
    made = trained(spectra, tmp_path / "run", stage)

    assert same(parts(made, kept), parts(fresh, kept))
    assert not same(parts(made, moved), parts(fresh, moved))
    assert not [n for n in state(tmp_path / "run") if n.startswith(f"exp_avg/{kept}")]


def test_training_goes_on_from_weights_and_the_record_says_what_it_is_made_of(
    tmp_path, spectra, structures, simulated
):
    starts = {stage: tmp_path / stage / "model.safetensors" for stage in ("decoder", "encoder")}
    trained(structures, tmp_path / "decoder", "decoder", "model.memory_bits=20")
    trained(spectra, tmp_path / "encoder", "encoder", "model.encoder.summary=48")
    more = structures_folder(tmp_path / "more", "CCO", "CCN")
    rate = "training.optimiser.learning_rate=1e-30"
    given = {
        "decoder": (structures, {"structures": (more,)}),
        "encoder": (spectra, {"simulated": simulated}),
    }
    made = {
        stage: trained(data, tmp_path / "on" / stage, stage, rate, start=starts[stage], **others)
        for stage, (data, others) in given.items()
    }
    both = both_parts(*(tmp_path / "on" / stage / "model.safetensors" for stage in PARTS))

    for stage, part in PARTS.items():
        for name, tensor in parts(made[stage], part).items():
            start = parts(load(starts[stage]), part)[name]
            torch.testing.assert_close(tensor, start, atol=1e-6, rtol=1e-6)
            torch.testing.assert_close(both.tensors[name], tensor, atol=1e-3, rtol=1e-3)
        assert made[stage].record["trained"] == [part]
        assert made[stage].record["training"]["stage"] == stage
    assert (both.settings.memory_bits, both.settings.encoder.summary) == (20, 48)
    assert both.record["trained"] == ["denoiser", "encoder"]
    both.build()
    data, of_encoder = both.record["data"], both.record["encoder"]["data"]
    assert (data["more"]["molecules"], data["structures"]["molecules"]) == (2, 12)
    assert len(data["structures"]["sha256"]) == 64
    assert (of_encoder["spectra"]["kind"], of_encoder["spectra"]["holdout_removed"]) == (
        "spectra",
        0,
    )
    assert of_encoder["spectra"]["source"]["file"] == "spectra.tsv"
    assert of_encoder["simulated"]["spectra"] == 12
    assert of_encoder["simulated"]["source"]["model"] == {"made": True}


# Recorded: the same seed draws the same molecules, spectra and noise in every version, so that the
# shipped weights can be made again.
RUNS = [
    ("decoder", (), (0.877092, 0.936845, 0.910780)),
    ("encoder", (), (3.292881, 4.828687, 3.029518)),
    ("encoder", ("model.encoder.dropout=0.3",), None),
]


@pytest.mark.parametrize(("stage", "overrides", "losses"), RUNS)
def test_every_stage_has_the_losses_of_its_seed_and_resumes_exactly(
    tmp_path, spectra, simulated, stage, overrides, losses
):
    request = {"simulated": simulated} if stage == "encoder" else {}
    trained(spectra, tmp_path / "whole", stage, *overrides, **request)

    if stage == "encoder":
        for name in ("fp_bce", "fp_soft", "fp_tanimoto", "fp_threshold"):
            assert list(figures(tmp_path / "whole", name)) == [3]
    if losses:
        assert tuple(figures(tmp_path / "whole", "loss").values()) == pytest.approx(losses, 1e-4)
    interrupted(spectra, tmp_path / "parts", stage, *overrides, **request)
    trained(spectra, tmp_path / "parts", stage, *overrides, **request)

    assert same(state(tmp_path / "parts"), state(tmp_path / "whole"))


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_layers_are_compiled_where_that_is_asked_for(
    tmp_path, structures, monkeypatch, is_asked_for
):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda layer, backend: compiled.append(layer))
    runtime = replace(cpu(), compile=is_asked_for)

    started(said_of("decoder", steps=1), structures, tmp_path, runtime)

    assert len(compiled) == is_asked_for * 2  # one layer of the denoiser, one of the encoder


@pytest.mark.slow
def test_two_spectra_are_overfitted_and_then_predicted_exactly(tmp_path):
    """Training, weights file, encoder, sampler, assembly and ranking at once."""
    data = spectra_folder(tmp_path / "spectra", *ISOMERS)
    for stage, asked in {"encoder": {"peak_dropout": 0.0}, "decoder": {"clean_share": 1.0}}.items():
        training = {"stage": stage, "steps": 350, "data": asked}
        started(merge(TINY, {"training": training}), data, tmp_path / stage)
    trained = (tmp_path / stage / "model.safetensors" for stage in PARTS)
    save(tmp_path / "both.safetensors", both_parts(*trained))

    model = load_model(tmp_path / "both.safetensors", cpu())
    path = mgf(
        tmp_path / "in.mgf",
        *(block(("C3H7NO2", fragments)) for _, _, fragments, _, _ in ISOMERS),
    )
    sampling = SamplingSettings(steps=10, samples=20)
    found = predict_spectra(model, path, replace(PredictSettings(), sampling=sampling))

    best = [prediction.candidates[0] for prediction in found]
    assert [candidate.smiles for candidate in best] == [ALANINE, SARCOSINE]
