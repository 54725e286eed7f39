"""Numbers of the formula-predicted track: how often the true formula is among the predicted."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from duallgd_cli.chem.formula import Formula
from duallgd_cli.evaluate.groups import MISSING, GroupLabel, grouped
from duallgd_cli.evaluate.metrics import Scores
from duallgd_cli.evaluate.molecules import molecule
from duallgd_cli.evaluate.tables import Truth
from duallgd_cli.files import table_rows
from duallgd_cli.formulas.composition import known_formulas
from duallgd_cli.formulas.ranking import FormulaSettings
from duallgd_cli.formulas.rows import write_formulas
from duallgd_cli.predict.prediction import Prediction
from duallgd_cli.predict.settings import PredictRequest, PredictSettings

RANKS: Final = (1, 5, 10)
# Upper ends of the masses of a group, Da.
_MASSES_DA: Final = (300.0, 500.0, math.inf)


def predicted_formulas(
    spectra: Path, output: Path, settings: FormulaSettings
) -> dict[str, list[str]]:
    """The ten most probable formulas of every spectrum, as `duallgd formulas` writes them.

    Args:
        spectra: Without formulas.
        output: CSV file to write.
        settings: Which formulas are looked for.

    Returns:
        Formulas by spectrum, best first; a formula with several adducts stands at its best rank.
    """
    asked = PredictSettings(top_k=max(RANKS), group_by="none", formula_search=settings)
    write_formulas(PredictRequest((str(spectra),), str(output), "csv", settings=asked))
    found: dict[str, list[str]] = {}
    for row in table_rows(output, required=("spectrum_id", "formula")):
        found.setdefault(row["spectrum_id"], []).append(row["formula"])
    return {name: list(dict.fromkeys(filter(None, ranked))) for name, ranked in found.items()}


def tried_formulas(predictions: Sequence[Prediction]) -> dict[str, list[str]]:
    """The formulas under which structures were drawn, by spectrum, the likeliest first."""
    return {
        one.spectrum_id: list(
            dict.fromkeys(
                tried.formula
                for tried in sorted(one.hypotheses, key=lambda tried: -tried.log_prior)
                if tried.formula
            )
        )
        for one in predictions
    }


def formula_accuracy(
    truths: Sequence[Truth], ranked: Mapping[str, Sequence[str]], seed: int
) -> list[dict[str, Any]]:
    """Share of spectra whose true formula is among the first 1, 5 and 10, with 95 % intervals.

    Args:
        truths: The spectra.
        ranked: Formulas by spectrum, best first; a spectrum without any counts as wrong.
        seed: Of the bootstrap.

    Returns:
        Groups as `groups.strata` gives them: all spectra, by mass of the true molecule, and by
        whether a structure of its formula is in the table that comes with duallgd.
    """
    described = [molecule(truth.smiles) for truth in truths]
    true = [one.formula if one is not None else "" for one in described]
    columns = {
        f"formula_accuracy@{k}": np.array(
            [
                float(formula != "" and formula in ranked.get(truth.spectrum_id, ())[:k])
                for truth, formula in zip(truths, true, strict=True)
            ]
        )
        for k in RANKS
    }
    scores = Scores(tuple(truths), columns)
    kinds: dict[str, list[GroupLabel]] = {
        "all": [(0.0, "all")] * len(truths),
        "mass": [_mass_group(formula) for formula in true],
        "formula": [_known_group(formula) for formula in true],
    }
    return [
        group
        for by, labels in kinds.items()
        for group in grouped(by, labels, scores, list(columns), seed)
    ]


def _mass_group(formula: str) -> GroupLabel:
    if not formula:
        return (math.inf, MISSING)
    mass, low = Formula.parse(formula).mass, 0.0
    for high in _MASSES_DA:
        if mass < high:
            break
        low = high
    if not low:
        return (low, f"below {high:g} Da")
    return (low, f"from {low:g} Da" if math.isinf(high) else f"{low:g} to {high:g} Da")


def _known_group(formula: str) -> GroupLabel:
    if not formula:
        return (math.inf, MISSING)
    structures = known_formulas().counts(Formula.parse(formula).array[None]).sum()
    return (0.0, "of a known structure") if structures else (1.0, "of no known structure")
