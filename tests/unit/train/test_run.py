"""Whole runs as `duallgd train` starts them, and predictions with what they made."""

from dataclasses import replace

import pytest
import torch

from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.config import SamplingSettings, assigned, merge, parse
from duallgd_cli.errors import InterruptedRunError, WeightsError
from duallgd_cli.predict.model import load_model
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.train.run import PARTS, both_parts, run_training
from duallgd_cli.train.settings import RunSettings
from duallgd_cli.train.trainer import MODEL
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
STAY = "training.optimiser.learning_rate=1e-30"
# Two isomers, told apart by their fragments alone.
ISOMERS = {"CC(N)C(=O)O": "C2H6N C2H4N", "CNCC(=O)O": "C2H6N CH4N C3H6NO"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Prepared structures, spectra, and simulated spectra."""
    made = tmp_path_factory.mktemp("made")
    structures_folder(made / "structures")
    spectra_folder(made / "spectra")
    simulated_folder(made / "simulated")
    return made


def started(said, data, out, runtime=None, **given):
    run = parse(RunSettings, said)
    return run_training(run, data, out, runtime or cpu(), sizes=said["model"], **given)


def trained(data, out, stage, *overrides, steps=3, **given):
    chosen = [f"training.stage={stage}", f"training.steps={steps}", *SMALL, *overrides]
    return started(merge(TINY, assigned(chosen)), data, out, **given)


def parts(checkpoint, part):
    return {n: t for n, t in checkpoint.tensors.items() if n.startswith(f"{part}.")}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("stage", PARTS)
def test_a_stage_trains_its_part_and_leaves_the_other(tmp_path, data, stage):
    fresh = trained(data / "spectra", tmp_path / "other", stage, STAY)
    made = trained(data / "spectra", tmp_path / "run", stage)

    for part in PARTS.values():
        assert same(parts(made, part), parts(fresh, part)) == (part != PARTS[stage])
        moved = [name for name in state(tmp_path / "run") if name.startswith(f"exp_avg/{part}")]
        assert bool(moved) == (part == PARTS[stage])


def test_training_goes_on_from_weights_and_the_record_says_what_it_is_made_of(tmp_path, data):
    starts = {stage: tmp_path / stage / MODEL for stage in PARTS}
    trained(data / "structures", tmp_path / "decoder", "decoder", "model.memory_bits=20")
    trained(data / "spectra", tmp_path / "encoder", "encoder", "model.encoder.summary=48")
    more = structures_folder(tmp_path / "more", "CCO", "CCN")
    given = {
        "decoder": (data / "structures", {"structures": (more,)}),
        "encoder": (data / "spectra", {"simulated": data / "simulated"}),
    }
    made = {
        stage: trained(folder, tmp_path / "on" / stage, stage, STAY, start=starts[stage], **others)
        for stage, (folder, others) in given.items()
    }
    both = both_parts(*(tmp_path / "on" / stage / MODEL for stage in PARTS))

    for stage, part in PARTS.items():
        for name, tensor in parts(made[stage], part).items():
            start = load(starts[stage]).tensors[name]
            torch.testing.assert_close(tensor, start, atol=1e-6, rtol=1e-6)
            torch.testing.assert_close(both.tensors[name], tensor, atol=1e-3, rtol=1e-3)
        record = made[stage].record
        assert (record["trained"], record["training"]["stage"]) == ([part], stage)
    assert (both.settings.memory_bits, both.settings.encoder.summary) == (20, 48)
    assert both.record["trained"] == ["denoiser", "encoder"]
    both.build()
    of_decoder, of_encoder = both.record["data"], both.record["encoder"]["data"]
    assert {name: about["molecules"] for name, about in of_decoder.items()} == {
        "more": 2, "structures": 12,
    }  # fmt: skip
    assert len(of_decoder["structures"]["sha256"]) == 64
    measured, simulated = of_encoder["spectra"], of_encoder["simulated"]
    assert (measured["kind"], measured["holdout_removed"]) == ("spectra", 0)
    assert measured["source"]["file"] == "spectra.tsv"
    assert (simulated["spectra"], simulated["source"]["model"]) == (12, {"made": True})
    with pytest.raises(WeightsError, match=r"the encoder of .* is not the one asked for: .*leave"):
        trained(
            data / "spectra", tmp_path / "other", "encoder", "model.encoder.width=16",
            start=starts["encoder"],
        )  # fmt: skip


# Recorded: the same seed draws the same molecules, spectra and noise in every version, so that the
# shipped weights can be made again.
@pytest.mark.parametrize(
    ("stage", "overrides", "losses"),
    [
        ("decoder", (), (0.877092, 0.936845, 0.910780)),
        ("encoder", (), (3.292881, 4.828687, 3.029518)),
        ("encoder", ("model.encoder.dropout=0.3",), None),
    ],
)
def test_every_stage_has_the_losses_of_its_seed_and_resumes_exactly(
    tmp_path, data, stage, overrides, losses
):
    whole, resumed = tmp_path / "whole", tmp_path / "parts"
    given = {"simulated": data / "simulated"} if stage == "encoder" else {}

    def stop(step, figures):
        raise KeyboardInterrupt

    def run(out, **more):
        trained(data / "spectra", out, stage, *overrides, **given, **more)

    run(whole)
    with pytest.raises(InterruptedRunError, match="stopped at step 1 of 3"):
        run(resumed, on_step=stop)
    run(resumed)

    assert same(state(resumed), state(whole))
    if losses:
        assert tuple(figures(whole, "loss").values()) == pytest.approx(losses, 1e-4)
    if stage == "encoder":
        for name in ("fp_bce", "fp_soft", "fp_tanimoto", "fp_threshold"):
            assert list(figures(whole, name)) == [3]


@pytest.mark.parametrize("stage", PARTS)
def test_without_a_step_the_weights_are_kept_and_no_data_are_looked_at(tmp_path, data, stage):
    folder = data / ("spectra" if stage == "encoder" else "structures")
    start = trained(folder, tmp_path / "start", stage)

    kept = trained(folder, tmp_path, stage, steps=0, start=tmp_path / "start" / MODEL)

    for name, tensor in parts(load(tmp_path / MODEL), PARTS[stage]).items():
        torch.testing.assert_close(tensor, start.tensors[name], atol=1e-3, rtol=1e-3)
    assert (kept.record["step"], (tmp_path / "metrics.jsonl").exists()) == (0, False)


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_layers_are_compiled_where_that_is_asked_for(tmp_path, data, monkeypatch, is_asked_for):
    compiled, runtime = [], replace(cpu(), compile=is_asked_for)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda layer, backend: compiled.append(layer))

    trained(data / "structures", tmp_path, "decoder", steps=1, runtime=runtime)

    assert len(compiled) == is_asked_for * 2  # one layer of the denoiser, one of the encoder


@pytest.mark.slow
def test_two_spectra_are_overfitted_and_then_predicted_exactly(tmp_path):
    """Training, weights file, encoder, sampler, assembly and ranking at once."""
    rows = ((smiles, "[M+H]+", peaks, "20", "train") for smiles, peaks in ISOMERS.items())
    data = spectra_folder(tmp_path / "spectra", *rows)
    for stage, asked in {"encoder": {"peak_dropout": 0.0}, "decoder": {"clean_share": 1.0}}.items():
        training = {"stage": stage, "steps": 350, "data": asked}
        started(merge(TINY, {"training": training}), data, tmp_path / stage)
    save(tmp_path / "both", both_parts(*(tmp_path / stage / MODEL for stage in PARTS)))

    path = mgf(tmp_path / "in.mgf", *(block(("C3H7NO2", peaks)) for peaks in ISOMERS.values()))
    settings = PredictSettings(sampling=SamplingSettings(steps=10, samples=20))
    found = load_model(tmp_path / "both", cpu()).predict(path, settings)

    assert [prediction.candidates[0].smiles for prediction in found] == list(ISOMERS)
