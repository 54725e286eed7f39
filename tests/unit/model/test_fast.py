"""The network as devices evaluate it: rewritten, captured, and without waiting."""

from contextlib import contextmanager, nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler, SamplingTask, alpha_bar, sample
from duallgd_cli.model import captured
from duallgd_cli.model.captured import CapturedDenoiser
from duallgd_cli.model.layers import line_graph
from duallgd_cli.model.rewritten import Rewritten, for_inference, rewritten_for
from duallgd_cli.model.tensors import constants, map_tensors, same_head
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.decoder import DecoderStage
from duallgd_cli.train.encoder import EncoderStage
from duallgd_cli.train.optimisers import optimisers, update_average
from duallgd_cli.train.settings import OptimiserSettings, TrainingData, TrainingSettings
from tests.made_graphs import condition, made_molecules, noisy_bonds, small_settings, stirred
from tests.made_prepared import made_spectra
from tests.made_training import cpu, small_model

SIZES = {
    "layers": (1, 2, 3), "atom_width": (8, 24, 64), "pair_width": (8, 16, 64),
    "cross_width": (8, 32), "pair_heads": (1, 4), "cross_heads": (1, 2, 8), "atom_heads": (1, 4),
    "pair_features": (3, 16), "pair_feed": (1, 2, 3),
}  # fmt: skip
FORMULAS = ("CO", "C2H6O", "C4H7NO2S", "C12H10", "C9H8O4", "C17H19NO3")


@torch.inference_mode()
def both(model, known, samples, t, seed, dtype=torch.float32):
    """Noisy graphs, and logits of the modules in float32 and of the rewritten network."""
    n = known.atom_class.shape[1]
    generator = torch.Generator().manual_seed(seed)
    bonds = torch.randint(0, 5, (samples, n * (n - 1) // 2), generator=generator)
    context = model.denoiser.context(known)
    expected = model.denoiser(bonds, torch.full((samples,), t), context.expand(samples))
    return bonds, expected, Rewritten(model.denoiser, dtype).bound(context, samples)(bonds, t)


@settings(deadline=None, max_examples=25)
@given(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in SIZES.items()}),
    st.sampled_from(FORMULAS),
    st.integers(1, 4),
    st.integers(0, 500),
    st.integers(1, 99),
    st.booleans(),
)
def test_logits_are_those_of_the_modules(sizes, formula, samples, t, seed, leaves_bits_out):
    model = stirred(small_settings(**sizes), seed=seed, share=0.5)
    known = condition([formula], seed=seed)
    if leaves_bits_out:
        known.bit_log_prob[:, 5:] = -torch.inf

    _, expected, got = both(model, known, samples, t, seed)

    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_bfloat16_is_as_near_to_float32_as_the_modules_are():
    """Mean squares over several networks: of one alone either may be the luckier."""
    errors, low = torch.zeros(2), Runtime(torch.device("cpu"), torch.bfloat16, False, 1)
    for seed in range(1, 5):
        settings = small_settings(layers=2, pair_width=32, atom_width=32, cross_width=32)
        model, known = stirred(settings, seed=seed), condition(["C9H8O4"], seed=seed)
        bonds, expected, got = both(model, known, 3, 250, seed, torch.bfloat16)
        cast = for_inference(model, low).denoiser
        with torch.inference_mode(), low.autocast():
            modules = cast(bonds, torch.full((3,), 250), cast.context(known).expand(3))
        errors += torch.stack([(x - expected).square().mean() for x in (modules, got)])

    assert errors[1] < 1.25 * errors[0]


def test_a_sampler_draws_the_same_graphs_with_either():
    model, settings = stirred(small_settings()), SamplingSettings(steps=4, samples=6)
    with torch.inference_mode():
        context = model.denoiser.context(condition(["C9H8O4"]))
    (bonds, log_prob), again = (
        sampler.draw(context, [sampler.task(settings, 1, 6, 78)], settings)[0][::2]
        for sampler in (Sampler(model, cpu(), part) for part in (None, rewritten_for(model, cpu())))
    )

    assert torch.equal(bonds, again[0])
    torch.testing.assert_close(log_prob, again[1], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("device", "features"), [("meta", 8), ("cpu", 0)])
def test_where_it_was_not_rewritten_for_the_modules_run(device, features):
    model = stirred(small_settings(pair_features=features))

    assert rewritten_for(model, Runtime(torch.device(device), None, False, 1)) is None


SAMPLES = 3


def plain(model, known, bonds, t):
    context = model.denoiser.context(known).expand(len(bonds))
    return model.denoiser(bonds, torch.full((len(bonds),), t), context)


def bonds_of(seed):
    return torch.stack([noisy_bonds(13, seed=seed + k) for k in range(SAMPLES)])


@torch.inference_mode()
def test_spectra_of_one_shape_take_turns_and_none_sees_another():
    model = stirred(small_settings())
    denoiser = CapturedDenoiser(model.denoiser, cpu())

    for seed, formula in enumerate(["C9H8O4", "C6H10N4O3", "C9H8O4"]):
        known = condition([formula], seed=seed)
        denoise = denoiser.bound(model.denoiser.context(known), SAMPLES)
        for t in (500, 250, 3):
            bonds = bonds_of(seed + t)
            assert torch.equal(denoise(bonds, t), plain(model, known, bonds, t))


