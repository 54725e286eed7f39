"""Scores of ranked candidates against the truth, by MassSpecGym's and by the reference's rules.

Letters: B spectra. Both rule sets take the candidates as ranked: a candidate that is no molecule
or repeats an earlier one keeps its rank, and a spectrum with none scores 0, 0 and the MCES ceiling.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.errors import UnreadableError
from duallgd_cli.evaluate import mces as mces_distance
from duallgd_cli.evaluate.bootstrap import Estimate, independent, per_molecule, per_spectrum
from duallgd_cli.evaluate.mces import CAP, LIMIT_S, THRESHOLD, Interval, Pair, Search
from duallgd_cli.evaluate.molecules import Molecule, canonical_tautomer, molecule

TOP_K: Final = (1, 10)
# The reference bounds the search by 100 too, and by twice the number of bonds of the truth.
_REFERENCE_THRESHOLD: Final = 100.0


class Entry(NamedTuple):
    """One spectrum to score; a plain tuple of the four will do.

    Attributes:
        spectrum_id: Unique among the entries.
        molecule: Name of the true molecule: spectra of one molecule are one cluster.
        truth: SMILES of the true molecule.
        candidates: SMILES, best first.
    """

    spectrum_id: str
    molecule: str
    truth: str
    candidates: Sequence[str]


@dataclass(frozen=True, slots=True)
class Scorer:
    """What to compute and with which means.

    Attributes:
        top_k: Ranks to report, ascending.
        mces: Compute MCES distances, in both rule sets: the slow part.
        reference: Add the columns of the reference's rules.
        mces_limit_s: Time limit of one pair, s.
        workers: Processes; 1 computes in this one.
        cache: File of solved pairs, or None.
    """

    top_k: tuple[int, ...] = TOP_K
    mces: bool = False
    reference: bool = False
    mces_limit_s: float = LIMIT_S
    workers: int = 1
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class MCESWork:
    """Pairs that had to be solved, and those whose time limit ran out.

    A pair out of time counts as the worst that it could score.
    """

    needed: frozenset[Pair] = frozenset()
    timeouts: frozenset[Pair] = frozenset()

    def __or__(self, other: "MCESWork") -> "MCESWork":
        return MCESWork(self.needed | other.needed, self.timeouts | other.timeouts)


@dataclass(frozen=True, slots=True)
class Summary:
    """One column over all spectra, with 95 % intervals.

    Attributes:
        per_spectrum: Mean over spectra; molecules resampled.
        per_molecule: Mean over molecules of their spectra's mean; molecules resampled.
        independent: Mean over spectra; spectra resampled, as MassSpecGym does.
    """

    per_spectrum: Estimate
    per_molecule: Estimate
    independent: Estimate


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of every spectrum.

    Attributes:
        spectrum_id: B names.
        molecule: Cluster of each spectrum, B names.
        columns: By name, such as ``accuracy@1``, float64 (B,).
        mces_work: Pairs solved for each of the columns ``mces`` and ``reference_mces``.
    """

    spectrum_id: tuple[str, ...]
    molecule: tuple[str, ...]
    columns: Mapping[str, NDArray[np.float64]]
    mces_work: Mapping[str, MCESWork] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.spectrum_id)

    def summary(self, seed: int = 0) -> dict[str, Summary]:
        """Means and intervals of every column."""
        names = list(self.columns)
        values = np.column_stack([self.columns[name] for name in names])
        estimates = zip(
            names,
            per_spectrum(values, self.molecule, seed=seed),
            per_molecule(values, self.molecule, seed=seed),
            independent(values, seed=seed),
            strict=True,
        )
        return {name: Summary(*rest) for name, *rest in estimates}

    def minus(self, other: "Scores", names: Sequence[str], seed: int = 0) -> dict[str, Estimate]:
        """Mean differences to the scores of the same spectra by another method.

        Args:
            other: Of the same spectra in the same order.
            names: Columns to compare.
            seed: Of the bootstrap, which resamples molecules.
        """
        values = np.column_stack([self.columns[name] - other.columns[name] for name in names])
        return dict(zip(names, per_spectrum(values, self.molecule, seed=seed), strict=True))

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


