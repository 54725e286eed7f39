"""Scores of formulas that a precursor allows: prior, mass error, and what the peaks say.

The fitted numbers come from ``recipes/formulas.py``.

Letters: K candidates, D columns, H hidden units, P peaks, M explanations (see `peaks`).
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS, Adduct
from duallgd_cli.chem.elements import INDEX, MASSES_DA
from duallgd_cli.formulas.composition import KnownFormulas, codes, composition
from duallgd_cli.formulas.peaks import (
    Explanations,
    Peaks,
    explain,
    explanation_features,
    isotope_scores,
    keep_best,
)
from duallgd_cli.spectra.annotation import excess
from duallgd_cli.spectra.types import IsotopePattern

FILE: Final = Path(__file__).with_name("model.npz")
_FURTHEST: Final = 8.0  # standard deviations; beyond them nothing was fitted


class Network(NamedTuple):
    """A perceptron with rectified hidden layers, if any, and one output."""

    mean: NDArray[np.float32]  # of each input, (D,)
    deviation: NDArray[np.float32]  # standard deviation of each input, (D,)
    # weights (inputs, outputs) and biases (outputs,) of each layer
    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]

    def __call__(self, inputs: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The output for each row of inputs (K, D), shape (K,)."""
        hidden = standardised(inputs, self.mean, self.deviation)
        for weight, bias in self.layers[:-1]:
            hidden = np.maximum(hidden @ weight + bias, 0)
        weight, bias = self.layers[-1]
        return (hidden @ weight + bias)[:, 0].astype(np.float64)


class Table(NamedTuple):
    """Log-odds of formulas of fragments or losses."""

    code: NDArray[np.int64]  # see `composition.codes`; ascending, int64 (T,)
    # that an explanation with this formula is a true one, float32 (T,)
    log_odds: NDArray[np.float32]

    def columns(self, code: NDArray[np.int64]) -> NDArray[np.float32]:
        """Log-odds (0 where unknown) and whether they are known, shape (K, 2)."""
        row = np.minimum(np.searchsorted(self.code, code), self.code.size - 1)
        known = self.code[row] == code
        return np.stack([np.where(known, self.log_odds[row], 0), known], axis=1).astype(np.float32)


class FormulaModel(NamedTuple):
    """All that is fitted."""

    prior: Network  # what the composition alone says
    explanation: Network  # whether an explanation of a peak is a true one
    losses: Table
    fragments: Table
    scorer: Network  # score of a candidate; its exponential is a weight among the candidates
    sharpness: float  # by which scores are multiplied, fitted on other molecules
    unlisted: float  # share of the best candidate's weight that formulas outside the list have