@pytest.mark.parametrize(
    ("room_for", "captures"), [(9, [1, 2, 3]), (2, [1, 2, 3, 2]), (0, [1, 2, 1, 3, 1, 2])]
)
@torch.inference_mode()
def test_graphs_longest_unused_are_dropped_when_memory_is_full(monkeypatch, room_for, captures):
    model, made = stirred(small_settings()), []
    context = model.denoiser.context(condition(["C6H12O6"]))
    denoiser = CapturedDenoiser(model.denoiser, cpu())
    capture = denoiser._capture
    sizes = [capture(context, samples)[2] for samples in (3, 2, 1)]
    each = 66 * (8 + 5 * 4) + 8  # a class and five logits a pair, and the step
    assert (sizes[0] - sizes[1], sizes[1] - sizes[2]) == (each, each)
    monkeypatch.setattr(captured, "_MOST_BYTES", sum(sizes[:room_for]))
    monkeypatch.setattr(denoiser, "_capture", lambda c, n: made.append(n) or capture(c, n))

    for samples in (1, 2, 1, 3, 1, 2):
        denoiser.bound(context, samples)

    assert made == captures


@torch.inference_mode()
def test_weights_cast_once_give_what_autocast_gives():
    low = Runtime(torch.device("cpu"), torch.bfloat16, compile=False, threads=1)
    cast, kept = for_inference(stirred(small_settings()), low), stirred(small_settings())

    with low.autocast():
        logits = [plain(net, condition(["C9H8O4"]), bonds_of(7), 100) for net in (cast, kept)]

    assert torch.equal(*logits)
    readout = (cast.denoiser.readout, cast.denoiser.readout_norm)
    assert [part.weight.dtype for part in readout] == [torch.bfloat16, torch.float32]


# What would make the host wait for a GPU, seen on a machine that has none: tensors lie on the meta
# device, which takes the paths of a GPU, refuses products with tensors of the CPU, and holds no
# values, so whatever asks for one fails. It has no autocast.
META = torch.device("meta")
WITHOUT_AUTOCAST = pytest.mark.usefixtures("no_autocast")


class _Moved(TorchDispatchMode):
    """Notes operations whose results lie elsewhere than their inputs."""

    def __init__(self):
        super().__init__()
        self.moved = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        inputs, outputs = (
            {leaf.device.type for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)}
            for values in ((args, kwargs), result)
        )
        if inputs and outputs and inputs != outputs:
            self.moved.append(str(func))
        return result


@contextmanager
def nothing_waits():
    with _Moved() as seen:
        yield
    assert not seen.moved


def there(batch):
    return map_tensors(batch, lambda tensor: tensor.to(META))


@pytest.fixture
def no_autocast(monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)


@WITHOUT_AUTOCAST
@torch.inference_mode()
@pytest.mark.parametrize("given", [False, True], ids=["from noise", "from graphs"])
def test_an_evaluation_waits_for_nothing(given, monkeypatch):
    """Numbers are drawn on the CPU and sent; nothing comes back."""
    numbers = torch.zeros(20, 78, device=META)
    monkeypatch.setattr(SamplingTask, "uniform", lambda *_: numbers)
    network = stirred(small_settings(layers=1)).to(META)
    sampler = Sampler(network, Runtime(META, None, False, 1))
    context = network.denoiser.context(there(condition(["C9H8O4"])))
    process = there((torch.full((5,), 0.2), alpha_bar(500)))
    task = SamplingTask((500, 200, 0), *process, 3, 20, 78, start=numbers.long() if given else None)

    sample(sampler.denoiser(context, 20), task, slice(0, 20))  # fills the tables
    with nothing_waits():
        drawn = sample(sampler.denoiser(context, 20), task, slice(0, 20))

    assert (drawn.bond_class.device, drawn.bond_class.shape) == (META, (20, 78))


def test_what_captured_graphs_know_by_address_is_never_dropped():
    for function in (line_graph, same_head, constants):
        assert function.cache_parameters()["maxsize"] is None


@WITHOUT_AUTOCAST
@pytest.mark.parametrize("name", ["decoder", "encoder"])
def test_loss_and_gradients_wait_for_nothing_and_are_in_the_precision_of_the_weights(
    tmp_path, name
):
    settings = TrainingSettings(data=TrainingData(spectra_per_batch=3))
    if name == "decoder":
        stage = DecoderStage(made_molecules(40), settings)
    else:
        stage = EncoderStage(made_spectra(tmp_path / "spectra"), None, settings)
    network = small_model().to(META)
    batch = there(stage.collate(next(iter(stage.plan(0))), 0))

    stage.loss(network, batch)  # fills the tables
    with nothing_waits():
        summed, count = stage.loss(network, batch)
        (summed / count).backward()

    part = network.denoiser if name == "decoder" else network.encoder
    assert all(p.grad.is_meta and p.grad.dtype == torch.float32 for p in part.parameters())


@WITHOUT_AUTOCAST
def test_an_optimiser_step_waits_for_nothing():
    """Of AdamW's, which is one operation, the GPU tests know."""
    network, average = small_model().to(META), small_model().to(META)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    muon, _ = optimisers(network, OptimiserSettings(matrices="muon"))

    with nothing_waits():
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        muon.step()
        update_average(average, network, 0.9, 5)

    assert norm.device == META
