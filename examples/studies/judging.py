"""Judging a denoiser by structures it may not have seen: noise levels and finished samples.

The fingerprints are the true ones, so the figures say what a decoder is worth with a perfect
encoder; they are for comparing decoders, never a result on spectra.
Letters: B graphs, N atoms, M pairs, S samples.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import torch
from atom_orders import AtomOrder, OrderedMolecules, load_in_order, pairs_of_order
from duallgd_cli.generator.network import ModelGenerator
from duallgd_cli.predict.candidates import assemble_all, collect, fitting
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from duallgd_cli.chem.elements import BOND_NONE, N_BOND_CLASSES
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.config import SamplingSettings
from duallgd_cli.data.batches import MoleculeCollator
from duallgd_cli.diffusion.process import alpha_bar, corrupt
from duallgd_cli.errors import UsageError
from duallgd_cli.model.duallgd import Condition
from duallgd_cli.predict.model import Generated
from duallgd_cli.results import OK, HypothesisResult

FIRST: Final = 10
NOISE_STEPS: Final = (50, 150, 250, 350, 500)
# What became of the samples of a molecule: whether it is the first candidate, among the first ten,
# or any; similarity of the first candidate, and the best of the first ten (0 where there is none);
# share of the samples that became a molecule without a repair.
COLUMNS: Final = ("top_1", "top_10", "any_sample", "tanimoto_1", "tanimoto_10", "valid")
_PAIRS_AT_ONCE: Final = 8_000
_DIGITS: Final = 6  # of a share


@dataclass(frozen=True, eq=False)
class KnownStructure:
    """A molecule to be found again.

    Attributes:
        block: First block of its InChIKey.
        formula: Its formula.
        bits: Its set Morgan bits, ascending, uint16 (n_on,), whatever the condition tells of them.
        condition: What the denoiser is told, a batch of one; its atoms may come in any order.
        bond_class: True classes in that order, int64 (1, M).
        index: Where each atom of the element-sorted list stands in that order, int64 (N,).
    """

    block: str
    formula: Formula
    bits: NDArray[np.uint16]
    condition: Condition
    bond_class: Tensor
    index: NDArray[np.int64]

    def in_formula_order(self, pairs: NDArray[np.generic]) -> NDArray[np.generic]:
        """Values of pairs (S, M, ...) for the element-sorted list instead of the order here."""
        return pairs[:, pairs_of_order(np.argsort(self.index))]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Which structures are judged by.

    Attributes:
        folder: Prepared structures.
        fold: Fold of them.
        limit: Number of molecules, always the same ones.
        max_atoms: The largest, in heavy atoms.
        order: In which their atoms are listed.
        truth: Folder with the same molecules and their fingerprints, where `folder` withholds them.
    """

    folder: Path
    fold: str = "dev"
    limit: int = 200
    max_atoms: int = 100
    order: AtomOrder = "formula"
    truth: Path | None = None

    def structures(self) -> list[KnownStructure]:
        """The molecules that are meant, in the order of the folder.

        Raises:
            MissingInputError: The folder holds no prepared data.
            UsageError: None is of that fold and size, or the order is not known there.
        """
        molecules = load_in_order(self.folder, self.order)
        fits = (molecules.n_heavy >= 2) & (molecules.n_heavy <= self.max_atoms)
        rows = np.flatnonzero(fits & molecules.in_folds(self.fold))
        if not len(rows):
            raise UsageError(
                f"{self.folder} holds no molecule of fold {self.fold} with 2 to "
                f"{self.max_atoms} heavy atoms; use other data or a larger limit of atoms"
            )
        # Keys are hashes, so their order is as good as chance and always the same.
        chosen = rows[np.argsort(molecules.inchikey[rows], kind="stable")][: self.limit]
        collator = MoleculeCollator(molecules, None)
        true = molecules if self.truth is None else load_in_order(self.truth, "formula")
        return [
            _known(collator, row, true.fingerprint_bits(row)) for row in np.sort(chosen).tolist()
        ]


def _known(collator: MoleculeCollator, row: int, bits: NDArray[np.uint16]) -> KnownStructure:
    molecules, rows, unused = collator.molecules, np.array([row]), np.random.default_rng(0)
    size = int(molecules.n_heavy[row])
    index = np.arange(size)
    if isinstance(molecules, OrderedMolecules):
        index = molecules.place[molecules.atom_offset[row] : molecules.atom_offset[row + 1]]
    return KnownStructure(
        block=molecules.inchikey[row].decode(),
        formula=molecules.formula(row),
        bits=bits,
        condition=collator.condition(rows, size, unused),
        bond_class=collator.graphs(rows, size, unused).bond_class,
        index=index,
    )


