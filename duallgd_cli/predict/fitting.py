"""Ranking weights and calibration, fitted on a finished run of known truth, into a checkpoint."""

import csv
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.chem import identity
from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.config import dump
from duallgd_cli.errors import MissingInputError, MoleculeError, UsageError
from duallgd_cli.files import sha256
from duallgd_cli.predict.calibration import (
    ScoredCase,
    Validation,
    cross_validate,
    fit,
    scored_case,
)
from duallgd_cli.predict.journal import FinishedRun, journals_of
from duallgd_cli.predict.prediction import Case
from duallgd_cli.predict.ranking import RankingModel


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
        truth: Table with identifier and inchikey, one row for each spectrum of the run, in order;
            with a column smiles, candidates that are like the truth count a little too.
        out: Where to write the weights with the fit; in 16 bit, codes of fingerprint bits in 8.

    Raises:
        UsageError: The run was made with other weights, or the truth has another number of rows or
            a SMILES that cannot be read.
        MissingInputError: A file does not exist.
    """
    checkpoint = load(weights)
    finished = FinishedRun(journals_of([run]))
    if finished.header.model.get("sha256") != sha256(weights):
        raise UsageError(f"{run} was predicted with other weights than {weights}; predict again")
    cases = _scored(finished, _truths(truth))
    ranking = fit(cases)
    validation = cross_validate(cases)
    fitted = replace(
        checkpoint,
        ranking=dump(ranking),
        record={**checkpoint.record, "ranking_validation": _plain(asdict(validation))},
    )
    save(out, fitted, torch.float16, short_codes=True)
    return Fitted(ranking, validation, len(cases))


def _scored(run: FinishedRun, truths: list[dict[str, str]]) -> list[ScoredCase]:
    placed = list(run.in_input_order())
    if len(placed) != len(truths):
        raise UsageError(f"the run has {len(placed)} spectra, the truth {len(truths)} rows")
    return [
        scored_case(case, truth["inchikey"], RankingModel(), _alike(case, truth.get("smiles", "")))
        for (case, place), truth in zip(placed, truths, strict=True)
        if place == 0
    ]


def _alike(case: Case, truth: str) -> dict[str, float]:
    """Tanimoto similarity of each candidate to the truth, by InChIKey; nothing if it is unknown."""
    if not truth:
        return {}
    try:
        bits = _bits(truth)
    except MoleculeError as error:
        raise UsageError(f"the truth holds {truth!r} ({error}); mend or empty that cell") from None
    structures = [one for outcome in case.outcomes for one in outcome.structures]
    return {one.inchikey: tanimoto(_bits(one.smiles), bits) for one in structures}


def _bits(smiles: str) -> NDArray[np.uint16]:
    return identity.fingerprint(identity.parse_smiles(smiles))


def _truths(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise MissingInputError(f"truth {path} does not exist")
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t")
        if "inchikey" not in (rows.fieldnames or ()):
            raise UsageError(f"truth {path} has no column inchikey")
        return list(rows)


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
