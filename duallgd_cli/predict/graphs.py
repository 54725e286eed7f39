"""The denoiser captured in a CUDA graph for each shape: one launch in place of many hundreds.

S samples of one spectrum, N atoms, M pairs, C bond classes, K fingerprint bits.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from duallgd_cli.diffusion.sampler import Denoise
from duallgd_cli.model.condition import Condition
from duallgd_cli.model.denoiser import Context, Denoiser
from duallgd_cli.runtime import Runtime

# Shapes kept; a run over many spectra sees a few dozen numbers of atoms.
_KEPT: Final = 64


@dataclass(frozen=True, eq=False)
class _Captured:
    """One shape's function and the tensors that it reads.

    Attributes:
        context: Of one spectrum.
        bond_class: int64 (S, M).
        t: int64 (S,).
        evaluate: Logits (S, M, C) for what those hold now, overwritten by the next call.
    """

    context: Context
    bond_class: Tensor
    t: Tensor
    evaluate: Callable[[], Tensor]


class CapturedDenoiser:
    """Binds spectra to captured graphs of a denoiser; one spectrum at a time."""

    def __init__(self, denoiser: Denoiser, runtime: Runtime) -> None:
        """Capture nothing yet."""
        self._denoiser = denoiser
        self._runtime = runtime
        self._graphs: OrderedDict[tuple[int, ...], _Captured] = OrderedDict()

    def bound(self, context: Context, samples: int) -> Denoise:
        """The denoiser of a spectrum's samples.

        Args:
            context: Of one spectrum.
            samples: S.

        Returns:
            A function that holds until another spectrum of the same shape is bound; what it
            returns, until it is called again.
        """
        shape = (samples, *context.condition.atom_class.shape, *context.condition.bit.shape)
        if shape not in self._graphs:
            self._graphs[shape] = self._capture(context, samples)
            if len(self._graphs) > _KEPT:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(shape)
        captured = self._graphs[shape]
        for target, source in zip(_parts(captured.context), _parts(context), strict=True):
            target.copy_(source)

        def denoise(bond_class: Tensor, t: int) -> Tensor:
            captured.bond_class.copy_(bond_class)
            captured.t.fill_(t)
            return captured.evaluate()

        return denoise

    def _capture(self, context: Context, samples: int) -> _Captured:
        own = _copy(context)
        n_atoms = context.condition.atom_class.shape[1]
        device = context.atoms.device
        n_pairs = n_atoms * (n_atoms - 1) // 2
        bond_class = torch.zeros(samples, n_pairs, dtype=torch.long, device=device)
        t = torch.zeros(samples, dtype=torch.long, device=device)
        repeated = own.expand(samples)

        def evaluate() -> Tensor:
            with self._runtime.lower_precision():
                return self._denoiser(bond_class, t, repeated)  # type: ignore[no-any-return]

        return _Captured(own, bond_class, t, self._runtime.record(evaluate))


def _parts(context: Context) -> list[Tensor]:
    """All tensors of a context, in one order."""
    known = context.condition
    condition = [getattr(known, name) for name in known.__dataclass_fields__]
    own = [context.atoms, context.position, context.relative, context.y, context.bit_log_prob]
    return condition + own + [memory for memory in context.memory if memory is not None]


def _copy(context: Context) -> Context:
    """A context of its own tensors."""
    known = context.condition
    return Context(
        Condition(*(getattr(known, name).clone() for name in known.__dataclass_fields__)),
        context.atoms.clone(),
        context.position.clone(),
        context.relative.clone(),
        context.y.clone(),
        tuple(None if memory is None else memory.clone() for memory in context.memory),
        context.bit_log_prob.clone(),
    )
