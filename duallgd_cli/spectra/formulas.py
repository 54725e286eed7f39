"""Formula sources: where the molecular formula of a feature comes from.

A source proposes hypotheses; today each comes from a person or another program. One that guesses
formulas from the spectrum would be one more class here.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.errors import Failure, clip, quote
from duallgd_cli.spectra.formula_table import TableRow, read_table
from duallgd_cli.spectra.hypotheses import FormulaLimits, hypothesis_of
from duallgd_cli.spectra.reading.fields import is_missing, name_of
from duallgd_cli.spectra.types import Feature, Hypothesis

HOW_TO_SUPPLY = (
    "give it in the file (a FORMULA field, or another one named by --formula-col), "
    "for all spectra by --formula, or in a table by --formulas"
)


class FormulaSource(Protocol):
    """Something that proposes what a feature might be."""

    def propose(self, feature: Feature) -> list[Hypothesis] | Failure:
        """Hypotheses, the most likely first, or why there is none."""


class FieldFormulas:
    """The formula stands in a field of the spectrum itself."""

    def __init__(self, column: str | None = None, limits: FormulaLimits | None = None) -> None:
        """Choose the field.

        Args:
            column: Field name, any case; None tries FORMULA, MOLECULAR_FORMULA and then any other
                name that contains FORMULA.
            limits: What a formula must satisfy; None for the defaults.
        """
        self.column = column.strip().lower() if column else None
        self.limits = limits or FormulaLimits()

    def propose(self, feature: Feature) -> list[Hypothesis] | Failure:
        """The formula of the first spectrum of the feature that has one."""
        texts = (self._text(index, feature) for index in range(len(feature.spectra)))
        text = next((text for text in texts if text), "")
        if not text:
            field = f"field {clip(self.column.upper())}" if self.column else "formula"
            return Failure("no_formula", f"the spectrum has no {field}: {HOW_TO_SUPPLY}", "formula")
        return _one(hypothesis_of(feature, text, feature.first.adduct_text, self.limits))

    def _text(self, index: int, feature: Feature) -> str:
        spectrum = feature.spectra[index]
        if self.column is None:
            return spectrum.formula_text
        text = spectrum.metadata.get(self.column, "").strip()
        return "" if is_missing(text) else text


class FixedFormula:
    """One formula for every feature."""

    def __init__(self, text: str, limits: FormulaLimits | None = None) -> None:
        """Take the formula as written, such as ``C9H8O4``."""
        self.text = text
        self.limits = limits or FormulaLimits()

    def propose(self, feature: Feature) -> list[Hypothesis] | Failure:
        """The fixed formula, where the feature's precursor m/z agrees with it."""
        return _one(hypothesis_of(feature, self.text, feature.first.adduct_text, self.limits))


class TableFormulas:
    """Formulas from a table, joined by identifier; a feature may have several."""

    def __init__(self, path: str, limits: FormulaLimits | None = None) -> None:
        """Read a CSV or TSV file (see `formula_table.read_table` for the columns).

        Raises:
            MissingInputError: There is no such file.
            UnreadableError: It is empty or no text.
            UsageError: It has no identifier or no formula column.
        """
        self.path = path
        self.limits = limits or FormulaLimits()
        self.tables = read_table(path)

    def propose(self, feature: Feature) -> list[Hypothesis] | Failure:
        """The feature's rows that agree with its precursor, priors normalised over these.

        An adduct in the table goes before the spectrum's, since formula and adduct belong together.
        A feature that the table does not know keeps the formula that its file gives, if any.
        """
        tried = [self._agreeing(feature, rows) for rows in self._rows_of(feature)]
        if not tried:
            return self._not_in_table(feature)
        # Columns may count spectra by accident: one whose formulas have the right mass is meant.
        found, failures = next((one for one in tried if one[0]), tried[0])
        return _normalised(found, len(failures)) if found else failures[0]

    def _agreeing(
        self, feature: Feature, rows: list[TableRow]
    ) -> tuple[list[tuple[Hypothesis, float]], list[Failure]]:
        """Distinct hypotheses with their weights, and why other rows are none."""
        found: dict[tuple[object, int], tuple[Hypothesis, float]] = {}
        failures: list[Failure] = []
        for row in rows:
            result = self._check(feature, row)
            if isinstance(result, Failure):
                failures.append(result)
            else:
                key = (result.formula, result.adduct.index)
                found.setdefault(key, (result, row.log_weight))
        return list(found.values()), failures

    def _not_in_table(self, feature: Feature) -> list[Hypothesis] | Failure:
        own = FieldFormulas(None, self.limits).propose(feature)
        if isinstance(own, Failure):
            if own.status != "no_formula":
                return own
            identifier = feature.first.feature_id or feature.first.spectrum_id
            message = (
                f"{self.path} has no formula for {quote(identifier)} "
                f"(columns tried: {clip(', '.join(self.tables))}): {HOW_TO_SUPPLY}"
            )
            return Failure("no_formula", message, "formula")
        note = "formula from the file, since the table has none"
        return [replace(hypothesis, notes=(*hypothesis.notes, note)) for hypothesis in own]

    def _rows_of(self, feature: Feature) -> Iterator[list[TableRow]]:
        """Rows that each column has for the feature, the likelier column first.

        Scan numbers count only without a feature id: both are small integers of different meaning.
        """
        spectrum = feature.first
        last = "" if spectrum.feature_id else spectrum.scans
        names = (spectrum.feature_id, spectrum.spectrum_id, name_of(spectrum.metadata), last)
        for name in dict.fromkeys(filter(None, names)):
            yield from (rows[name] for rows in self.tables.values() if rows.get(name))

    def _check(self, feature: Feature, row: TableRow) -> Hypothesis | Failure:
        own = feature.first.adduct_text
        result = hypothesis_of(feature, row.formula, row.adduct or own, self.limits)
        if isinstance(result, Failure) or not row.adduct or not own:
            return result
        if parse_adduct(own) == result.adduct:
            return result
        note = f"the table's adduct {result.adduct.name} is used, not the spectrum's {clip(own)}"
        return replace(result, notes=(*result.notes, note))


def _one(result: Hypothesis | Failure) -> list[Hypothesis] | Failure:
    return result if isinstance(result, Failure) else [result]


def _normalised(found: list[tuple[Hypothesis, float]], n_refused: int) -> list[Hypothesis]:
    """Hypotheses by falling prior, the priors adding up to 1."""
    weights = np.array([weight for _, weight in found])
    log_prior = weights - weights.max()
    log_prior -= np.log(np.exp(log_prior).sum())
    notes = (f"{n_refused} other formulas of the table were refused",) if n_refused else ()
    order = np.argsort(-log_prior, kind="stable")
    return [
        replace(found[i][0], log_prior=float(log_prior[i]), notes=(*found[i][0].notes, *notes))
        for i in order
    ]