def bond_marginal(folder: Path, max_atoms: int) -> tuple[float, ...]:
    """Share of each bond class among the atom pairs of the molecules trained on.

    Raises:
        MissingInputError: The folder holds no prepared data.
        UsageError: None of fold train is that small.
    """
    molecules = load_in_order(folder, "formula")
    fits = (molecules.n_heavy >= 2) & (molecules.n_heavy <= max_atoms)
    fits &= molecules.in_folds("train")
    n = molecules.n_heavy[fits]
    if not len(n):
        raise UsageError(
            f"{folder} holds no molecule of fold train with 2 to {max_atoms} heavy atoms"
        )
    of_bond = np.repeat(fits, np.diff(molecules.bond_offset))
    counts = np.bincount(molecules.bond_type[of_bond], minlength=N_BOND_CLASSES).astype(float)
    counts[BOND_NONE] = (n * (n - 1) // 2).sum() - counts.sum()
    share = (counts / counts.sum()).round(_DIGITS)
    return tuple(float(max(value, 10**-_DIGITS)) for value in share)  # none may be zero


def even_jumps(samples: int = 20) -> SamplingSettings:
    """How studies sample: the paper's jumps and steps, so that arms differ in the network alone."""
    return SamplingSettings(samples=samples, schedule="uniform", time_shift=0.0)


@torch.no_grad()
def noise_levels(
    generator: ModelGenerator, known: Sequence[KnownStructure], seed: int = 0
) -> list[dict[str, float]]:
    """How well a network guesses clean bonds; the same noise for every network.

    Returns:
        For each noise step ``t`` the ``cross_entropy`` of the clean class (mean over pairs, nats)
        and ``bond_f1`` of typed bonds, found where their class is the most probable one.
    """
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
            with runtime.autocast():
                logits = model.denoiser(noisy, at, model.denoiser.context(condition))
            totals[number] += _counts(logits, clean)
    return [
        {"t": t, "cross_entropy": summed / pairs, "bond_f1": 2 * found / max(1.0, both)}
        for t, (summed, pairs, found, both) in zip(steps, totals.tolist(), strict=True)
    ]


def finish(
    generator: ModelGenerator, known: KnownStructure, sampling: SamplingSettings, seed: int
) -> dict[str, float]:
    """Draw samples for a molecule and see what they become: values by `COLUMNS`.

    Candidates are ranked by how many samples became them, then by likelihood: how well a candidate
    agrees with the (true) fingerprint plays no part. The same noise for every network.

    Args:
        generator: The network.
        known: What it is to find.
        sampling: Steps and samples.
        seed: Seed of the noise, together with the molecule's name.
    """
    digest = hashlib.blake2b(f"{seed}|{known.block}".encode(), digest_size=8).digest()
    noise_seed = int.from_bytes(digest, "little") >> 1
    drawn, _ = generator.draw_given(known.condition, sampling, noise_seed)
    log_prob = known.in_formula_order(
        drawn.bond_log_prob.clamp_min(-60_000).numpy().astype(np.float16)
    ).astype(np.float16)
    generated = Generated(
        bond_class=known.in_formula_order(drawn.bond_class.numpy()).astype(np.int8),
        log_likelihood=drawn.log_likelihood.numpy(),
        bond_log_prob=log_prob,
    )
    results = assemble_all(known.formula, generated)
    found = collect(HypothesisResult(OK), [(generated, results)])
    ranked = sorted(
        found.structures, key=lambda one: (-one.samples, -(one.log_likelihood or 0), one.inchikey)
    )
    bits = {molecule.block: molecule.bits for one in results for molecule in fitting(one)}
    similarity = [tanimoto(bits[structure.block], known.bits) for structure in ranked]
    right = [structure.block == known.block for structure in ranked]
    values = (
        float(any(right[:1])),
        float(any(right[:FIRST])),
        float(any(right)),
        max(similarity[:1], default=0.0),
        max(similarity[:FIRST], default=0.0),
        found.assembled / found.sampled,
    )
    return dict(zip(COLUMNS, values, strict=True))


def finish_all(
    generator: ModelGenerator,
    known: Sequence[KnownStructure],
    sampling: SamplingSettings,
    seed: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, list[float]]:
    """Finished samples of all molecules: values by column of `COLUMNS`, one a molecule."""
    rows: list[dict[str, float]] = []
    for one in known:
        rows.append(finish(generator, one, sampling, seed))
        advance(len(rows), len(known))
    return {name: [round(float(row[name]), 4) for row in rows] for name in COLUMNS}


def _batches(known: Sequence[KnownStructure]) -> Iterator[list[KnownStructure]]:
    """Molecules of one size together, so that nothing is padded."""
    by_size = sorted(known, key=lambda one: len(one.index))
    for n, group in groupby(by_size, lambda one: len(one.index)):
        members = list(group)
        most = max(1, _PAIRS_AT_ONCE // max(1, n * (n - 1) // 2))
        yield from (members[i : i + most] for i in range(0, len(members), most))


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