def score(
    entries: Iterable[Entry | tuple[str, str, str, Sequence[str]]],
    scorer: Scorer | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> Scores:
    """Score ranked candidates.

    Columns: ``accuracy@k`` (first block of the InChIKey), ``tanimoto@k`` (largest), ``mces@k``
    (smallest; with `Scorer.mces`), ``oracle_accuracy`` and ``oracle_tanimoto`` (over all candidates
    given), ``candidates``, ``valid``, ``formula_exact`` and ``distinct`` (counts), and
    ``reference_...`` with `Scorer.reference`.

    Args:
        entries: Spectra with their truth and candidates.
        scorer: Settings; top 1 and 10 without MCES by default.
        advance: Called with the number of spectra done.

    Raises:
        UnreadableError: A truth is no molecule.
        UsageError: MCES was asked for and cannot be computed here.
    """
    scorer = scorer or Scorer()
    if scorer.mces:
        mces_distance.require()
    listed = [Entry(*entry) for entry in entries]
    rows: list[dict[str, float]] = [{} for _ in listed]
    work: dict[str, MCESWork] = {}
    for done, (index, result) in enumerate(_run(listed, scorer), start=1):
        rows[index] = result.row
        for name, done_here in result.work.items():
            work[name] = work.get(name, MCESWork()) | done_here
        advance(done)
    names = list(rows[0]) if rows else []
    return Scores(
        spectrum_id=tuple(entry.spectrum_id for entry in listed),
        molecule=tuple(entry.molecule for entry in listed),
        columns={name: np.array([row[name] for row in rows], dtype=np.float64) for name in names},
        mces_work=work,
    )


@dataclass(frozen=True, slots=True)
class _Result:
    row: dict[str, float]
    solved: dict[Pair, Interval]
    work: dict[str, MCESWork]


def _run(entries: list[Entry], scorer: Scorer) -> Iterator[tuple[int, _Result]]:
    if scorer.workers == 1:
        for index, entry in enumerate(entries):
            yield index, _kept(_score_one(entry, scorer), scorer.cache)
        return
    # Spawned, not forked: the parent may hold threads of torch or a GPU.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(scorer.workers, mp_context=context) as pool:
        waiting: dict[Future[_Result], int] = {
            pool.submit(_score_one, entry, scorer): index for index, entry in enumerate(entries)
        }
        try:
            for future in as_completed(waiting):
                yield waiting[future], _kept(future.result(), scorer.cache)
        finally:
            pool.shutdown(cancel_futures=True)


def _kept(result: _Result, cache: Path | None) -> _Result:
    if cache is not None:
        mces_distance.save_pairs(cache, result.solved)
    return result


def _score_one(entry: Entry, scorer: Scorer) -> _Result:
    truth = molecule(entry.truth)
    if truth is None:
        raise UnreadableError(
            f"the true structure of {entry.spectrum_id} is {entry.truth!r}, which is no molecule; "
            "correct it or leave the spectrum out"
        )
    candidates = [molecule(smiles) for smiles in entry.candidates]
    row = _plain(truth, candidates, scorer.top_k) | _counts(truth, candidates)
    parts: dict[str, tuple[list[float], Search]] = {}
    if scorer.mces:
        known = _known(scorer.cache, truth, candidates)
        parts["mces"] = _minima(truth, candidates, (THRESHOLD, CAP), scorer, known)
    if scorer.reference:
        kept = _reference_order(candidates)
        canonical = canonical_tautomer(truth.smiles) or truth
        tautomers = [canonical_tautomer(found.smiles) or found for found in kept]
        row |= _reference(truth, kept, canonical, tautomers, scorer.top_k)
        if scorer.mces:
            # Reference: the search starts from twice the number of bonds of the truth.
            limits = (_REFERENCE_THRESHOLD, 2.0 * truth.n_bonds)
            known |= _known(scorer.cache, canonical, tautomers) | parts["mces"][1].solved
            parts["reference_mces"] = _minima(canonical, tautomers, limits, scorer, known)
    return _with_distances(row, parts, scorer.top_k)


def _with_distances(
    row: dict[str, float], parts: Mapping[str, tuple[list[float], Search]], top_k: Sequence[int]
) -> _Result:
    solved: dict[Pair, Interval] = {}
    for name, (distances, search) in parts.items():
        row |= {f"{name}@{k}": d for k, d in zip(top_k, distances, strict=True)}
        solved |= search.solved
    work = {
        name: MCESWork(frozenset(search.needed), frozenset(search.timeouts))
        for name, (_, search) in parts.items()
    }
    return _Result(row, solved, work)


def _plain(
    truth: Molecule, candidates: Sequence[Molecule | None], top_k: Sequence[int]
) -> dict[str, float]:
    hits = [_same(truth.block, found.block) if found else 0.0 for found in candidates]
    similar = [tanimoto(truth.bits, found.bits) if found else 0.0 for found in candidates]
    row = {f"accuracy@{k}": max(hits[:k], default=0.0) for k in top_k}
    row |= {f"tanimoto@{k}": max(similar[:k], default=0.0) for k in top_k}
    row["oracle_accuracy"] = max(hits, default=0.0)
    row["oracle_tanimoto"] = max(similar, default=0.0)
    return row


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


def _reference(
    truth: Molecule,
    candidates: Sequence[Molecule],
    canonical: Molecule,
    tautomers: Sequence[Molecule],
    top_k: Sequence[int],
) -> dict[str, float]:
    """Reference: the match is the whole InChI; similarity is that of canonical tautomers."""
    hits = [_same(truth.inchi, found.inchi) for found in candidates]
    similar = [tanimoto(canonical.bits, found.bits) for found in tautomers]
    row = {f"reference_accuracy@{k}": max(hits[:k], default=0.0) for k in top_k}
    return row | {f"reference_tanimoto@{k}": max(similar[:k], default=0.0) for k in top_k}


def _minima(
    truth: Molecule,
    candidates: Sequence[Molecule | None],
    limits: tuple[float, float],
    scorer: Scorer,
    known: dict[Pair, Interval],
) -> tuple[list[float], Search]:
    search = Search(scorer.mces_limit_s, known=known)
    smiles = [found.smiles if found else None for found in candidates]
    threshold, ceiling = limits
    minima = search.minima(truth.smiles, smiles, scorer.top_k, threshold=threshold, ceiling=ceiling)
    return minima, search


def _known(
    cache: Path | None, truth: Molecule, candidates: Sequence[Molecule | None]
) -> dict[Pair, Interval]:
    if cache is None:
        return {}
    others = {found.smiles for found in candidates if found is not None}
    pairs = sorted((min(truth.smiles, s), max(truth.smiles, s)) for s in others)
    return mces_distance.load_pairs(cache, pairs)


def _same(first: str, second: str) -> float:
    return float(first == second and first != "")