def standardised(
    inputs: NDArray[np.floating[Any]], mean: NDArray[np.float32], deviation: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Inputs (K, D) as networks take them."""
    scaled = (inputs - mean) / deviation
    return np.asarray(np.clip(scaled, -_FURTHEST, _FURTHEST), dtype=np.float32)


@cache
def formula_model() -> FormulaModel:
    """The model that comes with duallgd."""
    with np.load(FILE) as file:
        arrays = dict(file)

    def network(name: str) -> Network:
        n_layers = sum(key.startswith(f"{name}.weight") for key in arrays)
        layers = ((arrays[f"{name}.weight{i}"], arrays[f"{name}.bias{i}"]) for i in range(n_layers))
        return Network(arrays[f"{name}.mean"], arrays[f"{name}.deviation"], tuple(layers))

    losses, fragments = (
        Table(arrays[f"{name}.code"], arrays[f"{name}.log_odds"])
        for name in ("losses", "fragments")
    )
    prior, explanation, scorer = map(network, ("prior", "explanation", "scorer"))
    numbers = (float(arrays[name]) for name in ("sharpness", "unlisted"))
    return FormulaModel(prior, explanation, losses, fragments, scorer, *numbers)


# Standard deviation of measured precursor m/z, ppm; fitted scores were fitted with it.
PRECURSOR_SD_PPM: Final[Mapping[str, float]] = {"orbitrap": 1.5, "qtof": 3.0, "": 3.0}
# How often molecules are measured as each adduct, of those of one polarity; by `Adduct.index`.
ADDUCT_SHARES: Final = (0.80, 0.06, 0.01, 0.05, 0.04, 0.04, 0.85, 0.08, 0.03, 0.04)
# Candidates whose peaks are looked at, and those whose composition is.
_MOST: Final = 200
_MOST_COMPOSITIONS: Final = 20_000
_EXPLANATIONS: Final = 1 << 14
# Scores were fitted on spectra with peaks. Without any the first formula is right for 71 % of 502
# molecules of fold val, where the sharpness of those with peaks states 75 %, this part of it 72 %.
_WITHOUT_PEAKS: Final = 0.9
_KNOWN_BONUS: Final = 3.0  # log weight of a formula that any known structure has
_MASSES: Final = np.array(MASSES_DA)


class Candidates(NamedTuple):
    """Formulas that may be that of a precursor, each with one adduct; arrays of K rows."""

    formula: NDArray[np.int16]  # of the molecules, (K, N_ELEMENTS)
    adduct: NDArray[np.int64]  # `Adduct.index` of each, different for all that are tried
    ppm: NDArray[np.float64]  # measured minus theoretical m/z
    error_ppm: NDArray[np.float64]  # what of it the rounding of the precursor does not explain
    structures: NDArray[np.int64]  # known structures of the formula by group, (K, G)
    prior: NDArray[np.float64]  # log weight that the composition alone gives
    isotopes: NDArray[np.float64]  # log weight that the isotope pattern gives, 0 without one
    weight: NDArray[np.float64]  # log weight by all that is known without peaks, roughly; falling
    adducts: Mapping[int, Adduct]  # those that are tried, by their index


class Evidence(NamedTuple):
    """The best explanation of each peak by each candidate."""

    log_odds: NDArray[np.float32]  # that it is a true one, 0 where there is none, (K, P)
    explained: NDArray[np.bool_]  # whether there is one, (K, P)
    error: NDArray[np.float64]  # mass error relative to the tolerance, -1 to 1, (K, P)
    whole_error: NDArray[np.float64]  # absolute error where the whole ion is seen, else 0, (K,)
    whole: NDArray[np.bool_]  # whether the whole ion is seen, (K,)


def candidates(
    found: Sequence[tuple[Adduct, NDArray[np.int16]]],
    precursor_mz: float,
    instrument: str,
    known: KnownFormulas,
    model: FormulaModel,
    pattern: IsotopePattern | None = None,
    rounding_da: float = 0.0,
) -> Candidates:
    """The likeliest formulas of each possible adduct, by prior, mass error and isotopes."""
    formula = np.concatenate([formulas for _, formulas in found])
    adduct = np.concatenate([np.full(len(f), one.index) for one, f in found])
    errors = []  # relative
    for one, formulas in found:
        mass = precursor_mz * abs(one.charge)
        errors.append((mass - one.molecules * (formulas @ _MASSES) - one.mass_shift) / mass)
    ppm = np.concatenate(errors) * 1e6
    # All that is rounded to the same number is as likely.
    rounding_ppm = rounding_da / precursor_mz * 1e6
    error_ppm = ppm - np.clip(ppm, -rounding_ppm, rounding_ppm)
    structures = known.counts(formula)
    total = structures.sum(axis=1)
    weight = np.where(total > 0, _KNOWN_BONUS + np.log1p(total), 0.0)
    weight -= _squared_error(error_ppm, instrument)
    weight += np.log(np.array(ADDUCT_SHARES))[adduct]
    isotopes = np.concatenate([isotope_scores(pattern, formulas, one) for one, formulas in found])
    weight += isotopes
    cheap = weight + known.log_share(formula)
    kept = np.sort(np.argsort(-cheap, kind="stable")[:_MOST_COMPOSITIONS])
    log_prior = model.prior(composition(known, formula[kept]))
    weight = weight[kept] + log_prior
    best = np.argsort(-weight, kind="stable")[:_MOST]
    rows = kept[best]
    return Candidates(
        formula[rows],
        adduct[rows],
        ppm[rows],
        error_ppm[rows],
        structures[rows],
        log_prior[best],
        isotopes[rows],
        weight[best],
        {one.index: one for one, _ in found},
    )


def evidence(found: Candidates, peaks: Peaks, model: FormulaModel) -> Evidence:
    """Explain the peaks by each candidate."""
    shape = (len(found.formula), peaks.mz.size)
    log_odds, error = np.zeros(shape, np.float32), np.zeros(shape)
    explained = np.zeros(shape, bool)
    whole, whole_error = np.zeros(shape[0], bool), np.zeros(shape[0])
    for index in np.unique(found.adduct) if peaks.mz.size else ():
        rows = np.flatnonzero(found.adduct == index)
        adduct = found.adducts[int(index)]
        explanations = explain(peaks, found.formula[rows], adduct)
        score = _explanation_scores(explanations, peaks, adduct.charge, model)
        best = keep_best(explanations, score)
        row, peak = rows[explanations.candidate[best]], explanations.peak[best]
        log_odds[row, peak], explained[row, peak] = score[best], True
        error[row, peak] = explanations.error[best]
        seen = explanations.loss[best].sum(axis=1) == 0
        whole[row[seen]] = True
        whole_error[row[seen]] = np.abs(error[row[seen], peak[seen]])
    return Evidence(log_odds, explained, error, whole_error, whole)


def _explanation_scores(
    found: Explanations, peaks: Peaks, charge: int, model: FormulaModel
) -> NDArray[np.float64]:
    """Log-odds of each explanation, shape (M,); some at a time, as inputs take much memory."""
    score = np.zeros(found.candidate.size)
    for start in range(0, score.size, _EXPLANATIONS):
        part = Explanations._make(column[start : start + _EXPLANATIONS] for column in found)
        inputs = [
            explanation_features(part, peaks, charge),
            model.losses.columns(codes(part.loss)),
            model.fragments.columns(codes(part.fragment)),
        ]
        score[start : start + _EXPLANATIONS] = model.explanation(np.concatenate(inputs, axis=1))
    return score


def scorer_features(
    found: Candidates, seen: Evidence, peaks: Peaks, precursor_mz: float, instrument: str
) -> NDArray[np.float32]:
    """What the score of a candidate is made of, shape (K, D)."""
    is_orbitrap = instrument == "orbitrap"
    mean_error, fragment = _fragment_columns(seen, peaks, precursor_mz)
    known = np.log1p(found.structures)
    total = np.log1p(found.structures.sum(axis=1))
    squared = _squared_error(found.error_ppm, instrument)
    prior = np.stack(
        [
            *known.T,
            total > 0,
            total,
            found.prior,
            found.prior * (total == 0),
            squared * is_orbitrap,
            squared * (not is_orbitrap),
            found.error_ppm * mean_error,
            np.log(np.array(ADDUCT_SHARES))[found.adduct],
        ],
        axis=1,
    )
    # What counts is the lead over the others.
    lead = [part - part.max(axis=0) for part in (fragment, prior[:, 4:6]) if len(part)]
    of_adduct = found.adduct[:, None] == np.arange(len(ADDUCTS))
    log_peaks = np.log1p(peaks.mz.size)
    ones = np.ones(len(known))
    by_adduct = of_adduct * np.stack([ones, fragment[:, 3], fragment[:, 7]])[..., None]
    formula = found.formula.astype(np.float64)
    shape = [
        formula[:, INDEX["N"]] / 10,
        formula[:, INDEX["O"]] / 10,
        formula[:, INDEX["N"]] > 0,
        formula[:, INDEX["N"]] / formula[:, 0],
        formula[:, INDEX["S"]] / formula[:, 0],
        excess(formula) / 2 / formula[:, :-1].sum(axis=1),
        prior[:, 3] * log_peaks,
        found.prior * log_peaks,
        prior[:, 3] * precursor_mz / 500,
        found.prior * precursor_mz / 500,
    ]
    columns = [prior, fragment, *lead, *by_adduct, np.stack(shape, axis=1)]
    return np.concatenate(columns, axis=1).astype(np.float32)


def _fragment_columns(
    seen: Evidence, peaks: Peaks, precursor_mz: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean mass error (K,), and what the explained peaks say (K, columns)."""
    n = max(peaks.mz.size, 1)
    root = np.sqrt(peaks.intensity)
    by_intensity = peaks.intensity / max(peaks.intensity.sum(), 1e-12)
    by_root = root / max(root.sum(), 1e-12)
    log_odds, explained = seen.log_odds.astype(np.float64), seen.explained
    n_explained = explained.sum(axis=1)
    upper = peaks.mz > precursor_mz / 2
    weight = explained * by_root
    weight = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-9)
    mean_error = (seen.error * weight).sum(axis=1)
    columns = [
        log_odds.sum(axis=1) / 10,
        log_odds.sum(axis=1) / np.sqrt(n),
        log_odds @ by_intensity,
        log_odds @ by_root,
        np.maximum(log_odds, 0).sum(axis=1) / np.sqrt(n),
        np.minimum(log_odds, 0).sum(axis=1) / np.sqrt(n),
        log_odds @ root / np.sqrt(n),
        n_explained / n,
        explained @ by_intensity,
        explained @ by_root,
        np.log1p(n_explained),
        (np.abs(seen.error) * weight).sum(axis=1),
        (np.abs(seen.error - mean_error[:, None]) * weight).sum(axis=1),
        mean_error,
        seen.whole,
        seen.whole_error,
        explained[:, upper].sum(axis=1) / max(upper.sum(), 1),
        log_odds.max(axis=1, initial=0),
        log_odds.min(axis=1, initial=0),
    ]
    return mean_error, np.stack(columns, axis=1)


