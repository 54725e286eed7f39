"""Formula sources: where the molecular formula of a feature comes from.

A source proposes hypotheses, checked against the precursor. Those here come from a person or
another program; the room `formulas` predicts them from the spectrum.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from duallgd_cli.chem.adduct import (
    ADDUCTS,
    PERMANENT_CATION,
    Adduct,
    fits,
    infer_adduct,
    parse_adduct,
    precursor_mz,
)
from duallgd_cli.chem.elements import ELECTRON_MASS_DA
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import require_range
from duallgd_cli.errors import (
    Failure,
    FormulaError,
    RefusedError,
    UnsupportedElementError,
    clip,
    counted,
    quote,
)
from duallgd_cli.spectra.compounds import HIGHEST
from duallgd_cli.spectra.reading.record import is_missing
from duallgd_cli.spectra.tables import TableRow, names_in_tables, read_table
from duallgd_cli.spectra.types import GIVEN, INFERRED, LINKED, TABLE, Feature, Hypothesis, Spectrum

_INFERRED: Final = " ".join(adduct.name for adduct in ADDUCTS)
MIN_HEAVY_ATOMS: Final = 2
_MOST_PPM: Final = 1000.0
HOW_TO_SUPPLY = (
    "give it in the file (a FORMULA field, or another one named by --formula-col), "
    "for all spectra by --formula, or in a table by --formulas"
)

# What a feature might be, the most likely first, or why there is nothing.
FormulaSource: TypeAlias = Callable[[Feature], list[Hypothesis] | Failure]


@dataclass(frozen=True, slots=True)
class FormulaLimits:
    """What a formula must satisfy.

    Attributes:
        precursor_ppm: Largest difference between theoretical and measured precursor m/z, ppm.
        max_heavy_atoms: Size of the largest molecule.
    """

    precursor_ppm: float = 10.0
    max_heavy_atoms: int = 100

    def __post_init__(self) -> None:
        require_range(self, "precursor_ppm", above=0)
        require_range(self, "max_heavy_atoms", least=MIN_HEAVY_ATOMS)


def from_text(
    feature: Feature,
    text: str,
    limits: FormulaLimits = FormulaLimits(),
    adduct_text: str | None = None,
) -> list[Hypothesis] | Failure:
    """One formula, as it is written, where it agrees with a feature and an adduct.

    The adduct is that of the feature if no other is given. A missing one ("") is inferred where
    formula, precursor m/z and polarity leave one choice. A precursor that MS1 shows to be an
    isotope gives way to the monoisotopic ion where only that agrees. The adduct is trusted over
    CHARGE and ion mode. What was decided stands in the notes.
    """
    adduct_text = feature.first.adduct_text if adduct_text is None else adduct_text
    try:
        return [_checked(feature, text, adduct_text, limits)]
    except RefusedError as refused:
        failure = refused.failure
    mz = feature.first.monoisotopic_mz
    if mz is not None:
        with contextlib.suppress(RefusedError):
            lighter = _checked(monoisotopic(feature), text, adduct_text, limits)
            return [
                replace(lighter, notes=(*lighter.notes, f"the formula is that of m/z {mz:.4f}"))
            ]
    return failure


def _checked(
    feature: Feature, formula_text: str, adduct_text: str, limits: FormulaLimits
) -> Hypothesis:
    """See `from_text`; the precursor is taken as it is, and RefusedError says why not."""
    spectrum, mz = feature.first, feature.first.precursor_mz
    if mz is None:
        raise _refused("no_precursor", "no usable precursor m/z is given; correct it in the file")
    ppm = limits.precursor_ppm + spectrum.precursor_rounding_da / mz * 1e6
    adduct = parse_adduct(adduct_text) if adduct_text else None
    if isinstance(adduct, Failure):
        raise RefusedError(adduct)
    try:
        formula = Formula.parse(formula_text)
    except FormulaError as error:
        is_foreign = isinstance(error, UnsupportedElementError)
        raise _refused("unsupported_element" if is_foreign else "no_formula", str(error)) from None
    notes, adduct_source = [], spectrum.adduct_source
    if adduct is None:
        adduct_source = INFERRED
        adduct = _infer(formula, spectrum, mz, ppm)
        notes.append(f"adduct {adduct.name} inferred from formula and precursor m/z")
        notes += doubts(spectrum, adduct)
    can_be = fits(formula, adduct)
    molecule = replace(formula, charge=1) if can_be and adduct is PERMANENT_CATION else formula
    error_da = mz - precursor_mz(molecule, adduct)
    agrees = abs(error_da) <= ppm * 1e-6 * mz
    if not (can_be and agrees):
        message = _mismatch(formula, adduct, mz, error_da, ppm)
        if spectrum.adduct_source == LINKED and adduct == parse_adduct(spectrum.adduct_text):
            message += f"; {_by_other_ions(spectrum)}; if that is wrong, give the adduct"
        is_radical = agrees and adduct is PERMANENT_CATION
        raise _refused("unsupported_adduct" if is_radical else "formula_mismatch", message)
    n = f"{molecule} has {counted(molecule.n_heavy, 'heavy atom')}"
    limit = limits.max_heavy_atoms
    if molecule.n_heavy > limit:
        raise _refused("too_large", f"{n} and the limit is {limit}; raise max_heavy_atoms")
    if molecule.n_heavy < MIN_HEAVY_ATOMS:
        raise _refused("too_small", f"{n}; a bond needs at least {MIN_HEAVY_ATOMS}")
    notes += [*contradictions(spectrum, adduct), *filter(None, [adduct.note])]
    return Hypothesis(feature, molecule, adduct, 0.0, tuple(notes), adduct_source=adduct_source)


def _refused(status: str, message: str) -> RefusedError:
    return RefusedError(Failure(status, message))


def _by_other_ions(spectrum: Spectrum) -> str:
    name, probability = spectrum.adducts[0]
    stated = f"{name} ({min(probability, HIGHEST):.2g})"
    return f"other ions of compound {spectrum.compound_id} tell {stated}"


def doubts(spectrum: Spectrum, adduct: Adduct) -> list[str]:
    """What to say of an adduct that was guessed, or that other ions of the molecule contradict."""
    said = []
    if not (spectrum.adduct_text or spectrum.polarity):
        said.append("neither adduct nor polarity is given: ions of both polarities were tried")
    if spectrum.adducts and parse_adduct(spectrum.adducts[0][0]) != adduct:
        said.append(f"{_by_other_ions(spectrum)}, not {adduct.name}")
    return said


def unnamed_ion(spectrum: Spectrum) -> Failure | None:
    """Why no adduct may be assumed for a spectrum that names none, or None where it may."""
    if spectrum.unread_ion:
        message = (
            f"{spectrum.unread_ion} and no adduct is given; write Positive or Negative, and a "
            "charge such as 1-, or name the adduct in the file or by --adduct"
        )
    elif abs(spectrum.charge) > 1:
        message = f"charge {spectrum.charge:+d} and no adduct is given; name it, such as [M+2H]2+"
    else:
        return None
    return Failure("unsupported_adduct", message)


def _infer(formula: Formula, spectrum: Spectrum, mz: float, ppm: float) -> Adduct:
    if (failure := unnamed_ion(spectrum)) is not None:
        raise RefusedError(failure)
    found = infer_adduct(formula, mz, spectrum.polarity, ppm)
    if len(found) == 1:
        return found[0]
    choice = "several fit" if found else "none fits"
    names = f" ({' '.join(adduct.name for adduct in found)})" if found else ""
    message = (
        f"no adduct is given and {choice} {formula} at m/z {mz:.4f} within {ppm:g} ppm{names}; "
        f"name the adduct; tried are {_INFERRED}"
    )
    raise _refused("unsupported_adduct", message)


def _mismatch(formula: Formula, adduct: Adduct, mz: float, error_da: float, ppm: float) -> str:
    """Why a formula does not agree with a precursor, or no molecule of it gives the adduct."""
    error_ppm = error_da / mz * 1e6
    if abs(error_ppm) > ppm:
        # So far off it is another ion, not a poor measurement: the mass says which.
        error = f"{error_ppm:+.1f} ppm" if abs(error_ppm) < _MOST_PPM else f"{error_da:+.4f} Da"
        ion = (formula.atoms_mass - adduct.charge * ELECTRON_MASS_DA) / abs(adduct.charge)
        advice = "check formula, adduct and precursor"
        if abs(ion - mz) / mz * 1e6 <= ppm:
            advice = "it is the formula of the ion: give that of the molecule"
        return (
            f"{formula} as {adduct.name} has m/z {mz - error_da:.4f} but the precursor is {mz:.4f} "
            f"({error}, allowed {ppm:g} ppm); {advice}"
        )
    if adduct is PERMANENT_CATION:
        return (
            f"{formula} as [M]+ is a radical cation, which is not supported; [M]+ is for permanent "
            "cations, written with the cation's formula"
        )
    if formula.charge:
        reason = f"has charge {formula.charge:+d} and {adduct.name} needs a neutral molecule"
    elif not formula.has_even_electrons:
        reason = "has an odd number of electrons, so no closed-shell molecule has it"
    else:
        reason = f"lacks atoms that {adduct.name} takes away"
    return f"{formula} {reason}; check formula and adduct"


def contradictions(spectrum: Spectrum, adduct: Adduct) -> list[str]:
    """What to say where charge or ion mode of a spectrum contradict an adduct, else []."""
    if spectrum.charge and spectrum.charge != adduct.charge:
        return [f"charge {spectrum.charge:+d} contradicts {adduct.name}; the adduct is trusted"]
    if spectrum.polarity and spectrum.polarity != adduct.polarity:
        mode = "positive" if spectrum.polarity > 0 else "negative"
        return [f"ion mode {mode} contradicts {adduct.name}; the adduct is trusted"]
    return []


def monoisotopic(feature: Feature) -> Feature:
    """The feature of the monoisotopic ion, where MS1 shows that the precursor is its isotope."""
    if feature.first.monoisotopic_mz is None:
        return feature
    return Feature(
        tuple(
            replace(one, precursor_mz=one.monoisotopic_mz, precursor_rounding_da=0.0)
            for one in feature.spectra
        )
    )


def from_field(
    feature: Feature,
    column: str | None = None,
    limits: FormulaLimits = FormulaLimits(),
    otherwise: FormulaSource | None = None,
) -> list[Hypothesis] | Failure:
    """The formula in the first spectrum of the feature that has one, under `column` or any name.

    Features without any are left to `otherwise`.
    """
    name = column.strip().lower() if column else ""
    texts = (
        one.metadata.get(name, "").strip() if name else one.formula_text for one in feature.spectra
    )
    text = next((text for text in texts if not is_missing(text)), "")
    if text:
        return from_text(feature, text, limits)
    if otherwise is not None:
        return otherwise(feature)
    field = f"field {clip(name.upper())}" if name else "formula"
    return Failure("no_formula", f"the spectrum has no {field}: {HOW_TO_SUPPLY}")


def table_source(
    path: str, limits: FormulaLimits = FormulaLimits(), otherwise: FormulaSource | None = None
) -> FormulaSource:
    """Formulas from a table (`read_table`), joined by identifier, perhaps several.

    It gives a feature's rows that agree with its precursor, priors normalised over these. An adduct
    in the table goes before the spectrum's, since formula and adduct belong together. A feature
    that the table does not know keeps the formula that its file gives, or is left to `otherwise`.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It is empty or no text.
        UsageError: It has no identifier or no formula column.
    """
    tables = read_table(path)

    def source(feature: Feature) -> list[Hypothesis] | Failure:
        # The likelier name first, of each the likelier column.
        names = names_in_tables(feature)
        listed = [rows[name] for name in names for rows in tables.values() if rows.get(name)]
        tried = [_agreeing(feature, rows, limits) for rows in listed]
        if tried:
            # Columns may count spectra by accident: one whose formulas have its mass is meant.
            found, failures = next((one for one in tried if one[0]), tried[0])
            if not found:
                return failures[0]
            total = np.logaddexp.reduce([weight for _, weight in found])
            others = counted(len(failures), "other formula")
            were = "was" if len(failures) == 1 else "were"
            notes = (f"{others} of the table {were} refused",) if failures else ()
            return [
                replace(one, log_prior=float(weight - total), notes=(*one.notes, *notes))
                for one, weight in sorted(found, key=lambda pair: -pair[1])
            ]
        own = from_field(feature, None, limits, otherwise)
        if not isinstance(own, Failure):
            note = "formula from the file, since the table has none"
            return [
                replace(one, notes=(*one.notes, note)) if one.source == GIVEN else one
                for one in own
            ]
        if own.status != "no_formula" or otherwise is not None:
            return own
        identifier = feature.first.feature_id or feature.first.spectrum_id
        message = (
            f"{path} has no formula for {quote(identifier)} "
            f"(columns tried: {clip(', '.join(tables))}): {HOW_TO_SUPPLY}"
        )
        return Failure("no_formula", message)

    return source


def _agreeing(
    feature: Feature, rows: Sequence[TableRow], limits: FormulaLimits
) -> tuple[list[tuple[Hypothesis, float]], list[Failure]]:
    """Distinct hypotheses with their weights, and why other rows are none."""
    agreeing: dict[tuple[object, int], tuple[Hypothesis, float]] = {}
    failures: list[Failure] = []
    own = feature.first.adduct_text
    for row in rows:
        tried = from_text(feature, row.formula, limits, row.adduct or None)
        if isinstance(tried, Failure):
            failures.append(tried)
            continue
        (result,) = tried
        notes, adduct = result.notes, result.adduct
        source = TABLE if row.adduct else result.adduct_source
        if row.adduct and own and parse_adduct(own) != adduct:
            note = f"the table's adduct {adduct.name} is used, not the spectrum's {clip(own)}"
            notes = (*notes, note)
        result = replace(result, source=TABLE, adduct_source=source, notes=notes)
        agreeing.setdefault((result.formula, adduct.index), (result, row.log_weight))
    return list(agreeing.values()), failures
