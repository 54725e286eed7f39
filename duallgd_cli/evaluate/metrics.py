"""Scores of ranked candidates against the truth, by MassSpecGym's and by the reference's rules.

Letters: B spectra. Both rule sets take the candidates as ranked: a candidate that is no molecule
or repeats an earlier one keeps its rank, and a spectrum with none scores 0, 0 and the MCES ceiling.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.errors import UnreadableError, clip, quote
from duallgd_cli.evaluate import mces
from duallgd_cli.evaluate.intervals import (
    Estimate,
    independent,
    per_molecule,
    per_spectrum,
    share,
    share_difference,
)
from duallgd_cli.evaluate.mces import Interval, Pair, Search
from duallgd_cli.evaluate.molecules import Molecule, canonical_tautomer, molecule
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Predicted, Truth
from duallgd_cli.runtime import available_cores

# The reference bounds the search by 100 too, and by twice the number of bonds of the truth.
_REFERENCE_THRESHOLD: Final = 100.0


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of every spectrum.

    Attributes:
        spectrum_id: B names.
        molecule: Cluster of each spectrum, B names.
        columns: By name, such as ``accuracy@1``, float64 (B,).
        mces_work: For each of the columns ``mces`` and ``reference_mces``, how many ``pairs`` had
            to be solved, and ``timeouts``: those whose time limit ran out, each counted as the
            worst that it could score.
    """

    spectrum_id: tuple[str, ...]
    molecule: tuple[str, ...]
    columns: Mapping[str, NDArray[np.float64]]
    mces_work: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.spectrum_id)

    def summary(self, seed: int = 0) -> dict[str, dict[str, Any]]:
        """Mean of every column with its 95 % interval, in three ways.

        ``per_spectrum`` is the mean over spectra and ``per_molecule`` the mean over molecules of
        their spectra's mean, with intervals for spectra clustered by molecule: Wilson's for shares
        of right answers, else the bootstrap's. ``independent`` resamples spectra, as MassSpecGym
        does.
        """
        names, values = list(self.columns), np.column_stack(list(self.columns.values()))
        shares = {
            name: share(self.columns[name], self.molecule, by_molecule=True)
            for name in filter(is_share, names)
        }
        ways = {
            "per_spectrum": self.means(names, seed),
            "per_molecule": _named(names, per_molecule(values, self.molecule, seed=seed)) | shares,
            "independent": _named(names, independent(values, seed=seed)),
        }
        return {name: {way: asdict(ways[way][name]) for way in ways} for name in names}

    def means(self, names: Sequence[str], seed: int = 0) -> dict[str, Estimate]:
        """Means over spectra of some columns with intervals for clustered spectra."""
        values = np.column_stack([self.columns[name] for name in names])
        found = _named(names, per_spectrum(values, self.molecule, seed=seed))
        for name in filter(is_share, names):
            found[name] = share(self.columns[name], self.molecule)
        return found

    def minus(self, other: "Scores", names: Sequence[str], seed: int = 0) -> dict[str, Estimate]:
        """Mean differences to the scores of the same spectra by another method.

        Args:
            other: Of the same spectra in the same order.
            names: Columns to compare.
            seed: Of the bootstrap, which resamples molecules.
        """
        values = np.column_stack([self.columns[name] - other.columns[name] for name in names])
        found = _named(names, per_spectrum(values, self.molecule, seed=seed))
        for name in filter(is_share, names):
            mine, theirs = self.columns[name], other.columns[name]
            found[name] = share_difference(mine, theirs, self.molecule)
        return found

    def subset(self, keep: NDArray[np.bool_]) -> "Scores":
        """Scores of some of the spectra.

        Args:
            keep: Which, bool (B,).
        """
        rows = np.flatnonzero(keep)
        return replace(
            self,
            spectrum_id=tuple(self.spectrum_id[row] for row in rows),
            molecule=tuple(self.molecule[row] for row in rows),
            columns={name: column[rows] for name, column in self.columns.items()},
        )


def _named(names: Sequence[str], estimates: Sequence[Estimate]) -> dict[str, Estimate]:
    return dict(zip(names, estimates, strict=True))


def is_share(column: str) -> bool:
    """Whether a column holds right (1) and wrong (0) answers."""
    return "accuracy" in column


def score(
    truths: Sequence[Truth],
    predicted: Sequence[Predicted],
    settings: EvaluateSettings,
    advance: Callable[[int], None] = lambda done: None,
) -> Scores:
    """Score ranked candidates.

    Columns: ``accuracy@k`` (first block of the InChIKey), ``tanimoto@k`` (largest), ``mces@k``
    (smallest), ``oracle_accuracy`` and ``oracle_tanimoto`` (over all candidates given),
    ``candidates``, ``valid``, ``formula_exact`` and ``distinct`` (counts), and ``reference_...``
    where the settings ask for the authors' rules.

    Args:
        truths: What the spectra are, B of them; those of one molecule are one cluster.
        predicted: Ranked structures of the same spectra.
        settings: Ranks, MCES distances and processes.
        advance: Called with the number of spectra done.

    Raises:
        UnreadableError: A truth is no molecule.
        UsageError: MCES was asked for and cannot be computed here.
    """
    if settings.mces:
        mces.require()
    rows: list[dict[str, float]] = []
    searches: dict[str, Search] = {}
    for row, made in _run(truths, predicted, settings):
        rows.append(row)
        for name, search in made.items():
            if settings.mces_cache is not None:
                mces.save_pairs(settings.mces_cache, search.solved)
            total = searches.setdefault(name, Search())
            total.needed |= search.needed
            total.timeouts |= search.timeouts
        advance(len(rows))
    return Scores(
        spectrum_id=tuple(truth.spectrum_id for truth in truths),
        molecule=tuple(truth.molecule for truth in truths),
        columns={name: np.array([row[name] for row in rows]) for name in (rows or [{}])[0]},
        mces_work={
            name: {"pairs": len(search.needed), "timeouts": len(search.timeouts)}
            for name, search in searches.items()
        },
    )


