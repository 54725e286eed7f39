"""Arms of a study: equal budgets, resumable, honest ones blind to the order of the atoms."""

import json
from dataclasses import replace

import pytest
import torch

from duallgd_cli.bench import arms
from duallgd_cli.bench.ablations import BY_NAME, AblationRequest, rows_of, run_ablations
from duallgd_cli.bench.arms import Budget
from duallgd_cli.bench.leak import LeakRequest, run_leak
from duallgd_cli.checkpoint.format import load
from duallgd_cli.chem.elements import BOND_AROMATIC
from duallgd_cli.config import SamplingSettings
from duallgd_cli.data.prepare_kekule_forms import prepare_kekule_forms
from duallgd_cli.data.prepare_orders import OrderSelection, prepare_orders
from duallgd_cli.errors import InterruptedRunError, UsageError
from duallgd_cli.model.ablations import SingleStreamLayer
from duallgd_cli.train.presets import run_settings
from tests.made_prepared import structures_folder
from tests.made_training import cpu

MADE = (
    "CC(=O)Oc1ccccc1", "NCC(=O)NCC", "OC1CCCCC1CN", "CC(C)CC(N)C(=O)O", "CCOC(=O)CC#N",
    "CCOCCCC", "CCCCCCN", "OCCCCCO",
)  # fmt: skip
TINY = (
    "model.denoiser.layers=1", "model.denoiser.atom_width=16", "model.denoiser.pair_width=16",
    "model.denoiser.global_width=16", "model.denoiser.cross_width=16",
    "training.data.pairs_per_batch=100",
)  # fmt: skip
STEPS = Budget(steps=3)
SAMPLING = SamplingSettings(samples=2, steps=2)


@pytest.fixture
def ablations(tmp_path):
    fold = [0] * 6 + [3] * 2
    data = structures_folder(tmp_path / "structures", *MADE, fold=fold)
    settings = run_settings("study", list(TINY))
    names = ("full", "single-stream")
    return AblationRequest(data, tmp_path / "out", STEPS, settings, names, SAMPLING)


@pytest.fixture
def leak(tmp_path):
    source = structures_folder(tmp_path / "structures", *MADE)
    prepare_orders(source, tmp_path / "data", OrderSelection(held_out=2))
    settings = run_settings("leak", list(TINY))
    return LeakRequest(tmp_path / "data", tmp_path / "out", STEPS, settings, sampling=SAMPLING)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m", 300), ("90s", 90), ("0.5h", 1800), (" 2 m ", 120)]
)
def test_a_budget_is_a_number_and_a_unit(text, seconds):
    assert Budget.parse(text, None) == Budget(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "steps"), [("5", None), ("m", None), ("0m", None), (None, None), ("5m", 3)]
)
def test_anything_else_is_no_budget(text, steps):
    with pytest.raises(UsageError, match="budget"):
        Budget.parse(text, steps)


def test_a_budget_buys_as_many_steps_as_fit(ablations, monkeypatch):
    monkeypatch.setattr(arms, "_seconds_per_step", lambda arm, runtime: 0.5)
    request = replace(ablations, budget=Budget(seconds=2.0), variants=("full",))

    (row,) = run_ablations(request, cpu())

    assert row.result["steps"] == 4
    assert load(ablations.output / "full" / "model.safetensors").record["step"] == 4


def test_the_cost_of_a_step_is_measured_on_a_run_that_leaves_nothing(ablations, tmp_path):
    arm = ablations.arm(BY_NAME["full"])

    cost = arms._seconds_per_step(arm, cpu())

    assert 0 < cost < 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["structures"]


def test_every_variant_becomes_a_checkpoint_that_knows_what_it_is(ablations):
    rows = run_ablations(ablations, cpu())

    single = load(ablations.output / "single-stream" / "model.safetensors")
    assert single.settings.variant == "single-stream"
    assert isinstance(single.build().denoiser.layers[0], SingleStreamLayer)
    assert [row.result["steps"] for row in rows] == [3, 3]
    assert (
        rows[0].result["orders"]["formula"]["molecules"]
        == (rows[1].result["orders"]["formula"]["molecules"])
    )
    assert not (ablations.output / "full" / "state.safetensors").exists()


def test_a_finished_variant_is_not_trained_again(ablations, monkeypatch):
    first = run_ablations(ablations, cpu())
    monkeypatch.setattr(arms, "run_training", None)

    again = run_ablations(ablations, cpu())

    assert [row.estimates for row in again] == [row.estimates for row in first]


