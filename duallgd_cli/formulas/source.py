"""Predicted formulas as hypotheses for structures."""

import math
from typing import Final

from duallgd_cli.errors import Failure
from duallgd_cli.formulas.ranking import (
    FormulaSettings,
    RankedFormula,
    isotope_remark,
    rank_formulas,
)
from duallgd_cli.spectra.formulas import FormulaLimits
from duallgd_cli.spectra.types import PREDICTED, Feature, Hypothesis

ENOUGH: Final = 0.95  # of the probability of all that are listed: less likely ones are not tried


class PredictedFormulas:
    """The most probable formulas of a feature, whatever its file says."""

    def __init__(self, settings: FormulaSettings, limits: FormulaLimits, most: int) -> None:
        """Choose what is looked for.

        Args:
            settings: Tolerance and elements.
            limits: What a molecule must satisfy; its tolerance is not used.
            most: Largest number of formulas.
        """
        self.settings = settings
        self.limits = limits
        self.most = most

    def propose(self, feature: Feature) -> list[Hypothesis] | Failure:
        """Formulas that hold 95 % of what all have, as far as they are not too many."""
        ranked = rank_formulas(feature, self.settings)
        if isinstance(ranked, Failure):
            return ranked
        # A narrow tolerance leaves probability to formulas beyond it, which no further one holds.
        enough = ENOUGH * math.fsum(one.probability for one in ranked)
        chosen: list[RankedFormula] = []
        for one in ranked[: self.most]:
            if sum(better.probability for better in chosen) < enough:
                chosen.append(one)
        fitting = [one for one in chosen if one.formula.n_heavy <= self.limits.max_heavy_atoms]
        if not fitting:
            message = (
                f"the likeliest formula {chosen[0].formula} has {chosen[0].formula.n_heavy} heavy "
                f"atoms and the limit is {self.limits.max_heavy_atoms}; raise max_heavy_atoms"
            )
            return Failure("too_large", message, "formula")
        total, remark = math.fsum(one.probability for one in fitting), isotope_remark(ranked)
        return [
            Hypothesis(
                feature,
                one.formula,
                one.adduct,
                one.log_probability,
                tuple(filter(None, [one.adduct.note, remark])),
                source=PREDICTED,
                share=one.probability / total,
            )
            for one in fitting
        ]
