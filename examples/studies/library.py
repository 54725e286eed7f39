"""How probable the best hit of a spectral library is right, and how far that can be trusted.

    python examples/studies/library.py massbank.tsv.xz

The table is one of MassBank in the MassSpecGym layout, whose accessions name the contributor:
MSBNK-AAFC-AC000001 is of AAFC. Queries are at most three spectra of each molecule of fold train
that has spectra of several contributors. Each is searched twice, among the spectra of fold train
that others contributed: as they are, and without those of its molecule. Of what the search finds,
`sources.library.best_hit` takes the best hit of the query's formula.

Printed are the weights for `sources.library`, what models of fewer and of more features miss,
and how stated probabilities hold: on molecules of fold train by five-fold cross-validation, and on
those of fold val (searched among both folds) with the weights that the package has.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import command
import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from duallgd_cli.evaluate.calibrate import logistic
from duallgd_cli.ranking.ranking import sigmoid
from duallgd_cli.sources.library import (
    KEPT,
    WEIGHTS,
    Hit,
    Library,
    best_hit,
    features_of,
    probability_of,
)
from duallgd_cli.spectra.features import CleaningSettings, clean
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.types import Spectrum

_FOLDS: Final = 5
_QUERIES: Final = 3  # of a molecule
_PPM: Final = 25.0  # somewhat more than the search allows
_BINS: Final = 10
_SURE: Final = 0.9
_SHARES: Final = (0.2, 0.5, 0.8)
Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


class Entry(NamedTuple):
    """A spectrum of the table.

    Attributes:
        contributor: Who measured it.
        block: First block of the InChIKey of its molecule.
        formula: Of its molecule.
        smiles: Of its molecule.
        fold: Of its molecule.
        kept: As a library keeps it.
        query: As one that is predicted is cleaned.
    """

    contributor: str
    block: str
    formula: str
    smiles: str
    fold: str
    kept: Spectrum
    query: Spectrum


@dataclass(frozen=True, slots=True)
class Case:
    """The best hit of a query in one world.

    Attributes:
        block: Of the molecule of the query.
        is_held: Whether the library holds the molecule.
        is_right: Whether the hit is of this molecule.
        hit: As the package describes it.
        conditions: Whether the instrument is another, and how far the logarithms of the collision
            energies are apart; 0 where nobody knows, with whether that is so.
    """

    block: str
    is_held: bool
    is_right: bool
    hit: Hit
    conditions: tuple[float, ...]


def entries_of(table: Path) -> list[Entry]:
    """Spectra with peaks of the folds train and val, by precursor m/z."""
    entries = []
    for spectrum in read(str(table), keep_structures=True):
        about = spectrum.metadata
        kept, query = clean(spectrum, KEPT), clean(spectrum, CleaningSettings())
        if about["fold"] == "test" or kept.failure is not None or query.failure is not None:
            continue
        contributor = spectrum.spectrum_id.split("-")[1]
        texts = (about["inchikey"], about["formula"], about["smiles"], about["fold"])
        entries.append(Entry(contributor, *texts, kept, query))
    return sorted(entries, key=lambda entry: entry.kept.precursor_mz or 0.0)


def library_of(entries: Sequence[Entry], rows: Iterable[int]) -> Library:
    """A library of some spectra, whose names are their rows."""
    chosen = list(rows)
    kept = [entries[row].kept for row in chosen]
    return Library(
        "other contributors",
        [entries[row].smiles for row in chosen],
        list(map(str, chosen)),
        np.array([one.precursor_mz for one in kept], np.float64),
        np.array([one.polarity for one in kept], np.int8),
        np.array([one.mz.size for one in kept], np.int64),
        np.concatenate([one.mz for one in kept]),
        np.concatenate([one.intensity for one in kept]).astype(np.float32),
    )


def queries_of(entries: Sequence[Entry], fold: str) -> Iterator[Entry]:
    """Some spectra of each molecule that several contributors measured, first one of each."""
    of_molecule: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.fold == fold:
            of_molecule[entry.block].append(entry)
    rng = np.random.default_rng(0)
    for _, own in sorted(of_molecule.items()):
        seen: defaultdict[str, int] = defaultdict(int)
        ranked = []
        for place in rng.permutation(len(own)).tolist():
            contributor = own[place].contributor
            ranked.append((seen[contributor], len(ranked), own[place]))
            seen[contributor] += 1
        if len(seen) > 1:
            yield from (entry for _, _, entry in sorted(ranked, key=lambda one: one[:2])[:_QUERIES])


def cases_of(entries: Sequence[Entry], fold: str) -> tuple[list[Case], int]:
    """The best hits of the queries of a fold in both worlds, and the number of queries.

    Only spectra that others contributed and whose precursor is near are searched: the search takes
    no others for the same ion. Queries for whose molecule there is none are left out.
    """
    precursors = np.array([entry.kept.precursor_mz for entry in entries])
    folds = {"train", fold}
    cases, n_queries = [], 0
    for query in queries_of(entries, fold):
        near = (query.query.precursor_mz or 0.0) * (1 + np.array([-_PPM, _PPM]) * 1e-6)
        rows = [
            row
            for row in range(*np.searchsorted(precursors, near).tolist())
            if entries[row].contributor != query.contributor and entries[row].fold in folds
        ]
        without = [row for row in rows if entries[row].block != query.block]
        if len(without) == len(rows):
            continue
        n_queries += 1
        for is_held, chosen in ((True, rows), (False, without)):
            matches = library_of(entries, chosen).search([query.query]) if chosen else []
            best = best_hit(matches, query.formula, query.query.mz.size)
            if best is not None:
                match, hit = best
                found = entries[int(match.name)]
                is_right = found.block == query.block
                conditions = _conditions(query.query, found.query)
                cases.append(Case(query.block, is_held, is_right, hit, conditions))
    return cases, n_queries


def _conditions(query: Spectrum, found: Spectrum) -> tuple[float, ...]:
    is_other = bool(query.instrument and found.instrument and query.instrument != found.instrument)
    energies = query.collision_energy_ev, found.collision_energy_ev
    if not all(energies):
        return float(is_other), 0.0, 1.0
    apart = abs(math.log(energies[0] or 1.0) - math.log(energies[1] or 1.0))
    return float(is_other), apart, 0.0


def _missed(stated: Floats, right: Booleans) -> Floats:
    """Cross entropy of each, in nats."""
    return -np.log(np.where(right, stated, 1 - stated))


def calibration_error(stated: Floats, right: Booleans, weight: Floats) -> float:
    """Mean distance of stated probability and proportion of right ones, over ten bins."""
    bins = np.minimum((stated * _BINS).astype(int), _BINS - 1)
    apart = np.bincount(bins, weight * (stated - right), _BINS)
    return float(np.abs(apart).sum() / weight.sum())


def _cross_validated(features: Floats, right: Booleans, folds: NDArray[np.int64]) -> Floats:
    stated = np.zeros(len(right))
    for fold in range(_FOLDS):
        own = folds == fold
        stated[own] = sigmoid(features[own] @ logistic(features[~own], right[~own]))
    return stated


def _by_molecule(values: Floats, cases: Sequence[Case]) -> tuple[float, float]:
    """Mean, and its standard error over molecules."""
    blocks = np.unique([case.block for case in cases], return_inverse=True)[1]
    apart = np.bincount(blocks, values - values.mean())
    return float(values.mean()), float(np.sqrt((apart**2).sum()) / len(values))


def _models(cases: Sequence[Case]) -> dict[str, Floats]:
    """Features of models that are compared, (X, K) each."""
    whole = np.array([features_of(case.hit) for case in cases])
    conditions = np.array([case.conditions for case in cases])
    return {
        "similarity": whole[:, :2],
        "and peaks": whole[:, :4],
        "and rivals (the model)": whole,
        "and instrument, energy": np.hstack([whole, conditions]),
    }


def _reliability(title: str, stated: Floats, right: Booleans) -> Table:
    table = Table("stated", "hits", "mean stated", "right", title=title)
    bins = np.minimum((stated * _BINS).astype(int), _BINS - 1)
    for place in range(_BINS):
        own = bins == place
        if own.any():
            means = (f"{100 * values[own].mean():.0f} %" for values in (stated, right))
            table.add_row(
                f"{place / _BINS:.1f} to {(place + 1) / _BINS:.1f}", f"{own.sum()}", *means
            )
    return table


def _errors(stated: Floats, right: Booleans, held: Booleans) -> str:
    """Calibration errors for several shares of libraries that hold the molecule."""
    told = []
    for share in _SHARES:
        moved = sigmoid(np.log(stated / (1 - stated)) + math.log(share / (1 - share)))
        weight = np.where(held, share, 1 - share)
        told.append(f"{calibration_error(moved, right, weight):.3f} at share {share}")
    return f"expected calibration error {', '.join(told)}"


def _counts(cases: Sequence[Case], n_queries: int) -> str:
    n_held = sum(case.is_held for case in cases)
    return (
        f"{n_queries} queries, each with and without its molecule in the library; of {n_held} and "
        f"{len(cases) - n_held} there is a hit of the formula (of {len({c.block for c in cases})} "
        f"molecules), of {sum(case.is_right for case in cases)} and none a right one"
    )


def main(
    table: Annotated[Path, typer.Argument(help="MassBank in the MassSpecGym layout.")],
) -> None:
    """Fit the probability of library hits, and see how far it holds."""
    entries = entries_of(table)
    command.say(f"{len(entries)} spectra")
    cases, n_queries = cases_of(entries, "train")
    right = np.array([case.is_right for case in cases])
    held = np.array([case.is_held for case in cases])
    digests = (hashlib.blake2b(case.block.encode(), digest_size=8).digest() for case in cases)
    folds = np.array([int.from_bytes(digest) % _FOLDS for digest in digests])
    models = _models(cases)
    stated = {name: _cross_validated(own, right, folds) for name, own in models.items()}
    chosen = stated["and rivals (the model)"]
    compared = Table("features", "cross entropy", "better than the model by", "calibration error")
    for name, own in stated.items():
        missed = _missed(own, right)
        gain, error = _by_molecule(_missed(chosen, right) - missed, cases)
        compared.add_row(
            name,
            f"{missed.mean():.4f}",
            f"{gain:+.4f} +- {error:.4f}",
            f"{calibration_error(own, right, np.ones(len(own))):.3f}",
        )
    weights = logistic(models["and rivals (the model)"], right)
    command.show(
        compared,
        f"fold train: {_counts(cases, n_queries)}",
        f"weights: {dict(zip(WEIGHTS, weights.round(3).tolist(), strict=True))}",
    )
    command.show(
        _reliability("fold train, cross-validated", chosen, right), _errors(chosen, right, held)
    )
    cases, n_queries = cases_of(entries, "val")
    right = np.array([case.is_right for case in cases])
    held = np.array([case.is_held for case in cases])
    shipped = np.array([probability_of(case.hit) for case in cases])
    worlds = Table(
        "library", "hits", "mean stated", "right", "stated at 0.9 or more", "of them right"
    )
    for is_held, name in ((True, "with the molecule"), (False, "without it")):
        own, sure = held == is_held, (held == is_held) & (shipped >= _SURE)
        means = (f"{values[own].mean():.3f}" for values in (shipped, right))
        worlds.add_row(name, f"{own.sum()}", *means, f"{sure.sum()}", f"{right[sure].sum()}")
    command.show(
        _reliability("fold val, weights of the package", shipped, right),
        f"fold val: {_counts(cases, n_queries)}",
        _errors(shipped, right, held),
    )
    command.show(worlds)


if __name__ == "__main__":
    command.run(main)
