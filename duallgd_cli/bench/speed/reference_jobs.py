"""What is run of the reference network: its attention over pairs, an evaluation, the whole loop."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from duallgd_cli.bench.speed.cells import Cell
from duallgd_cli.bench.speed.inputs import HALFWAY, Job, atom_classes, noisy_bonds, pair_states
from duallgd_cli.bench.speed.plain_reference import PlainReferenceDenoiser
from duallgd_cli.chem.elements import SYMBOLS
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Denoise
from duallgd_cli.model.line_graph import line_graph
from duallgd_cli.predict.drawing import draw_in_chunks, samples_at_once, sampling_task
from duallgd_cli.reference.denoiser import DualStreamLayer, ReferenceDenoiser
from duallgd_cli.reference.features import AtomsOfGraphs, with_features
from duallgd_cli.reference.generator import BYTES_PER_PAIR
from duallgd_cli.reference.rows import RealRows
from duallgd_cli.reference.sampling import atoms_of, bound
from duallgd_cli.reference.settings import ReferenceSettings
from duallgd_cli.runtime import Runtime


@dataclass(frozen=True, eq=False)
class ReferenceJobs:
    """Jobs of the reference network.

    Attributes:
        model: The denoiser, on the runtime's device.
        settings: Of the network.
        runtime: Device and precision.
    """

    model: ReferenceDenoiser
    settings: ReferenceSettings
    runtime: Runtime

    def attention(self, cell: Cell) -> Job:
        """Self-attention of all layers' bond streams, one after the other."""
        network = self.model
        if cell.path == "plain":
            network = PlainReferenceDenoiser(self.model).network
        layers = [cast("DualStreamLayer", layer).pairs for layer in network.layers]
        device = self.runtime.device
        atoms = torch.ones(cell.samples, cell.atoms, dtype=torch.bool, device=device)
        real = RealRows.of(atoms, line_graph(cell.atoms, device))
        start = pair_states(cell, self.settings.denoiser.edge_width).to(device)

        def run() -> Tensor:
            pairs = start
            with self.runtime.lower_precision():
                for layer in layers:
                    pairs = pairs + layer.attention(layer.norm_attention(pairs), real)
            return pairs

        measured = nn.ModuleList(layer.attention for layer in layers)
        return Job(run, measured, cell.samples)

    def forward(self, cell: Cell) -> Job:
        """One evaluation of the denoiser, features of the noisy graph known."""
        network = self.model if cell.path == "fast" else PlainReferenceDenoiser(self.model)
        device = self.runtime.device
        one = self._atoms(cell)
        known = AtomsOfGraphs(
            one.atom_class.to(device).expand(cell.samples, -1),
            one.atom_mask.to(device).expand(cell.samples, -1),
            one.symbols,
            one.max_atoms,
        )
        bonds = noisy_bonds(cell, self.settings.marginal, self.settings.n_steps).to(device)
        time = torch.full((cell.samples,), 1 / HALFWAY, device=device)
        graphs = with_features(known, bonds, time, self._condition(cell))

        def run() -> Tensor:
            with self.runtime.lower_precision():
                return cast("Tensor", network(graphs))

        return Job(run, self.model, cell.samples)

    def loop(self, cell: Cell) -> Job:
        """The sampling loop, features of the noisy graphs included."""
        network = self.model if cell.path == "fast" else PlainReferenceDenoiser(self.model)
        device, n_steps = self.runtime.device, self.settings.n_steps
        sampling = SamplingSettings(steps=cell.steps, samples=cell.samples)
        task = sampling_task(self.settings, sampling, cell.subject.seed, cell.pairs, device)
        denoise = bound(
            cast("ReferenceDenoiser", network),
            self._atoms(cell),
            self._condition(cell),
            n_steps,
            self.runtime.lower_precision,
        )
        at_once = samples_at_once(cell.pairs, sampling, device, BYTES_PER_PAIR)

        def denoiser_of(samples: int) -> Denoise:
            del samples  # takes any number
            return denoise

        def run() -> Tensor:
            beside = self.runtime.chunks_at_once
            drawn, _ = draw_in_chunks(denoiser_of, [task], lambda _: at_once, lambda: None, beside)
            return drawn.bond_class

        return Job(run, self.model, at_once)

    def _atoms(self, cell: Cell) -> AtomsOfGraphs:
        elements = atom_classes(cell.atoms).tolist()
        return atoms_of([SYMBOLS[element] for element in elements], self.settings)

    def _condition(self, cell: Cell) -> Tensor:
        """A projected fingerprint, (1, condition_width)."""
        generator = torch.Generator().manual_seed(cell.subject.seed)
        width = self.settings.denoiser.condition_width
        return torch.randn(1, width, generator=generator).to(self.runtime.device)
