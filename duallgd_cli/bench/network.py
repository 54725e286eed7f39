"""What is measured: the attention over pairs, one evaluation, the whole loop of the network.

Its weights are trained ones, its inputs are made: a formula in about the proportions of natural
products, and from a seed unlikely bits and noisy bonds. To measure another network, give
`measure.Study.maker` a module or a file with a `network_of` like this.
Letters: B graphs, N atoms, M pairs, E channels of a pair.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from duallgd_cli.bench.measure import Cell, Job, Study
from duallgd_cli.checkpoint.format import load
from duallgd_cli.checkpoint.resolve import resolve_weights
from duallgd_cli.chem.elements import HYDROGEN, INDEX, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion import alpha_bar, corrupt
from duallgd_cli.generator.network import ModelGenerator, chunk_size, formula_condition
from duallgd_cli.generator.rewritten import for_inference
from duallgd_cli.model.duallgd import Condition, Denoiser, DualLGD
from duallgd_cli.model.layers import DualStreamLayer, Masks
from duallgd_cli.model.line_graph import line_graph
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.runtime import Runtime

_MAX_NITROGENS: Final = 5


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
        shape = cell.samples, cell.pairs, model.settings.denoiser.pair_width
        start = torch.randn(shape, generator=cell.generator).to(device)  # (B, M, E)

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
        """One evaluation of the denoiser, its condition known, halfway from noise to molecule."""
        device, process = runtime.device, model.settings.diffusion
        denoiser, halfway = self.rebuilt(model.denoiser), process.n_steps // 2
        low, high = torch.triu_indices(cell.atoms, cell.atoms, 1)
        chain = (high - low == 1).long().expand(cell.samples, -1)  # (B, M)
        share = alpha_bar(process.n_steps)[halfway].expand(cell.samples)
        uniform = torch.rand(chain.shape, generator=cell.generator)
        bonds = corrupt(chain, share, torch.tensor(process.marginal), uniform).to(device)
        t = torch.full((cell.samples,), halfway, device=device)
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
            return generator.draw_given(known, sampling, cell.study.seed)[0].bond_class

        return Job(run, model.denoiser, chunk_size(cell.pairs, sampling, runtime.device))


@lru_cache(maxsize=2)
def network_of(study: Study, kernel: str) -> MeasuredNetwork:
    """The network with a kernel; kept, as many cells share it.

    Raises:
        WeightsError: Missing or broken.
    """
    path = resolve_weights(study.weights)
    checkpoint = load(path)
    denoiser, tensors = checkpoint.settings.denoiser, checkpoint.tensors
    is_trained = bool(denoiser.pair_features) == (kernel == "favor")
    settings = checkpoint.settings
    if not is_trained:
        drawn = ModelSettings().denoiser.pair_features if kernel == "favor" else 0
        settings = replace(settings, denoiser=replace(denoiser, pair_features=drawn))
        fresh = DualLGD(settings).state_dict()
        tensors = tensors | {n: t for n, t in fresh.items() if n.endswith(".features")}
    model = replace(checkpoint, settings=settings, tensors=tensors).build()
    known = checkpoint.record.get("ranking_validation")
    top1 = known.get("top1") if isinstance(known, dict) and is_trained else None
    count = sum(parameter.numel() for parameter in model.parameters())
    return MeasuredNetwork(model, {"weights": path.name, "parameters": count, "val_top1": top1})


def made_formulas(n_atoms: int, count: int) -> list[Formula]:
    """Formulas of C, H, N and O with so many heavy atoms, as different as that allows."""
    found = []
    for number in range(count):
        nitrogens = number % min(_MAX_NITROGENS, max(1, n_atoms - 1))
        oxygens = (n_atoms // 6 + number // _MAX_NITROGENS) % max(1, n_atoms - nitrogens)
        counts = [0] * N_ELEMENTS
        counts[INDEX["C"]] = n_atoms - nitrogens - oxygens
        counts[INDEX["N"]], counts[INDEX["O"]] = nitrogens, oxygens
        counts[HYDROGEN] = n_atoms + (n_atoms + nitrogens) % 2  # even-electron
        found.append(Formula(tuple(counts)))
    return found


def condition_of(cell: Cell, settings: ModelSettings) -> Condition:
    """What the network is told: a formula, and bits most of which are unlikely."""
    bits = torch.rand(settings.encoder.fingerprint_bits, generator=cell.generator).pow(8)
    return formula_condition(made_formulas(cell.atoms, 1)[0], bits, settings.memory_bits)
