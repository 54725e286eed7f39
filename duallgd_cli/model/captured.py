"""The denoiser captured in a CUDA graph for each shape: one launch in place of many hundreds.

S samples of one spectrum, N atoms, M pairs, C bond classes, K fingerprint bits.
"""

from collections import OrderedDict
from typing import Final

import torch
from torch import Tensor

from duallgd_cli.chem.elements import N_BOND_CLASSES
from duallgd_cli.model.duallgd import Context, Denoiser
from duallgd_cli.model.tensors import Denoise, map_tensors
from duallgd_cli.runtime import Runtime

# Tensors of all graphs together; their working memory is one pool that they share.
_MOST_BYTES: Final = 1 << 30


class CapturedDenoiser:
    """Binds spectra to captured graphs of a denoiser; one spectrum at a time."""

    def __init__(self, denoiser: Denoiser, runtime: Runtime) -> None:
        """Capture nothing yet."""
        self._denoiser, self._runtime, self._pool = denoiser, runtime, runtime.graph_pool()
        # By shape: the context's tensors that a graph reads, the denoiser that runs it, bytes of
        # all that it keeps.
        self._graphs = OrderedDict[tuple[int, ...], tuple[list[Tensor], Denoise, int]]()

    def bound(self, context: Context, samples: int) -> Denoise:
        """The denoiser of a spectrum's samples, until another spectrum of the same shape is bound.

        What it returns holds until it is called again. Graphs longest unused are dropped once their
        tensors take more than 1 GiB together.
        """
        shape = (samples, *context.condition.atom_class.shape, *context.condition.bit.shape)
        if shape not in self._graphs:
            self._graphs[shape] = self._capture(context, samples)
        self._graphs.move_to_end(shape)
        while len(self._graphs) > 1 and sum(n for *_, n in self._graphs.values()) > _MOST_BYTES:
            self._graphs.popitem(last=False)
        inputs, denoise, _ = self._graphs[shape]
        for target, source in zip(inputs, _tensors(context), strict=True):
            target.copy_(source)
        return denoise

    def _capture(self, context: Context, samples: int) -> tuple[list[Tensor], Denoise, int]:
        """The tensors of a context of its own, the denoiser that reads them, bytes of all."""
        own = map_tensors(context, torch.clone)
        n_atoms, device = context.condition.atom_class.shape[1], context.atoms.device
        n_pairs = n_atoms * (n_atoms - 1) // 2
        bonds = torch.zeros(samples, n_pairs, dtype=torch.long, device=device)
        steps = torch.zeros(samples, dtype=torch.long, device=device)
        repeated = own.expand(samples)

        def evaluate() -> Tensor:
            with self._runtime.autocast():
                return self._denoiser(bonds, steps, repeated)

        launch = self._runtime.capture(evaluate, self._pool)

        def denoise(bond_class: Tensor, t: int) -> Tensor:
            bonds.copy_(bond_class)
            steps.fill_(t)
            return launch()

        kept = _tensors(own)
        n_bytes = sum(tensor.nbytes for tensor in (*kept, bonds, steps))
        n_bytes += bonds.numel() * N_BOND_CLASSES * torch.float32.itemsize  # logits
        return kept, denoise, n_bytes


def _tensors(context: Context) -> list[Tensor]:
    """All tensors of a context, in one order."""
    listed: list[Tensor] = []
    map_tensors(context, lambda tensor: listed.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return listed
