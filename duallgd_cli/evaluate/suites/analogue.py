"""A rival without a network: the training molecules whose spectra look most alike.

Its candidates are training molecules, so its accuracy is zero wherever training and test molecules
are kept apart; its similarity is what memory alone is worth.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.evaluate.molecules import molecule
from duallgd_cli.evaluate.suites.suite import Row
from duallgd_cli.evaluate.tables import Predicted, id_column

if TYPE_CHECKING:
    from scipy.sparse import csr_array

logger = logging.getLogger(__name__)

LIBRARY_FOLD: Final = "train"
_BIN_MZ: Final = 0.02
_LARGEST_MZ: Final = 2000.0
_PRECURSOR_MARGIN_MZ: Final = 0.5
_CHUNK: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """Training spectra as unit vectors over binned peaks and neutral losses.

    Attributes:
        vectors: Of L spectra, float32 (L, 2 x bins), sparse.
        smiles: Of each spectrum, L.
        positive: Whether it was measured in positive mode, bool (L,).
    """

    vectors: "csr_array"
    smiles: tuple[str, ...]
    positive: NDArray[np.bool_]


def library(rows: Iterable[Row], fold: str = LIBRARY_FOLD) -> Library | None:
    """Build the library of one fold; None if the fold holds no spectrum.

    Args:
        rows: In the MassSpecGym layout.
        fold: Value of the column ``fold``.
    """
    kept = [row for row in rows if row.get("fold") == fold]
    if not kept:
        return None
    logger.info("%d training spectra to compare with", len(kept))
    return Library(
        vectors=_vectors(kept),
        smiles=tuple(row["smiles"] for row in kept),
        positive=np.array([_is_positive(row) for row in kept]),
    )


def nearest(queries: Sequence[Row], known: Library, n_candidates: int) -> dict[str, Predicted]:
    """Distinct training molecules by falling cosine of their best spectrum of the same polarity.

    Args:
        queries: Spectra; only what a lab measures is used.
        known: Training spectra.
        n_candidates: Molecules for each query, at most.
    """
    found = {}
    name = id_column(queries, "the benchmark")
    blocks = [_block(smiles) for smiles in known.smiles]
    for start in range(0, len(queries), _CHUNK):
        part = queries[start : start + _CHUNK]
        cosine = (_vectors(part) @ known.vectors.T).toarray()
        for query, values in zip(part, cosine, strict=True):
            values[known.positive != _is_positive(query)] = -1.0
            order = np.argsort(-values, kind="stable")
            chosen: dict[str, str] = {}
            for place in order[values[order] > 0].tolist():
                chosen.setdefault(blocks[place], known.smiles[place])
                if len(chosen) == n_candidates:
                    break
            ranked = tuple(chosen.values())
            found[query[name]] = Predicted(ranked, (float("nan"),) * len(ranked))
    return found


def _vectors(rows: Sequence[Row]) -> "csr_array":
    from scipy.sparse import csr_array  # only the `evaluate` extra brings scipy

    n_bins = int(_LARGEST_MZ / _BIN_MZ)
    starts, columns, values = [0], [], []
    for row in rows:
        column, value = _binned(row, n_bins)
        columns.append(column)
        values.append(value)
        starts.append(starts[-1] + column.size)
    matrix = csr_array(
        (np.concatenate(values), np.concatenate(columns), np.array(starts)),
        shape=(len(rows), 2 * n_bins),
    )
    matrix.sum_duplicates()
    length = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1))).ravel()
    scale = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    matrix.data *= np.repeat(scale, np.diff(matrix.indptr)).astype(np.float32)
    return matrix


def _binned(row: Row, n_bins: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Bins of the peaks and of their neutral losses with the roots of the intensities.

    The precursor itself is left out: within one formula it says nothing.
    """
    mz, intensity = _numbers(row["mzs"]), _numbers(row["intensities"])
    precursor = float(row["precursor_mz"])
    keep = (mz < min(precursor - _PRECURSOR_MARGIN_MZ, _LARGEST_MZ)) & (intensity > 0)
    mz, root = mz[keep], np.sqrt(intensity[keep]).astype(np.float32)
    peak = (mz / _BIN_MZ).astype(np.int64)
    loss = np.minimum(((precursor - mz) / _BIN_MZ).astype(np.int64), n_bins - 1) + n_bins
    return np.concatenate([peak, loss]), np.concatenate([root, root])


def _numbers(text: str) -> NDArray[np.float64]:
    return np.array(text.strip("[] ").replace(",", " ").split(), dtype=np.float64)


def _is_positive(row: Row) -> bool:
    return not row.get("adduct", "").endswith("-")


def _block(smiles: str) -> str:
    found = molecule(smiles)
    return found.block if found else smiles