# Scores of one spectrum, and the searches for MCES distances behind them.
_Result = tuple[dict[str, float], dict[str, Search]]


def _run(
    truths: Sequence[Truth], predicted: Sequence[Predicted], settings: EvaluateSettings
) -> Iterator[_Result]:
    one = partial(_score_one, settings=settings)
    workers = settings.workers or available_cores()
    if workers == 1:
        yield from map(one, truths, predicted)
        return
    # Spawned, not forked: the parent may hold threads of torch or a GPU.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        try:
            yield from pool.map(one, truths, predicted)
        finally:
            pool.shutdown(cancel_futures=True)


def _score_one(spectrum: Truth, ranked: Predicted, settings: EvaluateSettings) -> _Result:
    truth = molecule(spectrum.smiles)
    if truth is None:
        raise UnreadableError(
            f"the true structure of {clip(spectrum.spectrum_id)} is {quote(spectrum.smiles)}, "
            "which is no molecule; correct it or leave the spectrum out"
        )
    top_k = settings.top_k
    candidates = [molecule(smiles) for smiles in ranked.smiles]
    hits = [_same(truth.block, found.block) if found else 0.0 for found in candidates]
    similar = [tanimoto(truth.bits, found.bits) if found else 0.0 for found in candidates]
    row = _at_ranks("accuracy", hits, top_k) | _at_ranks("tanimoto", similar, top_k)
    row["oracle_accuracy"] = max(hits, default=0.0)
    row["oracle_tanimoto"] = max(similar, default=0.0)
    row |= _counts(truth, candidates)
    searches: dict[str, Search] = {}
    distances: dict[str, float] = {}
    if settings.mces:
        searches["mces"] = search = _search(settings, truth, candidates, {})
        smiles = [found.smiles if found else None for found in candidates]
        minima = search.minima(truth.smiles, smiles, top_k)
        distances = {f"mces@{k}": value for k, value in zip(top_k, minima, strict=True)}
    if settings.by_reference:
        # Reference: the match is the whole InChI; similarity is that of canonical tautomers.
        kept = _reference_order(candidates)
        canonical = canonical_tautomer(truth.smiles) or truth
        tautomers = [canonical_tautomer(found.smiles) or found for found in kept]
        hits = [_same(truth.inchi, found.inchi) for found in kept]
        similar = [tanimoto(canonical.bits, found.bits) for found in tautomers]
        row |= _at_ranks("reference_accuracy", hits, top_k)
        row |= _at_ranks("reference_tanimoto", similar, top_k)
        if settings.mces:
            known = searches["mces"].known | searches["mces"].solved
            searches["reference_mces"] = search = _search(settings, canonical, tautomers, known)
            minima = search.minima(
                canonical.smiles,
                [found.smiles for found in tautomers],
                top_k,
                threshold=_REFERENCE_THRESHOLD,
                # Reference: the search starts from twice the number of bonds of the truth.
                ceiling=2.0 * truth.n_bonds,
            )
            for k, value in zip(top_k, minima, strict=True):
                distances[f"reference_mces@{k}"] = value
    return row | distances, searches


def _at_ranks(name: str, values: Sequence[float], top_k: Sequence[int]) -> dict[str, float]:
    """The best of the first k, for each k."""
    return {f"{name}@{k}": max(values[:k], default=0.0) for k in top_k}


def _counts(truth: Molecule, candidates: Sequence[Molecule | None]) -> dict[str, float]:
    valid = [found for found in candidates if found is not None]
    exact = [found for found in valid if _same(truth.formula, found.formula)]
    return {
        "candidates": float(len(candidates)),
        "valid": float(len(valid)),
        "formula_exact": float(len(exact)),
        "distinct": float(len({found.block or found.smiles for found in valid})),
    }


def _reference_order(candidates: Sequence[Molecule | None]) -> list[Molecule]:
    """Reference: ranks are of distinct InChIs of valid, connected molecules."""
    valid = [found for found in candidates if found and found.inchi and "." not in found.smiles]
    first: dict[str, Molecule] = {}
    for found in valid:
        first.setdefault(found.inchi, found)
    return list(first.values())


def _search(
    settings: EvaluateSettings,
    truth: Molecule,
    candidates: Sequence[Molecule | None],
    known: Mapping[Pair, Interval],
) -> Search:
    """A search that knows what the file of solved pairs holds about the candidates."""
    cached: Mapping[Pair, Interval] = {}
    if settings.mces_cache is not None:
        others = {found.smiles for found in candidates if found is not None}
        pairs = sorted((min(truth.smiles, s), max(truth.smiles, s)) for s in others)
        cached = mces.load_pairs(settings.mces_cache, pairs)
    return Search(settings.mces_limit, known={**cached, **known})


def _same(first: str, second: str) -> float:
    return float(first == second and first != "")
