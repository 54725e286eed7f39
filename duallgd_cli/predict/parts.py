"""How likely the true structure contains a part, whether or not it is among the candidates.

Right first candidates are rare, but what most samples have in common is often right. A probability
is a logistic function of how many of the weighted candidates and of the samples have the part, and
of how usual the part is in known structures of that formula. Both were fitted by
``recipes/parts.py`` and lie in ``parts.npz``. Of fewer than `FEWEST_SAMPLES` samples, which
the fit has not seen, nothing is said: one of two is no share. C candidates, P parts, S signs.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.parts import FATTY_ACYL, RING_SYSTEM, Part, bond_environments, find, overlap
from duallgd_cli.ranking.ranking import sigmoid
from duallgd_cli.results import Candidate, LikelyPart, Results

LEAST: Final = 0.05
FEWEST_SAMPLES: Final = 10
# What nearly every known structure of a formula has says nothing about this one.
IMPLIED: Final = 0.95
_RARE: Final = 1e-3  # prior of a part that is not in parts.npz
_CUT: Final = 0.005  # shares are kept so far from 0 and 1 before their logit is taken
_TELLING: Final = 0.5
# How names begin that are spoken with a vowel first: an unsaturated acid, but a urea and a uracil.
_SPOKEN: Final = ("a", "e", "i", "o", "un", "n-", "N-", "N,", "O-", "S-", "F-")


def likely_parts(results: Results, candidates: Sequence[Candidate]) -> tuple[LikelyPart, ...]:
    """The parts of a feature's true structure, likeliest first; candidates count by confidence.

    Left out are parts below `LEAST`, those that the formula implies, and all where hardly any
    samples were drawn; see `is_enough`.
    """
    if not candidates or not is_enough(results):
        return ()
    sampled = _proposed(results)
    parts, has = find([candidate.smiles for candidate in candidates])
    prior = priors(parts, candidates)
    probability = sigmoid(signs(parts, has, prior, candidates, sampled) @ _fitted()["weights"])
    share = has @ _weights(candidates)
    found = (
        LikelyPart(part.kind, part.name, part.smarts, *map(float, values))
        for part, *values in zip(parts, probability, prior, share, strict=True)
    )
    kept = [one for one in found if one.probability >= LEAST and one.prior < IMPLIED]
    return tuple(sorted(kept, key=lambda one: (-one.probability, one.kind, one.name)))


def is_enough(results: Results) -> bool:
    """Whether as many samples were drawn of a feature as probabilities of parts take."""
    return _proposed(results) >= FEWEST_SAMPLES


def _proposed(results: Results) -> int:
    """Samples drawn, or structures of a database where nothing was."""
    return sum(result.sampled or len(result.structures) for result in results)


def bond_certainty(candidates: Sequence[Candidate], most: int) -> list[list[float]]:
    """How far the samples agree on each bond of the `most` first candidates.

    That is the share of all candidates, by the root of their confidence, that hold such a bond
    (between such atoms, with such neighbours), in the order of the pairs of atoms.
    """
    bonds = bond_environments([candidate.smiles for candidate in candidates])
    share = defaultdict[int, float](float)
    weights = np.sqrt(_weights(candidates)) if candidates else np.zeros(0)
    for weight, own in zip((weights / weights.sum()).tolist(), bonds, strict=True):
        for bond in set(own):
            share[bond] += weight
    return [[round(share[bond], 3) for bond in own] for own in bonds[:most]]


def priors(parts: Sequence[Part], candidates: Sequence[Candidate]) -> NDArray[np.float64]:
    """How usual parts are in known structures of the candidates' formulas, (P,)."""
    weight_of = defaultdict[str, float](float)
    for candidate, weight in zip(candidates, _weights(candidates).tolist(), strict=True):
        weight_of[candidate.formula] += weight
    known = np.zeros(len(_row_of()))
    for text, weight in weight_of.items():
        known += weight * prior_of(Formula.parse(text))
    rows = [_row_of().get((part.kind, part.name)) for part in parts]
    return np.array([_RARE if row is None else known[row] for row in rows])


def prior_of(formula: Formula) -> NDArray[np.float64]:
    """How usual each part of ``parts.npz`` is in known structures of a formula."""
    fitted = _fitted()
    hidden = np.maximum(0.0, described(formula) @ fitted["hidden"] + fitted["hidden_bias"])
    return sigmoid(hidden @ fitted["prior"] + fitted["prior_bias"])


