"""The authors' network as it is measured: its attention over pairs, one evaluation, the whole loop.

Letters: N atoms, M pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from duallgd_cli.bench import network as default
from duallgd_cli.bench.measure import Cell, Job, Subject
from duallgd_cli.checkpoint.resolve import resolve_weights
from duallgd_cli.chem.elements import SYMBOLS
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import draw_in_chunks
from duallgd_cli.errors import UsageError
from duallgd_cli.generator.network import samples_at_once, sampling_task
from duallgd_cli.model.line_graph import line_graph
from duallgd_cli.reference import weights_file
from duallgd_cli.reference.denoiser import ReferenceDenoiser
from duallgd_cli.reference.features import AtomsOfGraphs, atoms_of, with_features
from duallgd_cli.reference.generator import BYTES_PER_PAIR, bound
from duallgd_cli.reference.kernels import draw_projection
from duallgd_cli.reference.layers import PairLayer, RealRows
from duallgd_cli.reference.settings import ReferenceSettings
from duallgd_cli.runtime import Runtime


@dataclass(frozen=True, eq=False)
class ReferenceNetwork:
    """The authors' denoiser with one kernel, in evaluation mode.

    Attributes:
        model: The denoiser.
        settings: Of the whole system.
        about: As `duallgd_cli.bench.measure.Reading` has it.
        rebuilt: Makes of it the network that is measured.
    """

    model: ReferenceDenoiser
    settings: ReferenceSettings
    about: dict[str, Any]
    rebuilt: Callable[[ReferenceDenoiser], nn.Module] = lambda denoiser: denoiser

    def job(self, cell: Cell, runtime: Runtime) -> Job:
        """What is run at a cell."""
        fast = self.model.to(runtime.device)
        jobs = {"attention": self._attention, "forward": self._forward, "loop": self._loop}
        return jobs[cell.part](cell, runtime, fast, self.rebuilt(fast))

    def _attention(
        self, cell: Cell, runtime: Runtime, fast: ReferenceDenoiser, network: nn.Module
    ) -> Job:
        """Self-attention of all layers' bond streams, one after the other."""
        del fast
        layers = [part for part in network.modules() if isinstance(part, PairLayer)]
        atoms = torch.ones(cell.samples, cell.atoms, dtype=torch.bool, device=runtime.device)
        real = RealRows.of(atoms, line_graph(cell.atoms, runtime.device))
        width = self.settings.denoiser.edge_width
        start = default.pair_states(cell, width).to(runtime.device)

        def run() -> Tensor:
            pairs = start
            with runtime.autocast():
                for layer in layers:
                    pairs = pairs + layer.attention(layer.norm_attention(pairs), real)
            return pairs

        return Job(run, nn.ModuleList(layer.attention for layer in layers), cell.samples)

    def _forward(
        self, cell: Cell, runtime: Runtime, fast: ReferenceDenoiser, network: nn.Module
    ) -> Job:
        """One evaluation of the denoiser, features of the noisy graph known."""
        device, settings = runtime.device, self.settings
        known = self._atoms(cell, device).expand(cell.samples)
        bonds = default.noisy_bonds(cell, settings.marginal, settings.n_steps).to(device)
        time = torch.full((cell.samples,), 1 / default.HALFWAY, device=device)
        graphs = with_features(known, bonds, time, self._condition(cell, device))

        def run() -> Tensor:
            with runtime.autocast():
                return cast("Tensor", network(graphs))

        return Job(run, fast, cell.samples)

    def _loop(
        self, cell: Cell, runtime: Runtime, fast: ReferenceDenoiser, network: nn.Module
    ) -> Job:
        """The sampling loop, features of the noisy graphs included."""
        device, seed = runtime.device, cell.subject.seed
        sampling = SamplingSettings(steps=cell.steps, samples=cell.samples)
        task = sampling_task(self.settings, sampling, seed, cell.pairs, device)
        denoise = bound(
            cast("ReferenceDenoiser", network),
            self._atoms(cell, device),
            self._condition(cell, device),
            self.settings.n_steps,
            runtime.autocast,
        )
        at_once = samples_at_once(cell.pairs, sampling, device, BYTES_PER_PAIR)

        def run() -> Tensor:
            beside = runtime.chunks_at_once
            drawn, _ = draw_in_chunks(
                lambda samples: denoise, [task], lambda _: at_once, lambda: None, beside
            )
            return drawn.bond_class

        return Job(run, fast, at_once)

    def _atoms(self, cell: Cell, device: torch.device) -> AtomsOfGraphs:
        elements = default.atom_classes(cell.atoms).tolist()
        return atoms_of([SYMBOLS[element] for element in elements], self.settings, device)

    def _condition(self, cell: Cell, device: torch.device) -> Tensor:
        """A projected fingerprint, (1, condition_width)."""
        generator = torch.Generator().manual_seed(cell.subject.seed)
        width = self.settings.denoiser.condition_width
        return torch.randn(1, width, generator=generator).to(device)


@lru_cache(maxsize=2)
def network_of(subject: Subject, kernel: str) -> ReferenceNetwork:
    """The authors' network with a kernel: converted weights, or random ones by default.

    Raises:
        UsageError: These weights cannot be run with this kernel.
        WeightsError: Missing or broken.
    """
    name: Literal["positive", "softmax"] = "positive" if kernel == "favor" else "softmax"
    if subject.weights not in (None, default.RANDOM):
        return _converted(subject, name)
    settings = ReferenceSettings()
    settings = replace(settings, denoiser=replace(settings.denoiser, kernel=name))
    network = at_random(settings, subject.seed)
    return ReferenceNetwork(
        network, settings, default.about(f"random, seed {subject.seed}", network)
    )


def at_random(settings: ReferenceSettings, seed: int) -> ReferenceDenoiser:
    """A network with random weights and features of a seed."""
    network = ReferenceDenoiser(settings.denoiser).eval()
    default.fill_at_random(network, network.readout.outer, seed)
    generator = torch.Generator().manual_seed(seed)
    for name, buffer in network.named_buffers():
        if name.endswith("projection"):
            buffer.copy_(draw_projection(*buffer.shape, generator))
    return network


def _converted(subject: Subject, kernel: str) -> ReferenceNetwork:
    path = resolve_weights(subject.weights)
    checkpoint = weights_file.load(path)
    trained = checkpoint.settings.denoiser.kernel
    if trained != kernel:
        raise UsageError(
            f"weights {path.name} were trained with kernel {trained}; measure that one alone, or "
            f"--weights {default.RANDOM}"
        )
    network = checkpoint.build(["denoiser"]).denoiser
    count = sum(t.numel() for n, t in checkpoint.tensors.items() if not n.endswith("projection"))
    about = default.about(path.name, network) | {"parameters": count}
    return ReferenceNetwork(network, checkpoint.settings, about)
