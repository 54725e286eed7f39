"""Networks without one of their parts, trained in arms of equal budgets."""

import json
from dataclasses import replace

import ablations
import arms
import leak
import pytest
import torch
from arms import Budget, Study
from atom_orders import OrderSelection, prepare_orders
from networks import VARIANTS, SingleStreamLayer, build
from torch.nn.functional import cross_entropy

from duallgd_cli.checkpoint.format import load
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import InterruptedRunError, UsageError, WeightsError
from duallgd_cli.model.layers import Masks, PairAttention
from duallgd_cli.model.line_graph import AtomsFromPairs, PairsFromAtoms, line_graph
from duallgd_cli.predict.loading import parts_of
from duallgd_cli.train.settings import run_settings
from tests.made_graphs import condition, noisy_bonds, pad_bonds, real_pairs, small_settings
from tests.made_graphs import rows_of as rows_of_condition
from tests.made_prepared import structures_folder
from tests.made_runs import rows_of
from tests.made_training import cpu

OURS = [name for name in VARIANTS if name != "published"]
SMALL, LARGE = "C4H7NO2S", "C6H12O6"  # 8 and 12 heavy atoms


def stirred(variant, **sizes):
    """A network none of whose parameters is zero."""
    torch.manual_seed(1)
    model = build(replace(small_settings(**({"layers": 3} | sizes)), variant=variant))
    with torch.no_grad():
        for parameter in model.denoiser.parameters():
            parameter += 0.3 * torch.randn_like(parameter) / max(1, parameter.shape[-1]) ** 0.5
    return model.eval()


def logits(model, bonds, t, known):
    denoiser = model.denoiser
    return denoiser(bonds, torch.full((len(bonds),), t), denoiser.context(known))


def layer_and_states(variant):
    """The first layer of a network, and made states of six atoms without padding."""
    layer = stirred(variant).denoiser.layers[0]
    graph = line_graph(6, torch.device("cpu"))
    generator = torch.Generator().manual_seed(3)
    atoms = torch.randn(1, 6, 24, generator=generator)
    pairs = torch.randn(1, 15, 16, generator=generator)
    return layer, atoms, pairs, Masks.of(torch.ones(1, 6, dtype=torch.bool), graph), graph


@pytest.mark.parametrize("variant", OURS)
def test_gradients_reach_every_parameter(variant):
    model = stirred(variant)
    known = condition((LARGE, "C9H8O4"))
    size = known.atom_class.shape[1]
    clean = torch.stack([noisy_bonds(12, size, 1), noisy_bonds(size, size, 2)])

    for t in (200, 450):
        loss = cross_entropy(logits(model, clean, t, known).flatten(0, 1), clean.flatten())
        loss.backward()

    dead = [
        name
        for name, parameter in model.denoiser.named_parameters()
        if parameter.grad is None or not parameter.grad.abs().sum() > 0
    ]
    assert not dead


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_graph_gets_the_same_logits_beside_a_larger_one(variant):
    model = stirred(variant)
    both = condition((SMALL, LARGE))
    alone = replace(
        rows_of_condition(both, [0]),
        atom_class=both.atom_class[:1, :8],
        atom_mask=both.atom_mask[:1, :8],
    )
    bonds = noisy_bonds(8)

    got = logits(model, torch.stack([pad_bonds(bonds, 8, 12), noisy_bonds(12)]), 300, both)[0]

    torch.testing.assert_close(
        real_pairs(got, 8, 12), logits(model, bonds[None], 300, alone)[0], atol=1e-4, rtol=1e-4
    )


def test_the_single_stream_has_no_line_graph_an_edge_learns_of_its_two_atoms_alone():
    layer, atoms, pairs, _, graph = layer_and_states("single-stream")
    dual = (PairAttention, AtomsFromPairs, PairsFromAtoms)
    assert not any(isinstance(part, dual) for part in layer.modules())
    moved = atoms.clone()
    moved[0, 0] += 1.0

    before, after = (layer.edges(x, pairs, graph)[0] for x in (atoms, moved))

    touched = (graph.first == 0) | (graph.second == 0)
    assert torch.equal(before[~touched], after[~touched])
    assert (before[touched] != after[touched]).any(1).all()


@pytest.mark.parametrize(
    ("variant", "atoms_listen", "pairs_listen"),
    [
        ("full", True, True),
        ("no-cross-attention", False, False),
        ("atoms-to-bonds", False, True),
        ("bonds-to-atoms", True, False),
        ("no-incidence-mask", True, True),
    ],
)
def test_streams_are_told_what_the_variant_lets_them_be_told(variant, atoms_listen, pairs_listen):
    layer, atoms, pairs, masks, graph = layer_and_states(variant)

    new_atoms, new_pairs = layer.synchronise(atoms, pairs, masks, graph)

    assert torch.equal(new_atoms, atoms) is not atoms_listen
    assert torch.equal(new_pairs, pairs) is not pairs_listen


@pytest.mark.parametrize(("variant", "mixes"), [("full", False), ("no-incidence-mask", True)])
def test_atoms_and_pairs_hear_of_what_is_not_their_own_only_without_the_mask(variant, mixes):
    layer, atoms, pairs, masks, graph = layer_and_states(variant)
    far = ((graph.first == 3) & (graph.second == 4)).nonzero().item()
    other_atoms, other_pairs = atoms.clone(), pairs.clone()
    other_atoms[0, 5] *= -1
    other_pairs[0, far] *= -1

    before = layer.synchronise(atoms, pairs, masks, graph)
    new_atoms, _ = layer.synchronise(atoms, other_pairs, masks, graph)
    _, new_pairs = layer.synchronise(other_atoms, pairs, masks, graph)

    assert torch.equal(new_atoms[0, 0], before[0][0, 0]) is not mixes
    assert torch.equal(new_pairs[0, 0], before[1][0, 0]) is not mixes


@pytest.mark.parametrize(("variant", "blind"), [("no-positions", True), ("full", False)])
def test_only_without_positions_like_atoms_may_change_places(variant, blind):
    model, known, bonds = stirred(variant), condition((LARGE,)), noisy_bonds(12)
    order = torch.tensor([1, 0, *range(2, 12)])  # both are carbon
    place = torch.zeros(12, 12, dtype=torch.long)
    low, high = torch.triu_indices(12, 12, 1)
    place[low, high] = place[high, low] = torch.arange(66)
    moved = place[order[low], order[high]]

    before = logits(model, bonds[None], 450, known)[0]
    after = logits(model, bonds[moved][None], 450, known)[0]

    assert torch.allclose(before[moved], after, atol=1e-4) is blind


def test_the_published_network_folds_the_fingerprint_as_a_shorter_one_is_made():
    model, known = stirred("published"), condition((LARGE,))
    bit = torch.tensor([[5, 5 + 2048, 4095]])
    known = replace(known, bit=bit, bit_log_prob=torch.tensor([[0.5, 1.0, 0.25]]).log())

    fingerprint = model.denoiser.context(known).fingerprint

    assert fingerprint.shape == (1, 2048)
    assert fingerprint.nonzero()[:, 1].tolist() == [5, 2047]
    torch.testing.assert_close(fingerprint[0, [5, 2047]], torch.tensor([1.0, 0.25]))


def test_a_network_that_there_is_not_is_refused():
    with pytest.raises(UsageError, match="no network 'huge'; there are full, single-stream"):
        build(replace(small_settings(), variant="huge"))


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
    judged = [one["orders"]["formula"]["molecules"] for one in results.values()]
    assert judged[0] == judged[1]
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
