"""Structures like those that have been measured, drawn from many that nobody has.

Large collections hold what chemists make; spectra are taken of what occurs. A domain classifier
learns to tell the training molecules of measured spectra from structures by their Morgan bits;
structures are then drawn without replacement, with its odds as weights. The measured molecules may
be kept with them, for what is measured often, as lipids are, may hardly occur among structures.

Letters: G molecules, F fingerprint bits.
"""

from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding_bag

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.prepared import (
    BLOCK,
    FOLDS,
    MANIFEST,
    Molecules,
    load_molecules,
    load_spectra,
    read_manifest,
    write_blocks,
)
from duallgd_cli.errors import UnreadableError
from duallgd_cli.files import sha256
from duallgd_cli.model.tensors import minimum

_COMPARED: Final = 40_000
_DECAY: Final = 0.002
_FURTHEST: Final = 4.0
_OF_A_FOLDER: Final = ("format_version", "arrays")  # in a manifest, not of its data
Bits = tuple[Tensor, Tensor]


def morgan_bits(molecules: Molecules, rows: NDArray[np.int64]) -> Bits:
    """Set Morgan bits of G molecules, int64, one after the other, and where each begins, (G,)."""
    owner, bits = molecules.bits_of(rows)
    start = np.searchsorted(owner, np.arange(len(rows)))
    return torch.from_numpy(bits), torch.from_numpy(start)


def log_odds(bits: Bits, weight: Tensor) -> Tensor:
    """Of being a measured molecule, (G,), by weights of bits and a constant, (F + 1,)."""
    return embedding_bag(bits[0], weight[:-1, None], bits[1], mode="sum")[:, 0] + weight[-1]


def domain_classifier(known: Bits, others: Bits) -> Tensor:
    """Weights of Morgan bits that tell known molecules from others, float64 (F + 1,).

    Logistic regression, both groups counting the same, with a small penalty on all weights but the
    last, the constant.
    """

    def loss(weight: Tensor) -> Tensor:
        parts = [
            binary_cross_entropy_with_logits(z, torch.full_like(z, is_known))
            for z, is_known in ((log_odds(known, weight), 1.0), (log_odds(others, weight), 0.0))
        ]
        return sum(parts, _DECAY / 2 * weight[:-1].square().sum())

    return minimum(loss, torch.zeros(FINGERPRINT_BITS + 1, dtype=torch.float64))


def select_alike(
    structures: Path,
    output: Path,
    reference_spectra: Path,
    limit: int,
    *,
    min_atoms: int = 1,
    max_atoms: int = 100,
    with_measured: bool = False,
    seed: int = 1,
) -> dict[str, object]:
    """Write the structures of fold train that are most like measured molecules; others are kept.

    Of prepared structures so many are kept as the limit says, like those of fold train of prepared
    spectra; smaller and larger molecules are left out on both sides. Those of the spectra may be
    kept, too. No more of them than a block are in memory.
    """
    spectra = load_spectra(reference_spectra)
    molecules, measured = load_molecules(structures), spectra.molecules
    trained = spectra.molecule[spectra.spectrum_fold == FOLDS.index("train")]
    is_known = np.isin(np.arange(len(measured)), trained)
    train, known = (
        np.flatnonzero(some & (own.n_heavy >= min_atoms) & (own.n_heavy <= max_atoms))
        for own, some in ((molecules, molecules.in_folds("train")), (measured, is_known))
    )
    if with_measured:
        train = train[~np.isin(molecules.inchikey[train], measured.inchikey[known])]
    if not len(train) or not len(known):
        raise UnreadableError(
            f"{reference_spectra if len(train) else structures} holds no molecule of fold train of "
            f"{min_atoms} to {max_atoms} heavy atoms; give alike or large in the recipe other "
            "sizes, or leave large out"
        )
    generator = np.random.default_rng(seed)
    compared = np.sort(generator.permutation(train)[:_COMPARED])
    weight = domain_classifier(morgan_bits(measured, known), morgan_bits(molecules, compared))
    odds = torch.cat([log_odds(morgan_bits(molecules, some), weight) for some in _blocks(train)])
    # The largest of log-weights with Gumbel noise are a draw without replacement.
    noise = generator.gumbel(size=len(odds))
    drawn = np.argsort(-(odds.clamp(max=_FURTHEST).numpy() + noise))[:limit]
    rows = np.concatenate([train[drawn], np.flatnonzero(~molecules.in_folds("train"))])
    taken = [(measured, known)] * with_measured + [(molecules, np.sort(rows))]
    source = {k: v for k, v in read_manifest(structures).items() if k not in _OF_A_FOLDER}
    record = source | {
        "molecules": sum(len(own) for _, own in taken),
        "made_from": {
            "manifest_sha256": sha256(structures / MANIFEST),
            "reference_sha256": sha256(reference_spectra / MANIFEST),
            **{"limit": limit, "min_atoms": min_atoms, "max_atoms": max_atoms},
            **{"measured": with_measured, "seed": seed},
        },
        "mean_log_odds": float(odds[drawn].mean()),
        "mean_log_odds_before": float(odds.mean()),
    }  # fmt: skip
    arrays = (some.take(rows).arrays() for some, own in taken for rows in _blocks(own))
    return write_blocks(output, arrays, lambda: record)


def _blocks(rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Rows in parts that can be in memory."""
    return np.array_split(rows, max(1, -(-len(rows) // BLOCK)))
