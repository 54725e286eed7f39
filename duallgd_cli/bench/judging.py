"""Judging a denoiser by structures it may not have seen: noise levels and finished samples.

The fingerprints are the true ones, so the figures say what a decoder is worth with a perfect
encoder; they are for comparing decoders, never a result on spectra.
Letters: B graphs, M pairs, S samples.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from duallgd_cli.bench.held_out import KnownStructure
from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.schedule import alpha_bar
from duallgd_cli.diffusion.transition import corrupt
from duallgd_cli.model.condition import Condition
from duallgd_cli.predict.candidates import assemble_matrices, collect, distinct
from duallgd_cli.predict.generate import ModelGenerator
from duallgd_cli.predict.generation import Generated
from duallgd_cli.predict.prediction import Structure

FIRST: Final = 10
NOISE_STEPS: Final = (50, 150, 250, 350, 500)
_PAIRS_AT_ONCE: Final = 8_000


@dataclass(frozen=True, slots=True)
class NoiseLevel:
    """Figures at one noise level.

    Attributes:
        t: Noise step.
        cross_entropy: Of the clean class, mean over pairs, nats.
        bond_f1: Of typed bonds; a bond is found where its class is the most probable one.
    """

    t: int
    cross_entropy: float
    bond_f1: float


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of the samples of one molecule; shares are 0 to 1.

    Attributes:
        top_1: Whether the first candidate is the molecule.
        top_10: Whether one of the first ten is.
        any_sample: Whether any candidate is.
        tanimoto_1: Similarity of the first candidate, 0 where there is none.
        tanimoto_10: Best similarity among the first ten.
        valid: Share of the samples that became a molecule as drawn, without a repair.
    """

    top_1: float
    top_10: float
    any_sample: float
    tanimoto_1: float
    tanimoto_10: float
    valid: float


COLUMNS: Final = tuple(field.name for field in fields(Finished))


def even_jumps(samples: int = 20) -> SamplingSettings:
    """How studies sample: the paper's jumps and steps, so that arms differ in the network alone."""
    return SamplingSettings(samples=samples, schedule="uniform", time_shift=0.0)


@torch.no_grad()
def noise_levels(
    generator: ModelGenerator, known: Sequence[KnownStructure], seed: int = 0
) -> list[NoiseLevel]:
    """How well a network guesses clean bonds; the same noise for every network."""
    model, runtime = generator.model, generator.runtime
    process = model.settings.diffusion
    steps = [t for t in NOISE_STEPS if t <= process.n_steps]
    marginal = torch.tensor(process.marginal, device=runtime.device)
    share = alpha_bar(process.n_steps).to(runtime.device)
    totals = torch.zeros(len(steps), 4, dtype=torch.float64)
    random = torch.Generator().manual_seed(seed)
    for batch in _batches(known):
        clean = torch.cat([one.bond_class for one in batch]).to(runtime.device)
        condition = _joined([one.condition for one in batch]).to(runtime.device)
        uniform = torch.rand(clean.shape, generator=random).to(runtime.device)
        for number, t in enumerate(steps):
            at = torch.full((len(clean),), t, device=runtime.device)
            noisy = corrupt(clean, share[at], marginal, uniform)
            with runtime.lower_precision():
                logits = model.denoiser(noisy, at, model.denoiser.context(condition))
            totals[number] += _counts(logits, clean)
    return [_level(t, total) for t, total in zip(steps, totals, strict=True)]


def finish(
    generator: ModelGenerator, known: KnownStructure, sampling: SamplingSettings, seed: int
) -> Finished:
    """Draw samples for a molecule and see what they become.

    Candidates are ranked by how many samples became them, then by likelihood: how well a candidate
    agrees with the (true) fingerprint plays no part. The same noise for every network.

    Args:
        generator: The network.
        known: What it is to find.
        sampling: Steps and samples.
        seed: Of the noise, together with the molecule's name.
    """
    drawn, _ = generator.draw_given(known.condition, sampling, _noise_seed(seed, known.block))
    log_prob = known.in_formula_order(
        drawn.bond_log_prob.clamp_min(-60_000).numpy().astype(np.float16)
    ).astype(np.float16)
    generated = Generated(
        bond_class=known.in_formula_order(drawn.bond_class.numpy()).astype(np.int8),
        log_likelihood=drawn.log_likelihood.numpy(),
        bond_log_prob=log_prob,
    )
    first, matrix = distinct(generated)
    results = assemble_matrices(known.formula, generated.bond_class[first], log_prob[first])
    structures, tallies = collect(generated, results, matrix)
    ranked = sorted(structures, key=_by_count)
    bits = {molecule.block: molecule.bits for one in results for molecule in one.molecules}
    like = [tanimoto(bits[structure.block], known.bits) for structure in ranked]
    right = [structure.block == known.block for structure in ranked]
    return Finished(
        top_1=float(any(right[:1])),
        top_10=float(any(right[:FIRST])),
        any_sample=float(any(right)),
        tanimoto_1=max(like[:1], default=0.0),
        tanimoto_10=max(like[:FIRST], default=0.0),
        valid=tallies.assembled / tallies.sampled,
    )


def finish_all(
    generator: ModelGenerator,
    known: Sequence[KnownStructure],
    sampling: SamplingSettings,
    seed: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, list[float]]:
    """Finished samples of all molecules: values by column of `COLUMNS`, one a molecule."""
    rows: list[dict[str, Any]] = []
    for one in known:
        rows.append(asdict(finish(generator, one, sampling, seed)))
        advance(len(rows), len(known))
    return {name: [round(float(row[name]), 4) for row in rows] for name in COLUMNS}


def _batches(known: Sequence[KnownStructure]) -> list[list[KnownStructure]]:
    """Molecules of one size together, so that nothing is padded."""
    batches: list[list[KnownStructure]] = []
    for n, group in groupby(sorted(known, key=lambda one: one.n_atoms), lambda one: one.n_atoms):
        members = list(group)
        most = max(1, _PAIRS_AT_ONCE // max(1, n * (n - 1) // 2))
        batches += [members[i : i + most] for i in range(0, len(members), most)]
    return batches


def _joined(parts: Sequence[Condition]) -> Condition:
    width = max(part.bit.shape[1] for part in parts)
    fill = {"bit": 0, "bit_log_prob": -torch.inf}
    joined = {}
    for name in Condition.__dataclass_fields__:
        rows = [getattr(part, name) for part in parts]
        if name in fill:
            rows = [pad(row, (0, width - row.shape[1]), value=fill[name]) for row in rows]
        joined[name] = torch.cat(rows)
    return Condition(**joined)


def _counts(logits: Tensor, clean: Tensor) -> Tensor:
    """Summed cross entropy, pairs, bonds found, and bonds guessed plus true bonds; float64 (4,)."""
    guess = logits.argmax(-1)
    summed = cross_entropy(logits.flatten(0, 1), clean.flatten(), reduction="sum")
    found = ((guess == clean) & (clean > 0)).sum()
    both = (guess > 0).sum() + (clean > 0).sum()
    parts = (float(summed), float(clean.numel()), float(found), float(both))
    return torch.tensor(parts, dtype=torch.float64)


def _level(t: int, total: Tensor) -> NoiseLevel:
    summed, pairs, found, both = total.tolist()
    return NoiseLevel(t, summed / pairs, 2 * found / max(1.0, both))


def _by_count(structure: Structure) -> tuple[int, float, str]:
    return -structure.samples, -structure.log_likelihood, structure.inchikey


def _noise_seed(seed: int, block: str) -> int:
    digest = hashlib.blake2b(f"{seed}|{block}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
