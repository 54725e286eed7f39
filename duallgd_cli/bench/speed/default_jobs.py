"""What is run of the default network: its attention over pairs, an evaluation, the whole loop."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from duallgd_cli.bench.speed.cells import Cell
from duallgd_cli.bench.speed.inputs import (
    HALFWAY,
    Job,
    condition_of,
    noisy_bonds,
    pair_states,
    recorded_at_first,
)
from duallgd_cli.bench.speed.plain import PlainDenoiser
from duallgd_cli.config import SamplingSettings
from duallgd_cli.model.condition import Condition
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.layers import Masks
from duallgd_cli.model.line_graph import line_graph
from duallgd_cli.predict.generate import ModelGenerator, chunk_size
from duallgd_cli.runtime import Runtime


@dataclass(frozen=True, eq=False)
class DefaultJobs:
    """Jobs of the default network.

    Attributes:
        model: As `predict.generate.for_inference` prepares it.
        runtime: Device and precision.
    """

    model: DualLGD
    runtime: Runtime

    def attention(self, cell: Cell) -> Job:
        """Self-attention of all layers' bond streams, one after the other."""
        denoiser = self.model.denoiser
        if cell.path == "plain":
            denoiser = PlainDenoiser(denoiser).denoiser
        layers = [layer.pair_attention for layer in denoiser.layers]
        masks = self._masks(cell)
        start = pair_states(cell, denoiser.settings.pair_width).to(self.runtime.device)

        def run() -> Tensor:
            pairs = start
            with self.runtime.lower_precision():
                for layer in layers:
                    pairs = pairs + layer(pairs, masks)  # type: ignore[operator]
            return pairs

        run = recorded_at_first(run, self.runtime)
        return Job(run, nn.ModuleList(cast("nn.Module", layer) for layer in layers), cell.samples)

    def forward(self, cell: Cell) -> Job:
        """One evaluation of the denoiser, its condition known."""
        device, process = self.runtime.device, self.model.settings.diffusion
        fast = self.model.denoiser
        denoiser = fast if cell.path == "fast" else PlainDenoiser(fast)
        bonds = noisy_bonds(cell, process.marginal, process.n_steps).to(device)
        t = torch.full((cell.samples,), process.n_steps // HALFWAY, device=device)
        with torch.no_grad(), self.runtime.lower_precision():
            context = denoiser.context(self._condition(cell)).expand(cell.samples)

        def run() -> Tensor:
            with self.runtime.lower_precision():
                return cast("Tensor", denoiser(bonds, t, context))

        return Job(recorded_at_first(run, self.runtime), fast, cell.samples)

    def loop(self, cell: Cell) -> Job:
        """The shipped sampling loop."""
        model = self.model if cell.path == "fast" else _with_plain_denoiser(self.model)
        generator = ModelGenerator(model, self.runtime)
        sampling = SamplingSettings(steps=cell.steps, samples=cell.samples)
        condition = self._condition(cell)

        def run() -> Tensor:
            return generator.draw_given(condition, sampling, cell.subject.seed)[0].bond_class

        at_once = chunk_size(cell.pairs, sampling, self.runtime.device)
        return Job(run, self.model.denoiser, at_once)

    def _condition(self, cell: Cell) -> Condition:
        settings = self.model.settings
        known = condition_of(cell, settings.encoder.fingerprint_bits, settings.memory_bits)
        return known.to(self.runtime.device)

    def _masks(self, cell: Cell) -> Masks:
        device = self.runtime.device
        atoms = torch.ones(cell.samples, cell.atoms, dtype=torch.bool, device=device)
        return Masks.of(atoms, line_graph(cell.atoms, device))


class _PlainModel(nn.Module):
    """A network with a plain denoiser, as far as the sampling loop looks at it."""

    def __init__(self, fast: DualLGD) -> None:
        super().__init__()
        self.settings = fast.settings
        self.denoiser = PlainDenoiser(fast.denoiser)


def _with_plain_denoiser(fast: DualLGD) -> DualLGD:
    return cast("DualLGD", _PlainModel(fast))
