"""What scores say beyond their means: comparisons, calibration, and where accuracy is lost."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

import numpy as np

from duallgd_cli.chem import identity
from duallgd_cli.chem.molecule import Assembled, assemble, disassemble
from duallgd_cli.errors import FormulaError, MoleculeError, UsageError, quote
from duallgd_cli.evaluate.groups import parts
from duallgd_cli.evaluate.intervals import Estimate, reliability, share
from duallgd_cli.evaluate.metrics import Scores
from duallgd_cli.evaluate.tables import Predicted, Truth

NOT_PREDICTED: Final = "not_predicted"


def ranked_of(truths: Sequence[Truth], predicted: Mapping[str, Predicted]) -> list[Predicted]:
    """The predictions of each spectrum of the truth; one without any counts as wrong.

    Args:
        truths: What the spectra are.
        predicted: Ranked structures by spectrum.

    Raises:
        UsageError: Not one identifier of the truth is among the predictions.
    """
    names = {truth.spectrum_id for truth in truths}
    if not names & set(predicted):
        raise UsageError(
            f"none of the {len(names)} spectra of the truth is among the {len(predicted)} "
            f"predicted ones; identifiers look like {quote(next(iter(names), ''))} there and "
            f"{quote(next(iter(predicted), ''))} here"
        )
    nothing = Predicted((), (), NOT_PREDICTED)
    return [predicted.get(truth.spectrum_id, nothing) for truth in truths]


def compare(ours: Scores, theirs: Scores, seed: int) -> dict[str, Any]:
    """A rival's numbers and the paired differences (ours minus theirs) with clustered intervals.

    Of all spectra, and of each part of the test set.

    Args:
        ours: Scores of the spectra.
        theirs: Scores of the same spectra.
        seed: Of the bootstrap.
    """

    def record(mine: Scores, other: Scores) -> dict[str, Any]:
        names = [name for name in other.columns if "@" in name]
        differences = mine.minus(other, names, seed)
        metrics = other.summary(seed)
        return {
            "metrics": {name: metrics[name] for name in names},
            "ours_minus_theirs": {name: asdict(found) for name, found in differences.items()},
        }

    return {
        **record(ours, theirs),
        "parts": {
            name: record(ours.subset(keep), theirs.subset(keep))
            for name, keep in parts(ours.truths).items()
        },
    }


def decompose(ours: Scores) -> dict[str, Estimate]:
    """Where accuracy is lost between a perfect answer and the first candidate, in order.

    Shares of spectra, each at most about the one before it: a perfect bond matrix is assembled into
    the right molecule; that is drawn at all; it is among the first ten; it is first.
    """
    recovered = [float(assembly_recovers(truth.smiles)) for truth in ours.truths]
    steps = {"perfect bond matrix, assembled": np.array(recovered)}
    steps["predicted fingerprint, any sample"] = ours.columns["oracle_accuracy"]
    for name in reversed([name for name in ours.columns if name.startswith("accuracy@")]):
        steps[f"predicted fingerprint, first {name.partition('@')[2]}"] = ours.columns[name]
    return {name: share(right, ours.molecule) for name, right in steps.items()}


@lru_cache(maxsize=100_000)
def assembly_recovers(smiles: str) -> bool:
    """Whether the perfect bond matrix of a molecule is assembled into that molecule first."""
    try:
        taken_apart = disassemble(identity.parse_smiles(smiles))
    except (MoleculeError, FormulaError):
        return False  # outside what bond matrices can express
    built = assemble(taken_apart.formula, taken_apart.bond_class)
    if not isinstance(built, Assembled):
        return False
    wanted = identity.inchikey_block(identity.parse_smiles(smiles))
    return identity.inchikey_block(built.molecules[0]) == wanted


def calibration(scores: Scores, known: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Of the first candidate and of the first ten, each only where probabilities are stated.

    Args:
        scores: Of the spectra.
        known: Of each spectrum its ``confidence`` and ``confidence_top10``, or None.
    """
    tables = {}
    for name, k in (("confidence", 1), ("confidence_top10", 10)):
        rows = [row for row, value in enumerate(known[name]) if value is not None]
        if not rows or f"accuracy@{k}" not in scores.columns:
            continue
        stated = np.array([known[name][row] for row in rows], dtype=np.float64)
        right = scores.columns[f"accuracy@{k}"][rows] > 0
        molecules = [scores.molecule[row] for row in rows]
        table = reliability(stated, right, n_bins=10, clusters=molecules)
        tables[name] = asdict(table)
    return tables