def test_an_interrupted_variant_goes_on_with_the_steps_it_was_given(ablations, monkeypatch):
    request = replace(ablations, budget=Budget(seconds=2.0), variants=("full",))
    monkeypatch.setattr(arms, "_seconds_per_step", lambda arm, runtime: 0.5)
    real = arms.run_training

    def interrupted(asked, runtime, on_step):
        real(replace(asked, stop_after=2), runtime, on_step)
        raise InterruptedRunError("stopped")

    monkeypatch.setattr(arms, "run_training", interrupted)
    with pytest.raises(InterruptedRunError):
        run_ablations(request, cpu())
    monkeypatch.setattr(arms, "run_training", real)
    monkeypatch.setattr(arms, "_seconds_per_step", lambda arm, runtime: 0.1)

    (row,) = run_ablations(request, cpu())

    assert row.result["steps"] == 4


def test_a_folder_of_another_study_is_refused(ablations):
    run_ablations(replace(ablations, variants=("full",)), cpu())

    with pytest.raises(UsageError, match="another study"):
        run_ablations(replace(ablations, budget=Budget(steps=4)), cpu())


def test_an_unknown_variant_is_refused_with_those_there_are(ablations):
    with pytest.raises(UsageError, match="no variant huge; variants are full, single-stream"):
        replace(ablations, variants=("full", "huge"))


def test_every_variant_can_be_configured(ablations):
    prepare_kekule_forms(ablations.data, ablations.kekule_folder, max_atoms=30)

    requests = [ablations.arm(variant) for variant in BY_NAME.values()]

    assert len({json.dumps(str(request.settings)) for request in requests}) == len(BY_NAME)


def test_a_variant_without_aromatic_bonds_is_judged_by_the_same_molecules(ablations):
    prepare_kekule_forms(ablations.data, ablations.kekule_folder, max_atoms=30)

    full, kekule = run_ablations(replace(ablations, variants=("full", "kekule")), cpu())

    assert blocks_of(kekule) == blocks_of(full)
    assert kekule.minus_full.keys() == full.estimates.keys()
    trained = load(ablations.output / "kekule" / "model.safetensors")
    assert trained.settings.diffusion.marginal[BOND_AROMATIC] < 1e-5


def test_a_difference_is_over_the_molecules_that_both_were_judged_by(ablations):
    prepare_kekule_forms(ablations.data, ablations.kekule_folder, max_atoms=30)
    rows = run_ablations(replace(ablations, variants=("full", "kekule")), cpu())
    results = {row.variant.name: json.loads(json.dumps(row.result)) for row in rows}
    judged = results["kekule"]["orders"]["formula"]
    judged["molecules"] = judged["molecules"][1:]
    judged["finished"] = {name: values[1:] for name, values in judged["finished"].items()}

    _, kekule = rows_of(results)

    alone = results["full"]["orders"]["formula"]["finished"]
    for name, difference in kekule.minus_full.items():
        expected = kekule.estimates[name].mean - alone[name][1]
        assert difference.mean == pytest.approx(expected)


def blocks_of(row):
    return row.result["orders"]["formula"]["molecules"]


def test_checkpoints_take_an_encoder_along_so_that_they_predict_from_spectra(ablations):
    (first,) = run_ablations(replace(ablations, variants=("full",)), cpu())
    weights = ablations.output / "full" / "model.safetensors"
    request = replace(
        ablations, output=ablations.output / "more", variants=("softmax",), encoder=weights
    )

    run_ablations(request, cpu())

    ours, theirs = (
        load(folder / "model.safetensors").tensors
        for folder in (ablations.output / "full", request.output / "softmax")
    )
    names = [name for name in ours if name.startswith("encoder.")]
    assert first.result["arm"] == "full"
    assert names
    assert all(torch.equal(ours[name], theirs[name]) for name in names)


def test_an_honest_network_is_judged_the_same_in_every_order_a_reading_one_is_not(leak):
    readings = run_leak(leak, cpu())

    by_arm = {}
    for one in readings:
        by_arm.setdefault(one.setting.name, []).append(one.noise_levels)
    assert list(by_arm) == ["published", "published-blind", "sorted", "duallgd"]
    for name, levels in by_arm.items():
        honest = name in ("sorted", "duallgd")
        assert (levels[0] == levels[1] == levels[2]) is honest


def test_weights_trained_in_the_true_order_say_so(leak):
    run_leak(replace(leak, arms=("published", "sorted")), cpu())

    records = {
        name: load(leak.output / name / "model.safetensors").record["atom_order"]
        for name in ("published", "sorted")
    }
    assert records == {"published": "truth", "sorted": "formula"}


def test_an_unknown_arm_is_refused(leak):
    with pytest.raises(UsageError, match="no arm mine"):
        replace(leak, arms=("mine",))
