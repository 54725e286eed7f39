"""Drawing graphs with a trained denoiser: chunks that fit the memory, as fast as the device allows.

S samples, N heavy atoms, M = N (N - 1) / 2 pairs, C bond classes, F fingerprint bits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import Tensor

from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.process import (
    Samples,
    SamplingTask,
    alpha_bar,
    parse_schedule,
    sample,
)
from duallgd_cli.model.captured import CapturedDenoiser
from duallgd_cli.model.duallgd import Condition, Context, DualLGD, keep_bits
from duallgd_cli.model.rewritten import Rewritten
from duallgd_cli.model.tensors import Denoise
from duallgd_cli.runtime import Runtime

# Working memory of one atom pair in a forward pass, all layers' live tensors together.
BYTES_PER_PAIR: Final = 8_192
_MOST_PAIRS_ON_CPU: Final = 16_384  # beyond these its caches are too small


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws bond matrices with a network.

    Attributes:
        model: On the runtime's device, in evaluation mode.
        runtime: Device and precision.
        rewritten: The denoiser as a CPU evaluates it faster, or None.
    """

    model: DualLGD
    runtime: Runtime
    rewritten: Rewritten | None = None
    _captured: CapturedDenoiser = field(init=False, repr=False)

    def __post_init__(self) -> None:
        captured = CapturedDenoiser(self.model.denoiser, self.runtime)
        object.__setattr__(self, "_captured", captured)

    def task(
        self, settings: SamplingSettings, seed: int, samples: int, n_pairs: int
    ) -> SamplingTask:
        """What to draw from pure noise: S samples of M pairs."""
        process, device = self.model.settings.diffusion, self.runtime.device
        shift = process.time_shift if settings.time_shift is None else settings.time_shift
        return SamplingTask(
            plan=parse_schedule(process.schedule, process.n_steps, settings.steps),
            marginal=torch.tensor(process.marginal, device=device),
            alpha_bar=alpha_bar(process.n_steps).to(device),
            seed=seed,
            samples=samples,
            n_pairs=n_pairs,
            temperature=settings.temperature,
            timestep_offset=shift,
        )

    @torch.inference_mode()
    def context(self, formula: Formula, fingerprint: Tensor) -> Context:
        """What the denoiser is told of a spectrum: its formula and predicted fingerprint (F,)."""
        bits = self.model.settings.memory_bits
        return self.context_of(formula_condition(formula, fingerprint, bits))

    @torch.inference_mode()
    def context_of(self, condition: Condition) -> Context:
        """The same for a condition of one hypothesis, its atoms in any order."""
        with on_one_thread(), self.runtime.autocast():
            return self.model.denoiser.context(condition.to(self.runtime.device))

    @torch.inference_mode()
    def draw(
        self,
        context: Context,
        tasks: Sequence[SamplingTask],
        settings: SamplingSettings,
        check: Callable[[], None] = lambda: None,
    ) -> tuple[Samples, list[str]]:
        """Draw the samples of tasks, one task after the other; they come back on the CPU.

        When CUDA runs out of memory the chunk is halved, and the notes for the run record say so.

        Args:
            context: Of one spectrum.
            tasks: What to draw.
            settings: Memory.
            check: Called before every evaluation; may raise to stop.
        """
        parts: list[Samples] = []
        notes: list[str] = []
        for task in tasks:
            done, chunk = 0, chunk_size(task.n_pairs, task.samples, settings, self.runtime.device)
            while done < task.samples:
                rows = slice(done, min(done + chunk, task.samples))
                try:
                    with on_one_thread():
                        denoise = self.denoiser(context, rows.stop - rows.start)
                        drawn = sample(denoise, task, rows, check)
                except RuntimeError as error:
                    if chunk == 1 or not is_out_of_memory(error):
                        raise
                    chunk //= 2
                    notes.append(f"out of device memory: samples per chunk halved to {chunk}")
                    continue
                parts.append(drawn.cpu())
                done = rows.stop
        return Samples.join(parts), notes

    def denoiser(self, context: Context, samples: int) -> Denoise:
        """The denoiser of so many samples of a spectrum, as this device evaluates it fastest."""
        if self.rewritten is not None:
            return self.rewritten.bound(context, samples)
        if self.runtime.captures:
            return self._captured.bound(context, samples)
        repeated = context.expand(samples)

        def denoise(bond_class: Tensor, t: int) -> Tensor:
            steps = torch.full((samples,), t, device=bond_class.device)
            with self.runtime.autocast():
                return self.model.denoiser(bond_class, steps, repeated)  # type: ignore[no-any-return]

        return denoise


def formula_condition(formula: Formula, fingerprint: Tensor, memory_bits: int) -> Condition:
    """What the denoiser is told: a function of the formula and the predicted fingerprint alone."""
    bit, log_prob = keep_bits(fingerprint[None], memory_bits)
    atom_class = torch.from_numpy(formula.atom_class)[None]
    return Condition(
        atom_class=atom_class,
        atom_mask=torch.ones_like(atom_class, dtype=torch.bool),
        formula=torch.from_numpy(formula.array.astype(np.float32))[None],
        charge=torch.tensor([float(formula.charge)]),
        bit=bit,
        bit_log_prob=log_prob,
    )


def chunk_size(n_pairs: int, samples: int, settings: SamplingSettings, device: torch.device) -> int:
    """Samples drawn together: by the numbers of pairs and samples and the kind of device alone."""
    pairs = settings.max_memory_mib * (1 << 20) // BYTES_PER_PAIR
    if device.type == "cpu":
        pairs = min(pairs, _MOST_PAIRS_ON_CPU)
    most = max(1, min(samples, pairs // n_pairs))
    return math.ceil(samples / math.ceil(samples / most))  # chunks of like size


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Products inside are summed in one order, whatever the number of threads: the same digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it arose from, says that device memory was used up.

    While a CUDA graph is captured that surfaces as a RuntimeError of the capture, which arose while
    the first was dealt with.
    """
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
