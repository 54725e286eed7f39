"""Arms of a study: equal budgets, resumable, honest ones blind to the order of the atoms."""

import json
from dataclasses import replace

import ablations
import arms
import leak
import pytest
from arms import Budget, Study
from atom_orders import OrderSelection, prepare_orders
from networks import SingleStreamLayer, build

from duallgd_cli.checkpoint.format import load
from duallgd_cli.chem.elements import BOND_AROMATIC
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import InterruptedRunError, UsageError, WeightsError
from duallgd_cli.generator.network import parts_of
from duallgd_cli.train.settings import run_settings
from tests.made_prepared import structures_folder
from tests.made_runs import rows_of
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
OPTIONS = (
    "--steps", "2", "--device", "cpu", "--threads", "1", "--samples", "2", "--molecules", "2",
    "--set", "model.denoiser.layers=1", "--set", "training.data.pairs_per_batch=100",
)  # fmt: skip
SAMPLING = SamplingSettings(samples=2, steps=2)


def study_of(out, script):
    settings = run_settings(str(script.SETTINGS), list(TINY))
    return Study(out, Budget(steps=3), settings, SAMPLING, 300, cpu())


@pytest.fixture
def data(tmp_path):
    return structures_folder(tmp_path / "structures", *MADE, fold=[0] * 6 + [3] * 2)


@pytest.fixture
def tiny(tmp_path):
    return study_of(tmp_path / "out", ablations)


def model_of(study, name):
    return load(study.output / name / arms.MODEL)


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


@pytest.mark.slow
def test_every_variant_becomes_a_checkpoint_that_its_study_alone_runs(tiny, data):
    results = ablations.trained(tiny, data, ("full", "single-stream"))

    single = model_of(tiny, "single-stream")
    assert isinstance(single.build(build).denoiser.layers[0], SingleStreamLayer)
    path = tiny.output / "single-stream" / arms.MODEL
    with pytest.raises(WeightsError, match=r"'single-stream' .* examples/studies/ablations\.py"):
        parts_of(single, path)  # as predict and the Python interface take it
    assert model_of(tiny, "full").build()
    assert [one["steps"] for one in results.values()] == [3, 3]
    assert len({tuple(ablations.blocks_of(one)) for one in results.values()}) == 1
    assert not (tiny.output / "full" / "state.pt").exists()


@pytest.mark.slow
def test_an_interrupted_arm_goes_on_with_the_steps_its_budget_bought(tiny, data, monkeypatch):
    study = replace(tiny, budget=Budget(seconds=2.0))
    monkeypatch.setattr(arms, "seconds_per_step", lambda arm, runtime: 0.5)
    real = arms.run_training

    def interrupted(asked, runtime, on_step):
        real(replace(asked, stop_after=2), runtime, on_step)
        raise InterruptedRunError("stopped")

    monkeypatch.setattr(arms, "run_training", interrupted)
    with pytest.raises(InterruptedRunError):
        ablations.trained(study, data, ("full",))
    monkeypatch.setattr(arms, "run_training", real)
    monkeypatch.setattr(arms, "seconds_per_step", lambda arm, runtime: 0.1)

    first = ablations.trained(study, data, ("full",))

    assert first["full"]["steps"] == model_of(study, "full").record["step"] == 4
    monkeypatch.setattr(arms, "run_training", None)  # what is finished is not trained again
    assert ablations.trained(study, data, ("full",)) == first
    with pytest.raises(UsageError, match="another study"):
        ablations.trained(replace(study, budget=Budget(steps=5)), data, ("full",))


@pytest.mark.slow
def test_kekule_forms_are_judged_by_the_molecules_that_have_one(tiny, data):
    results = ablations.trained(tiny, data, ("full", "kekule"))

    assert ablations.blocks_of(results["kekule"]) == ablations.blocks_of(results["full"])
    assert model_of(tiny, "kekule").settings.diffusion.marginal[BOND_AROMATIC] < 1e-5
    fewer = json.loads(json.dumps(results))
    judged = fewer["kekule"]["orders"]["formula"]
    judged["molecules"] = judged["molecules"][1:]
    judged["finished"] = {name: values[1:] for name, values in judged["finished"].items()}
    alone = results["full"]["orders"]["formula"]["finished"]
    for name, difference in ablations.minus_full(fewer, "kekule").items():
        assert difference.mean == pytest.approx(judged["finished"][name][0] - alone[name][1])


@pytest.mark.slow
def test_an_honest_network_is_judged_the_same_in_every_order_a_reading_one_is_not(tmp_path):
    source = structures_folder(tmp_path / "structures", *MADE)
    prepare_orders(source, tmp_path / "data", OrderSelection(held_out=2))
    study = study_of(tmp_path / "out", leak)

    results = leak.trained(study, tmp_path / "data", tuple(leak.SETTINGS_OF))

    for name, result in results.items():
        levels = [result["orders"][order]["noise_levels"] for order in leak.ORDERS]
        assert (levels[0] == levels[1] == levels[2]) is (name in ("sorted", "duallgd"))
    orders = {name: model_of(study, name).record["atom_order"] for name in results}
    assert orders == dict.fromkeys(results, "formula") | {
        "published": "truth",
        "published-blind": "truth",
    }


@pytest.mark.slow
def test_ablations_print_the_papers_figures_beside_ours(study, data, tmp_path):
    done = study(
        ablations.ablations, "--data", data, "-o", "out", *OPTIONS,
        "--variants", "full,no-positions",
    )  # fmt: skip

    assert done.code == 0, done.err
    assert "25.53" in done.out
    rows = rows_of(tmp_path / "out" / "ablations.csv")
    assert [row["variant"] for row in rows] == ["full network", "no positions"]
    assert [row["paper top-1 / %"] for row in rows] == ["25.53", ""]
    assert rows[0]["less full network"] == "0.000 (0.000 to 0.000)"
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    assert record["budget"] == "2 steps"
    assert record["rows"][1]["changes"] == ["model.variant=no-positions"]
    assert "tab:ablation_crossattn" in (tmp_path / "out" / "ablations.md").read_text()


@pytest.mark.slow
def test_the_leak_study_makes_its_own_data_and_goes_on_where_it_was(study, data, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the evaluate extra")
    options = ("--data", data, "-o", "out", *OPTIONS)

    first = study(leak.leak, *options, "--arms", "published")
    both = study(leak.leak, *options, "--arms", "published,duallgd")

    assert first.code == both.code == 0, first.err + both.err
    assert "as published: true order" in first.err
    assert "as published" not in both.err
    rows = rows_of(tmp_path / "out" / "leak.csv")
    assert [row["atoms given in"] for row in rows] == ["true", "random", "formula", "any order"]
    assert (tmp_path / "out" / "leak.svg").stat().st_size < 60_000
    others = structures_folder(tmp_path / "others", *MADE[1:], "CCOCCN", fold=[0] * 6 + [3] * 2)
    other = study(leak.leak, "--data", others, "-o", "out", *OPTIONS, "--arms", "duallgd")
    assert other.code == 2
    assert "out/data was made from other data or for other molecules" in other.err


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        (ablations.ablations, (), "give either --budget, such as 5m, or --steps"),
        (ablations.ablations, ("--steps", "2", "--variants", "mine"), "no variant mine; there are"),
        (leak.leak, ("--steps", "2", "--arms", "mine"), "no arm mine; there are published"),
    ],
)
def test_a_wrong_option_is_one_sentence(study, data, script, options, message):
    done = study(script, "--data", data, "-o", "out", *options)

    assert done.code == 2
    assert message in done.err
