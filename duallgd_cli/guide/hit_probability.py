"""How probable it is that the best hit of a spectral library is the right structure.

A logistic model of what `library.Library.search` says of a hit whose structure has the formula of
the query. It was fitted by the study ``library.py`` on spectra of MassBank, each searched in
those of all other contributors: half of the weight is on libraries that hold the molecule, half on
the same libraries without it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.errors import FormulaError
from duallgd_cli.guide.library import Match

# Weights of `features_of`, in its order.
WEIGHTS: Final = {
    "constant": -0.177,
    "similarity": 2.062,
    "similarity_by_peaks": 0.926,
    "query_peaks": -0.26,
    "rival": -2.464,
    "margin": 2.848,
}


@dataclass(frozen=True, slots=True)
class Hit:
    """The best hit of one spectrum, of the formula of its hypothesis.

    Attributes:
        similarity: Cosine score of `library.Match`, 0 to 1.
        matched_peaks: Of `library.Match`.
        query_peaks: Peaks of the spectrum that was searched, cleaned.
        next_similarity: Highest similarity of another structure with this formula and precursor;
            None where the library has none.
    """

    similarity: float
    matched_peaks: int
    query_peaks: int
    next_similarity: float | None = None


def best_hit(matches: Iterable[Match], formula: str, query_peaks: int) -> tuple[Match, Hit] | None:
    """The best match whose precursor agrees and whose structure has a formula; None without any.

    Args:
        matches: Of one spectrum, best first, as `library.Library.search` gives them.
        formula: In the form of `chem.formula.Formula`.
        query_peaks: Peaks of the spectrum that was searched, cleaned.
    """
    fitting = [one for one in matches if one.is_same and _structure(one.smiles)[0] == formula]
    if not fitting:
        return None
    best = fitting[0]
    others = (
        one.score for one in fitting if _structure(one.smiles)[1] != _structure(best.smiles)[1]
    )
    return best, Hit(best.score, best.peaks, query_peaks, max(others, default=None))


@lru_cache(maxsize=10_000)  # libraries have many spectra of one compound
def _structure(smiles: str) -> tuple[str, str]:
    """Formula and first block of the InChIKey; the formula is "" with elements of no formula."""
    mol = parse_smiles(smiles)
    try:
        return str(formula_of(mol)), inchikey_block(mol)
    except FormulaError:
        return "", inchikey_block(mol)


def features_of(hit: Hit) -> tuple[float, ...]:
    """What the probability depends on, in the order of `WEIGHTS`."""
    margin = 0.0 if hit.next_similarity is None else hit.similarity - hit.next_similarity
    return (
        1.0,
        hit.similarity,
        hit.similarity * math.log(max(1, hit.matched_peaks)),
        math.log(max(1, hit.query_peaks)),
        0.0 if hit.next_similarity is None else 1.0,
        margin,
    )


def probability_of(hit: Hit, share: float = 0.5) -> float:
    """The probability that the structure of a hit is the right one, between 0 and 1.

    It rises with the similarity and with matched peaks, and falls as another structure comes near.

    Args:
        hit: Of one spectrum.
        share: How probable it is, before anything is measured, that the library holds the molecule,
            between 0 and 1. The model was fitted at a half.
    """
    terms = zip(WEIGHTS.values(), features_of(hit), strict=True)
    log_odds = sum(weight * value for weight, value in terms) + math.log(share / (1 - share))
    return 1 / (1 + math.exp(-log_odds))
