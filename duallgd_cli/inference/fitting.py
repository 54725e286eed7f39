"""Ranking weights and calibration, fitted on a finished run of known truth, into a checkpoint."""

import csv
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from duallgd_cli.checkpoint.format import load, save, sha256
from duallgd_cli.config import dump
from duallgd_cli.errors import MissingInputError, UsageError
from duallgd_cli.inference.calibration import (
    ScoredCase,
    Validation,
    cross_validate,
    fit,
    scored_case,
)
from duallgd_cli.inference.finished import FinishedRun, journals_of
from duallgd_cli.inference.ranking import RankingModel


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fit and how well it holds on spectra that took no part in it.

    Attributes:
        ranking: As stored in the new weights file.
        validation: Cross-validated by molecule.
        n_spectra: Spectra it rests on.
    """

    ranking: RankingModel
    validation: Validation
    n_spectra: int


def fit_weights_file(weights: Path, run: Path, truth: Path, out: Path) -> Fitted:
    """Fit the ranking of a weights file on a run that was made with it.

    Args:
        weights: The weights that made the run.
        run: Its output or journal, such as ``predictions.csv`` of ``duallgd evaluate``.
        truth: Table with identifier and inchikey, one row for each spectrum of the run, in order.
        out: Where to write the weights with the fit; stored in 16 bit.

    Raises:
        UsageError: The run was made with other weights, or the truth has another number of rows.
        MissingInputError: A file does not exist.
    """
    checkpoint = load(weights)
    finished = FinishedRun(journals_of([run]))
    if finished.header.model.get("sha256") != sha256(weights):
        raise UsageError(f"{run} was predicted with other weights than {weights}; predict again")
    cases = _scored(finished, _keys(truth))
    ranking = fit(cases)
    validation = cross_validate(cases)
    fitted = replace(
        checkpoint,
        ranking=dump(ranking),
        record={**checkpoint.record, "ranking_validation": _plain(asdict(validation))},
    )
    save(out, fitted, torch.float16)
    return Fitted(ranking, validation, len(cases))


def _scored(run: FinishedRun, keys: list[str]) -> list[ScoredCase]:
    placed = list(run.in_input_order())
    if len(placed) != len(keys):
        raise UsageError(f"the run has {len(placed)} spectra, the truth {len(keys)} rows")
    return [
        scored_case(case, key, RankingModel())
        for (case, place), key in zip(placed, keys, strict=True)
        if place == 0
    ]


def _keys(truth: Path) -> list[str]:
    if not truth.is_file():
        raise MissingInputError(f"truth {truth} does not exist")
    with truth.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t")
        if "inchikey" not in (rows.fieldnames or ()):
            raise UsageError(f"truth {truth} has no column inchikey")
        return [row["inchikey"] for row in rows]


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Figures as JSON knows them."""
    return {
        name: _plain(value)
        if isinstance(value, dict)
        else [_plain(v) if isinstance(v, dict) else float(v) for v in value]
        if isinstance(value, list | tuple)
        else float(value)
        for name, value in values.items()
    }