def _squared_error(ppm: NDArray[np.float64], instrument: str) -> NDArray[np.float64]:
    """Minus the log-density of a precursor's error, but for a constant."""
    return (ppm / PRECURSOR_SD_PPM[instrument]) ** 2 / 2


def coverage(tolerance_ppm: float, instrument: str) -> float:
    """Probability that a precursor's error is within the tolerance."""
    return math.erf(tolerance_ppm / PRECURSOR_SD_PPM[instrument] / math.sqrt(2))


def log_probabilities(
    scores: NDArray[np.float64],
    model: FormulaModel,
    covered: float = 1.0,
    isotopes: NDArray[np.float64] | None = None,
    without_peaks: bool = False,
) -> NDArray[np.float64]:
    """Calibrated log-probabilities of candidates with these scores, shape (K,).

    They add up to less than `covered`: the formula may be none of the candidates. Log weights of
    isotopes (K,) only choose among the candidates, since what is not listed has a pattern too.
    """
    sharpness = model.sharpness * (_WITHOUT_PEAKS if without_peaks else 1.0)
    lead = sharpness * (scores - scores.max(initial=-np.inf))
    total = np.exp(lead).sum()
    log_probability = lead - np.log(total + model.unlisted) + math.log(covered)
    if isotopes is not None:
        log_probability += isotopes + np.log(total / np.exp(lead + isotopes).sum())
    return np.asarray(log_probability)