def described(formula: Formula) -> NDArray[np.float64]:
    """What the prior sees of a formula: counts, presence, unsaturation and ratios, (60,)."""
    counts = formula.array.astype(float)
    carbons, unsaturation = max(1.0, counts[0]), formula.unsaturation
    ratios = np.array([counts[-1], unsaturation, *counts[1:3]]) / carbons
    others = [unsaturation / 10, np.log1p(max(0.0, unsaturation)), formula.n_heavy / 30]
    charged = float(formula.charge > 0)
    return np.array(
        [*counts / 10, *np.log1p(counts), *(counts > 0), *(counts > 1), *others, *ratios, charged]
    )


def signs(
    parts: Sequence[Part],
    has: NDArray[np.bool_],
    prior: NDArray[np.float64],
    candidates: Sequence[Candidate],
    sampled: int,
) -> NDArray[np.float64]:
    """What speaks for each part, (P, S): which candidates have it, (P, C), and its prior, (P,).

    Candidates are all of a feature, best first; so many samples were drawn.
    """
    weight = _weights(candidates)
    samples = np.array([float(one.samples) for one in candidates])
    by_weight, by_root, by_sample = (
        _logit(has @ each / each.sum()) for each in (weight, np.sqrt(weight), samples)
    )
    there = _logit(sum(one.confidence for one in candidates))
    is_known = np.array([float((part.kind, part.name) in _row_of()) for part in parts])
    one = np.ones(len(parts))
    of_prior = [_logit(prior), np.log(prior + 1e-6), is_known, is_known * by_root]
    of_feature = [one * there, by_root * there, one * np.log(sampled / 100)]
    columns = np.stack([one, by_weight, by_root, by_sample, *of_prior, *of_feature], axis=-1)
    is_ring = np.array([float(part.kind == RING_SYSTEM) for part in parts])
    return np.concatenate([columns, columns * is_ring[:, None]], axis=-1)


def telling(parts: Sequence[LikelyPart], smiles: Sequence[str], most: int = 3) -> list[LikelyPart]:
    """The few parts that say most beyond the formula, likeliest first.

    A part says as much as it moves from its prior (relative entropy). One that lies half or more
    within another that says more, in these molecules, is not repeated.
    """
    chosen: list[LikelyPart] = []
    likely = [part for part in parts if part.probability >= _TELLING]
    p, q = (np.array([getattr(one, name) for one in likely]) for name in ("probability", "prior"))
    gain = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    for part in (likely[i] for i in np.argsort(-gain, kind="stable")):
        if len(chosen) == most:
            break
        if all(overlap(part.smarts, other.smarts, smiles) < 0.5 for other in chosen):
            chosen.append(part)
    return sorted(chosen, key=lambda one: -one.probability)


def sentence(parts: Sequence[LikelyPart]) -> str:
    """Such as ``contains a hexose (0.94) and a flavone core (0.71)``; "" of no parts."""
    words = [f"{_called(part)} ({part.probability:.2f})" for part in parts]
    if not words:
        return ""
    return "contains " + " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _called(part: LikelyPart) -> str:
    name = part.name
    if part.kind in (RING_SYSTEM, FATTY_ACYL) and part.kind.split()[0] not in name:
        name = f"{name} {part.kind}"
    return f"an {name}" if name.startswith(_SPOKEN) else f"a {name}"


def _weights(candidates: Sequence[Candidate]) -> NDArray[np.float64]:
    confidence = np.array([candidate.confidence for candidate in candidates])
    return np.asarray(confidence / confidence.sum())


def _logit(share: Any) -> Any:  # noqa: ANN401 - a number or an array
    kept = np.clip(share, _CUT, 1 - _CUT)
    return np.log(kept / (1 - kept))


@cache
def _fitted() -> dict[str, NDArray[Any]]:
    with resources.files("duallgd_cli.predict").joinpath("parts.npz").open("rb") as file:
        return dict(np.load(file).items())


@cache
def _row_of() -> dict[tuple[str, str], int]:
    return {(kind, name): row for row, (kind, name) in enumerate(_fitted()["parts"].tolist())}
