"""What is measured: the attention over pairs, one evaluation, the whole loop of the network.

Its weights are trained ones, or random ones of a seed; its inputs are made from a seed. To measure
another network, give `measure.Subject.maker` a module or a file with a `network_of` like this.
Letters: B graphs, N atoms, M pairs, E channels of a pair.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from duallgd_cli.bench.measure import Cell, Job, Subject
from duallgd_cli.checkpoint.format import load
from duallgd_cli.checkpoint.resolve import resolve_weights
from duallgd_cli.chem.elements import HYDROGEN, INDEX, N_ELEMENTS, N_HEAVY
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.process import alpha_bar, draw_classes
from duallgd_cli.generator.network import ModelGenerator, chunk_size
from duallgd_cli.generator.rewritten import for_inference
from duallgd_cli.model.denoiser import Condition, Denoiser, keep_bits
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.layers import DualStreamLayer, Masks
from duallgd_cli.model.line_graph import line_graph
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.runtime import Runtime

RANDOM: Final = "random"
# A single evaluation is measured halfway between noise and molecule.
HALFWAY: Final = 2
# Random states are wider than trained ones; logits of this share leave all bond classes possible.
_SHARE_OF_LOGITS: Final = 0.1


@dataclass(frozen=True, eq=False)
class MeasuredNetwork:
    """The default network with one kernel, encoder included, in evaluation mode.

    Attributes:
        model: Encoder and denoiser.
        about: As `measure.Reading` has it.
        rebuilt: Makes of a denoiser the one that is measured; a study may compute it otherwise.
    """

    model: DualLGD
    about: dict[str, Any]
    rebuilt: Callable[[Denoiser], nn.Module] = lambda denoiser: denoiser

    def job(self, cell: Cell, runtime: Runtime) -> Job:
        """What is run at a cell."""
        model = for_inference(self.model, runtime)
        if cell.part == "loop":
            return self._loop(cell, runtime, model)
        run = self._attention if cell.part == "attention" else self._forward
        work, measured = run(cell, runtime, model)
        captured = cache(partial(runtime.capture, work))  # at the first run
        return Job(lambda: captured()(), measured, cell.samples)

    def _attention(
        self, cell: Cell, runtime: Runtime, model: DualLGD
    ) -> tuple[Callable[[], Tensor], nn.Module]:
        """Self-attention of all layers' bond streams, one after the other."""
        denoiser, device = self.rebuilt(model.denoiser), runtime.device
        layers = [part for part in denoiser.modules() if isinstance(part, DualStreamLayer)]
        parts = [layer.pair_attention for layer in layers]
        atoms = torch.ones(cell.samples, cell.atoms, dtype=torch.bool, device=device)
        masks = Masks.of(atoms, line_graph(cell.atoms, device))
        start = pair_states(cell, model.settings.denoiser.pair_width).to(device)

        def run() -> Tensor:
            pairs = start
            with runtime.autocast():
                for part in parts:
                    pairs = pairs + part(pairs, masks)
            return pairs

        return run, nn.ModuleList(parts)

    def _forward(
        self, cell: Cell, runtime: Runtime, model: DualLGD
    ) -> tuple[Callable[[], Tensor], nn.Module]:
        """One evaluation of the denoiser, its condition known."""
        device, process = runtime.device, model.settings.diffusion
        denoiser = self.rebuilt(model.denoiser)
        bonds = noisy_bonds(cell, process.marginal, process.n_steps).to(device)
        t = torch.full((cell.samples,), process.n_steps // HALFWAY, device=device)
        with torch.no_grad(), runtime.autocast():
            known = condition_of(cell, model.settings).to(device)
            context = denoiser.context(known).expand(cell.samples)  # type: ignore[operator]

        def run() -> Tensor:
            with runtime.autocast():
                return denoiser(bonds, t, context)  # type: ignore[no-any-return]

        return run, model.denoiser

    def _loop(self, cell: Cell, runtime: Runtime, model: DualLGD) -> Job:
        """The shipped sampling loop."""
        drawing = nn.Module()  # a network as far as the loop looks at it
        drawing.settings = model.settings  # type: ignore[assignment]
        drawing.denoiser = self.rebuilt(model.denoiser)
        generator = ModelGenerator(drawing, runtime)  # type: ignore[arg-type]
        sampling = SamplingSettings(steps=cell.steps, samples=cell.samples)
        known = condition_of(cell, model.settings).to(runtime.device)

        def run() -> Tensor:
            return generator.draw_given(known, sampling, cell.subject.seed)[0].bond_class

        return Job(run, model.denoiser, chunk_size(cell.pairs, sampling, runtime.device))


@lru_cache(maxsize=2)
def network_of(subject: Subject, kernel: str) -> MeasuredNetwork:
    """The network with a kernel; kept, as many cells share it.

    Raises:
        WeightsError: Missing or broken.
    """
    if subject.weights == RANDOM:
        model = DualLGD(_with_kernel(ModelSettings(), kernel)).eval()
        fill_at_random(model, model.denoiser.readout, subject.seed)
        return MeasuredNetwork(model, about(f"random, seed {subject.seed}", model))
    path = resolve_weights(subject.weights)
    checkpoint = load(path)
    trained = "favor" if checkpoint.settings.denoiser.pair_features else "softmax"
    settings = _with_kernel(checkpoint.settings, kernel)
    features = {n: t for n, t in DualLGD(settings).state_dict().items() if n.endswith(".features")}
    tensors = checkpoint.tensors if kernel == trained else checkpoint.tensors | features
    model = replace(checkpoint, settings=settings, tensors=tensors).build()
    known = checkpoint.record.get("ranking_validation")
    top1 = known.get("top1") if isinstance(known, dict) and kernel == trained else None
    return MeasuredNetwork(model, about(path.name, model, top1))


def about(name: str, module: nn.Module, val_top1: float | None = None) -> dict[str, Any]:
    """What stands beside every figure of a network; see `measure.Reading`."""
    count = sum(parameter.numel() for parameter in module.parameters())
    return {"weights": name, "parameters": count, "val_top1": val_top1}


def fill_at_random(module: nn.Module, readout: nn.Linear, seed: int) -> None:
    """Fill parameters so that activations keep their size, none is zero and no bond is certain.

    Args:
        module: Its parameters are overwritten.
        readout: The part of it that gives logits.
        seed: The same parameters for the same seed, whatever the kernel.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            for name, parameter in part.named_parameters(recurse=False):
                parameter.normal_(generator=generator)
                if isinstance(part, nn.LayerNorm) and name == "weight":
                    parameter.mul_(0.1).add_(1)
                else:
                    scale = 0.05 if parameter.ndim < 2 else parameter.shape[-1] ** -0.5
                    parameter.mul_(scale)
        readout.weight.mul_(_SHARE_OF_LOGITS)


def _with_kernel(settings: ModelSettings, kernel: str) -> ModelSettings:
    drawn = settings.denoiser.pair_features or ModelSettings().denoiser.pair_features
    features = drawn if kernel == "favor" else 0
    return replace(settings, denoiser=replace(settings.denoiser, pair_features=features))


def atom_counts(n_atoms: int) -> Tensor:
    """A formula of N heavy atoms in about the proportions of natural products, int64."""
    counts = torch.zeros(N_ELEMENTS, dtype=torch.long)
    counts[INDEX["N"]], counts[INDEX["O"]] = n_atoms // 15, n_atoms // 4
    counts[INDEX["C"]] = n_atoms - counts.sum()
    counts[HYDROGEN] = n_atoms
    return counts


def atom_classes(n_atoms: int) -> Tensor:
    """Heavy atoms of that formula sorted by element, int64 (N,)."""
    return torch.arange(N_HEAVY).repeat_interleave(atom_counts(n_atoms)[:N_HEAVY])


def condition_of(cell: Cell, settings: ModelSettings) -> Condition:
    """What the network is told: that formula, and bits most of which are unlikely."""
    generator = torch.Generator().manual_seed(cell.subject.seed)
    probability = torch.rand(1, settings.encoder.fingerprint_bits, generator=generator).pow(8)
    atom_class = atom_classes(cell.atoms)[None]
    return Condition(
        atom_class,
        torch.ones_like(atom_class, dtype=torch.bool),
        atom_counts(cell.atoms)[None].float(),
        torch.zeros(1),
        *keep_bits(probability, settings.memory_bits),
    )


def noisy_bonds(cell: Cell, marginal: tuple[float, ...], n_steps: int) -> Tensor:
    """Classes of a chain of atoms under noise halfway to the end, int64 (B, M)."""
    low, high = torch.triu_indices(cell.atoms, cell.atoms, 1)
    chain = (high - low == 1).long().expand(cell.samples, -1)
    keep = alpha_bar(n_steps)[n_steps // HALFWAY]
    generator = torch.Generator().manual_seed(cell.subject.seed)
    uniform = torch.rand(2, *chain.shape, generator=generator)
    redrawn = draw_classes(torch.tensor(marginal).expand(*chain.shape, -1), uniform[1])
    return torch.where(uniform[0] < keep, chain, redrawn)


def pair_states(cell: Cell, width: int) -> Tensor:
    """States of pairs, standard normal, float32 (B, M, E)."""
    generator = torch.Generator().manual_seed(cell.subject.seed)
    return torch.randn(cell.samples, cell.pairs, width, generator=generator)
