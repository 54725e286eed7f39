"""Structures like those that have been measured, chosen from many that nobody has.

Large collections hold what chemists make; spectra are taken of what occurs. What a network of
little training has seen should be the latter. A classifier learns to tell the training molecules of
measured spectra from structures by their Morgan bits; structures are then drawn without
replacement, with its odds as weights. The measured molecules may be kept with them, for what is
measured often, as lipids are, may hardly occur among structures.

Letters: G molecules, F fingerprint bits.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding_bag

from duallgd_cli.data.prepared import (
    FOLDS,
    MANIFEST,
    Molecules,
    join,
    load_molecules,
    load_spectra,
    offsets,
    origin,
    read_manifest,
    record_of,
    take,
    write,
)
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.files import sha256

_N_BITS: Final = 4096
_COMPARED: Final = 40_000
_DECAY: Final = 0.002
_ITERATIONS: Final = 100
_FURTHEST: Final = 4.0


@dataclass(frozen=True, eq=False)
class Bits:
    """Set Morgan bits of G molecules, one after the other.

    Attributes:
        bits: int64, flat.
        offset: Where each molecule's begin, int64 (G,).
    """

    bits: Tensor
    offset: Tensor

    @staticmethod
    def of(molecules: Molecules, rows: NDArray[np.integer[Any]]) -> "Bits":
        """Those of some molecules."""
        own = [molecules.fingerprint_bits(int(row)) for row in rows]
        start = offsets(len(bits) for bits in own)[:-1]
        flat = np.concatenate(own).astype(np.int64)
        return Bits(torch.from_numpy(flat), torch.from_numpy(start))

    def log_odds(self, weight: Tensor) -> Tensor:
        """Of being a measured molecule, (G,), by weights of bits and a constant, (F + 1,)."""
        table = weight[:-1, None]
        return embedding_bag(self.bits, table, self.offset, mode="sum")[:, 0] + weight[-1]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which structures of fold train to keep.

    Attributes:
        limit: So many, besides measured ones.
        min_atoms: Smaller ones are left out, and measured ones so small not learnt from.
        max_atoms: Larger ones likewise; None for no limit.
        measured: Whether the measured molecules of fold train are kept, too.
        seed: Of the draw.
    """

    limit: int
    min_atoms: int = 1
    max_atoms: int | None = None
    measured: bool = False
    seed: int = 1

    def sized(self, molecules: Molecules) -> NDArray[np.bool_]:
        """Which molecules are neither too small nor too large, (G,)."""
        most = self.max_atoms or int(molecules.n_heavy.max(initial=0))
        return (molecules.n_heavy >= self.min_atoms) & (molecules.n_heavy <= most)


def select_alike(structures: Path, like: Path, out: Path, wanted: Wanted) -> dict[str, object]:
    """Write the structures of a prepared folder that are most like measured ones.

    Args:
        structures: Folder made by `duallgd data structures`.
        like: Folder made by `duallgd data spectra`; its fold train is looked at.
        out: Folder for the arrays. Other folds than train are kept whole.
        wanted: How many structures of fold train, and of which sizes.

    Returns:
        The manifest.

    Raises:
        UsageError: `structures` holds spectra, or `like` holds none.
        UnreadableError: One of them has no molecule of these sizes in fold train.
    """
    source = read_manifest(structures)
    if source.get("kind") == "spectra":
        raise UsageError(f"{structures} holds spectra; give a folder of 'duallgd data structures'")
    spectra = load_spectra(like)
    molecules, measured = load_molecules(structures), spectra.molecules
    train = np.flatnonzero(molecules.in_folds("train") & wanted.sized(molecules))
    known = np.unique(spectra.molecule[spectra.spectrum_fold == FOLDS.index("train")])
    known = known[wanted.sized(measured)[known]]
    if wanted.measured:
        train = train[~np.isin(molecules.inchikey[train], measured.inchikey[known])]
    if not len(train) or not len(known):
        nothing = like if len(train) else structures
        raise UnreadableError(
            f"{nothing} holds no molecule of fold train between --min-atoms and --max-atoms heavy "
            "atoms; ask for other sizes, or give another folder"
        )
    generator = np.random.default_rng(wanted.seed)
    compared = np.sort(generator.permutation(train)[:_COMPARED])
    weight = fit_likeness(Bits.of(measured, known), Bits.of(molecules, compared))
    log_odds = Bits.of(molecules, train).log_odds(weight).numpy()
    drawn = _drawn(log_odds, wanted.limit, generator)
    held_out = np.flatnonzero(~molecules.in_folds("train"))
    rows = np.sort(np.concatenate([train[drawn], held_out]))
    arrays = take(molecules.arrays(), rows)
    if wanted.measured:
        arrays = join(Molecules(**take(measured.arrays(), known)), Molecules(**arrays))
    own = {
        "molecules": len(arrays["fold"]),
        "made_from": origin(structures, like_sha256=sha256(like / MANIFEST), **asdict(wanted)),
        "mean_log_odds": float(log_odds[drawn].mean()),
        "mean_log_odds_before": float(log_odds.mean()),
    }
    return write(out, arrays, record_of(source) | own)


def _drawn(
    log_odds: NDArray[np.float64], limit: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Places of structures drawn without replacement by their odds."""
    # The largest of log-weights with Gumbel noise are just that.
    noise = generator.gumbel(size=len(log_odds))
    return np.argsort(-(log_odds.clip(max=_FURTHEST) + noise))[:limit]


def fit_likeness(known: Bits, others: Bits) -> Tensor:
    """Weights of Morgan bits that tell known molecules from others, float64 (F + 1,).

    Logistic regression, both kinds counting the same, with a small penalty on all weights but the
    last, the constant.
    """
    weight = torch.zeros(_N_BITS + 1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        parts = [
            binary_cross_entropy_with_logits(z, torch.full_like(z, is_known))
            for z, is_known in ((known.log_odds(weight), 1.0), (others.log_odds(weight), 0.0))
        ]
        total = sum(parts, _DECAY / 2 * weight[:-1].square().sum())
        total.backward()
        return total

    optimiser.step(loss)
    return weight.detach()
