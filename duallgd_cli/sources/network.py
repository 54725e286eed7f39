"""Sources that draw with the denoiser: from pure noise, and from known molecules that are noised.

S samples, M atom pairs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.molecule import Mol, assemble, is_internal_salt
from duallgd_cli.chem.repair import repair
from duallgd_cli.chem.valence import ORDINARY, TIERS, USUAL
from duallgd_cli.diffusion.sampler import Sampler, Samples, SamplingTask
from duallgd_cli.sources import Proposal, Query
from duallgd_cli.sources.collection import BEGUN, Collection, starts

# Shares of the way to pure noise that templates are noised, half of them each: little keeps their
# skeleton, more lets it change.
_NOISED: Final = (0.25, 0.1)
# Added to the seed, so that samples from the user's analogues have noise of their own.
_OF_ANALOGUES: Final = 32


@dataclass(frozen=True, slots=True)
class Noise:
    """Samples from pure noise."""

    sampler: Sampler
    name: str = "noise"

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """Draw n graphs; every one is a proposal, molecule or not."""
        n_pairs = query.formula.n_heavy * (query.formula.n_heavy - 1) // 2
        task = self.sampler.task(query.sampling, seed, n, n_pairs)
        return _drawn(self.name, self.sampler, [task], query)


@dataclass(frozen=True, slots=True)
class Templates:
    """Samples from known molecules whose fingerprints are like the predicted one.

    A predicted fingerprint gives each bit a chance of its own; which of them go together it does
    not say, but molecules do. A known molecule is given the atoms of the formula, noised a little,
    and denoised from there. Atoms that it has too many of are cut off, ends of chains first; atoms
    that it lacks begin without bonds.
    """

    sampler: Sampler
    collection: Collection
    name: str = "templates"

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """Draw n graphs, or none where no known molecule has nearly the formula's atoms."""
        near = self.collection.near(query.fingerprint, query.formula, BEGUN)
        if not near:
            return iter(())
        begin = starts(near, query.formula, n, seed, exchange=False)
        tasks = _from_graphs(self.sampler, query, begin, seed)
        return _drawn(self.name, self.sampler, tasks, query)


def from_analogues(
    name: str, sampler: Sampler, query: Query, n: int, seed: int
) -> Iterator[Proposal]:
    """Draw n graphs that start from the user's molecules, see `Known.graphs`."""
    begin = starts(query.analogues[:BEGUN], query.formula, n, seed)
    tasks = _from_graphs(sampler, query, begin, seed + _OF_ANALOGUES)
    return _drawn(name, sampler, tasks, query)


def _from_graphs(
    sampler: Sampler, query: Query, begin: NDArray[np.int64], seed: int
) -> list[SamplingTask]:
    """Tasks for samples from these graphs, (S, M), some noised more than others."""
    whole = sampler.task(query.sampling, seed, len(begin), begin.shape[1])
    n_steps = sampler.model.settings.diffusion.n_steps
    levels = (round(share * n_steps) for share in _NOISED)
    plans = [tuple(step for step in whole.plan if step <= most) for most in levels]
    plans = [plan for plan in plans if len(plan) > 1]
    parts = torch.from_numpy(begin).to(whole.marginal.device).chunk(len(plans)) if plans else ()
    return [
        replace(whole, plan=plan, seed=seed + number, samples=len(start), start=start)
        for number, (plan, start) in enumerate(zip(plans, parts, strict=False), 1)
    ]


def _drawn(
    name: str, sampler: Sampler, tasks: Sequence[SamplingTask], query: Query
) -> Iterator[Proposal]:
    """Draw the samples of tasks, then what each of them is."""
    if not tasks:
        return
    context = query.once(
        "context", lambda: sampler.context(query.formula, torch.from_numpy(query.fingerprint))
    )
    samples, notes = sampler.draw(context, tasks, query.sampling, query.check)
    query.notes.extend(notes)
    yield from assembled(name, query, samples)


def assembled(name: str, query: Query, samples: Samples) -> list[Proposal]:
    """What each of S samples is: a molecule as drawn, one after repair, or none.

    The same matrix is assembled once, however often it was drawn.
    """
    bonds = samples.bond_class.numpy().astype(np.int8)
    log_prob = samples.bond_log_prob.clamp_min(-60_000).numpy().astype(np.float16)
    matrices, chosen, which = np.unique(bonds, axis=0, return_index=True, return_inverse=True)
    made = []
    for matrix, row in zip(matrices, chosen, strict=True):
        query.check()
        made.append(_molecule(query.formula, matrix, log_prob[row].astype(np.float32)))
    pairs = zip(which.reshape(-1).tolist(), samples.log_likelihood.tolist(), strict=True)
    return [Proposal(name, made[n][0], likelihood, *made[n][1:]) for n, likelihood in pairs]


def _molecule(
    formula: Formula, matrix: NDArray[np.int8], log_prob: NDArray[np.float32]
) -> tuple[Mol | None, bool, str]:
    """What a matrix is as it stands, after repair, or with rare atom types; in this order.

    Almost any bonds make up a formula's hydrogens with a carbanion and a cation or two, or as an
    internal salt, molecules that nobody meant: a bond drawn wrong is likelier by far.

    Returns:
        The molecule or None, whether it took a repair, and why there is none.
    """
    best, is_repaired = assemble(formula, matrix, ORDINARY), False
    for tiers in (ORDINARY, (USUAL,)):
        if not isinstance(best, str) and (tiers == ORDINARY or not is_internal_salt(best)):
            continue
        fixed = repair(formula, matrix, log_prob, tiers)
        if fixed is None:
            break  # fewer types of atoms mend no more
        if not isinstance(result := assemble(formula, fixed, tiers), str):
            best, is_repaired = result, True
    if isinstance(best, str):
        best = assemble(formula, matrix, TIERS)
    return (None, False, best) if isinstance(best, str) else (best, is_repaired, "")
