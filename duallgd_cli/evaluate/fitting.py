"""Ranking weights and calibration, fitted on a finished run of known truth, into a checkpoint."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.chem import identity
from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.config import dump
from duallgd_cli.errors import MoleculeError, UsageError, quote
from duallgd_cli.evaluate.calibrate import (
    ScoredCase,
    Validation,
    cross_validate,
    fit,
    logistic,
    scored_case,
)
from duallgd_cli.files import sha256
from duallgd_cli.predict.journal import FinishedRun, read
from duallgd_cli.ranking.one_list import Membership, evidence, of_databases
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.results import HypothesisResult, Results, Structure
from duallgd_cli.sources import DATABASE
from duallgd_cli.sources.collection import Collection
from duallgd_cli.tables import table_rows

_DATABASES: Final = "databases"  # in the header of a run that had any
_BLOCK: Final = 14  # letters of an InChIKey that name the skeleton


def fit_weights_file(
    weights: Path, runs: Sequence[Path], truth: Path, out: Path, *, keep_ranking: bool = False
) -> tuple[RankingModel, Validation]:
    """Fit the ranking of a weights file on runs that were made with it, into another such file.

    The runs, by outputs or journals, have different numbers of samples and steps, so that
    confidence holds for these. With a database they give the ranking of its structures, else that
    of drawn ones. Of a run that was stopped, what is there counts. The table of the truth has an
    identifier and an inchikey for every spectrum; with a column smiles, candidates that are like
    the truth count a little too. With `keep_ranking` the order of candidates stays as it is.

    Returns:
        The ranking as stored in the new file, and how well it holds, cross-validated by molecule.

    Raises:
        UsageError: A run was made with other weights or has no finished spectrum, only some had a
            database, or the truth lacks one of its spectra or its structure, names two, or has a
            SMILES that cannot be read.
        MissingInputError: A file does not exist.
    """
    checkpoint = load(weights)
    truths, digest = truths_of(truth), sha256(weights)
    finished = [read([path], partial=True) for path in runs]
    for path, run in zip(runs, finished, strict=True):
        if run.header.model.get("sha256") != digest:
            raise UsageError(
                f"{path} was predicted with other weights than {weights}; predict again"
            )
    searched = {_DATABASES in run.header.settings for run in finished}
    if len(searched) > 1:
        raise UsageError("some of the runs had a database and some had none; fit one at a time")
    kind = "database" if searched == {True} else "ranking"
    start = RankingModel.stored(getattr(checkpoint, kind)) if keep_ranking else RankingModel()
    known = known_blocks(checkpoint)
    cases = [case for run in finished for case in scored_cases(run, truths, start, known)]
    if not cases:
        raise UsageError("the runs hold no finished spectrum; let them go on with --resume")
    ranking = fit(cases, start, keep_ranking=keep_ranking)
    validation = cross_validate(cases, start, keep_ranking=keep_ranking)
    name = f"{kind}_validation"
    kept = checkpoint.record.get(name, {}) if keep_ranking else {}
    record = {**checkpoint.record, name: record_of(validation, kept)}
    changes: dict[str, Any] = {"record": record, kind: dump(ranking)}
    save(out, replace(checkpoint, **changes), torch.float16, short_codes=True)
    return ranking, validation


def fit_membership(weights: Path, run: Path, truth: Path, out: Path) -> Membership:
    """Fit what says whether the truth is in a database, into another weights file.

    The run, by its output or journal, was made with a database that holds the truths, in one list
    with generated molecules.

    Raises:
        UsageError: The run had no database, or the database none of the truths.
        MissingInputError: A file does not exist.
    """
    checkpoint, truths, finished = load(weights), truths_of(truth), read([run], partial=True)
    if not checkpoint.database or _DATABASES not in finished.header.settings:
        raise UsageError(f"{run} had no database, or {weights} no ranking of its structures")
    features = (
        (results, truths[results[0].spectra[0].spectrum_id]["inchikey"][:_BLOCK])
        for results in finished.features()
    )
    models = (RankingModel.stored(one) for one in (checkpoint.ranking, checkpoint.database))
    rows, inside, _ = both_worlds(features, *models)
    if not inside.any():
        raise UsageError(f"the database of {run} holds none of the truths; add them to it")
    membership = weights_of_membership(rows, inside)
    changed = replace(checkpoint, membership=dump(membership))
    save(out, changed, torch.float16, short_codes=True)
    return membership


def without_truth(results: Results, truth: str) -> list[HypothesisResult]:
    """The same with a database that lacks one molecule.

    Args:
        results: Of all hypotheses of a feature.
        truth: First block of its InChIKey.
    """
    return [
        replace(
            result,
            structures=tuple(filter(None, (_taken(one, truth) for one in result.structures))),
        )
        for result in results
    ]


def _taken(structure: Structure, truth: str) -> Structure | None:
    if structure.block != truth or DATABASE not in structure.sources:
        return structure
    others = tuple(name for name in structure.sources if name != DATABASE)
    return structure._replace(sources=others) if others else None


def both_worlds(
    features: Iterable[tuple[Results, str]], generated: RankingModel, database: RankingModel
) -> tuple[NDArray[np.float64], NDArray[np.bool_], list[str]]:
    """What candidates say where a database has the truth and where it lacks it.

    Args:
        features: Results of each with the first block of the truth's InChIKey.
        generated: Ranking of generated molecules.
        database: Ranking of structures of a database.

    Returns:
        Evidence (X, 5), whether the truth is in the database (X,), the truth of each row.
    """
    rows, inside, names = [], [], []
    for results, truth in features:
        is_there = any(
            one.block == truth and DATABASE in one.sources
            for result in results
            for one in result.structures
        )
        worlds = [(results, is_there)]
        if is_there:
            worlds.append((without_truth(results, truth), False))
        for world, label in worlds:
            told = evidence(world, generated, database)
            if told is not None:
                rows.append(told)
                inside.append(label)
                names.append(truth)
    return np.array(rows).reshape(-1, 5), np.array(inside, np.bool_), names


def weights_of_membership(rows: NDArray[np.float64], inside: NDArray[np.bool_]) -> Membership:
    """Weights of a logistic regression on rows of `both_worlds`."""
    return Membership(*logistic(rows, inside).tolist())


def record_of(validation: Validation, known: Mapping[str, Any]) -> dict[str, Any]:
    """What a weights file says of how good its ranking is.

    An order that was kept has a record, else {}: it was fitted, perhaps on these very molecules, so
    its own cross-validated accuracy stays and is not measured again.
    """
    kept = {name: known[name] for name in ("top1", "top10") if name in known}
    if kept:
        kept["n_spectra"] = known.get("n_spectra", known.get("first", {}).get("count", 0))
    # As JSON knows them, every number a float.
    figures = json.loads(json.dumps(asdict(validation)), parse_int=float)
    return {**figures, **kept}


def known_blocks(checkpoint: Checkpoint) -> frozenset[str]:
    """First blocks of the InChIKeys of the molecules that come with weights."""
    return frozenset(Collection.of(checkpoint.templates).names if checkpoint.templates else ())


def scored_cases(
    run: FinishedRun,
    truths: Mapping[str, Mapping[str, str]],
    start: RankingModel,
    known: frozenset[str],
) -> Iterator[ScoredCase]:
    """Every feature of a run.

    Known molecules, of which `known` has the first blocks of the InChIKeys, are no candidates where
    the truth is none of them: a fold that was held out cannot say how often they are right.
    """
    of_database = _DATABASES in run.header.settings
    model = replace(start, steps=int(run.header.settings["sampling"]["steps"]))
    for results in run.features():
        name = results[0].spectra[0].spectrum_id
        if name not in truths:
            raise UsageError(f"the truth has no row for spectrum {quote(name)}; add its identifier")
        key, smiles = truths[name]["inchikey"], truths[name]["smiles"]
        if len(key) < _BLOCK:
            raise UsageError(
                f"the truth has no InChIKey for spectrum {quote(name)}; fill that cell"
            )
        if key[:_BLOCK] not in known:
            results = tuple(
                replace(one, structures=tuple(s for s in one.structures if s.block not in known))
                for one in results
            )
        results = tuple(of_databases(results) if of_database else results)
        try:
            bits = _bits(smiles) if smiles else None
        except MoleculeError as error:
            raise UsageError(
                f"the truth holds {quote(smiles)} ({error}); mend or empty that cell"
            ) from None
        alike = {
            structure.inchikey: tanimoto(_bits(structure.smiles), bits)
            for result in results
            for structure in result.structures
            if bits is not None
        }
        yield replace(scored_case(results, key, model, alike), of_database=of_database)


def _bits(smiles: str) -> NDArray[np.uint16]:
    """Set bits of a molecule's fingerprint."""
    return identity.fingerprint(identity.parse_smiles(smiles))


def truths_of(path: Path) -> dict[str, dict[str, str]]:
    """InChIKey and SMILES of every row, "" where there is none, by identifier."""
    truths: dict[str, dict[str, str]] = {}
    for row in table_rows(path, required=("identifier", "inchikey")):
        name = row["identifier"]
        known = {column: row.get(column, "") for column in ("inchikey", "smiles")}
        if truths.setdefault(name, known) != known:
            raise UsageError(
                f"{quote(name)} stands twice with different structures in truth {path}; remove one"
            )
    return truths
