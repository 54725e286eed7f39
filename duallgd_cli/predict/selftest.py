"""A few bundled spectra through the whole path, each result held against what must be true.

The spectra are made from chemistry, not measured (``examples/make_examples.py``). That the path is
whole says that an installation works; whether a molecule is found says little about accuracy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.api import predict_spectra
from duallgd_cli.predict.generation import LoadedModel
from duallgd_cli.predict.prediction import OK, Prediction
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.types import Spectrum

SPECTRA: Final = Path(__file__).with_name("selftest.mgf")
_SAMPLING: Final = SamplingSettings(steps=10, samples=20)


@dataclass(frozen=True, slots=True)
class Expected:
    """What one bundled spectrum must give.

    Attributes:
        what: The molecule, or what is wrong with the record.
        status: Of its row.
        inchikey14: Of the molecule, "" where there is none to find.
    """

    what: str
    status: str
    inchikey14: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold.

    Attributes:
        name: What, in words.
        passed: Whether it does.
        found: What was found.
    """

    name: str
    passed: bool
    found: str


EXPECTED: Final = (
    Expected("caffeine, 20 eV", OK, "RYYVLZVUVIJVGH"),
    Expected("caffeine, 45 eV", OK, "RYYVLZVUVIJVGH"),
    Expected("ibuprofen [M-H]-", OK, "HEFNNWSXXWATRW"),
    Expected("paracetamol", OK, "RZVAJINKPMORJF"),
    Expected("acetylcholine [M]+", OK, "OIPILFWXSMYKGL"),
    Expected("a record without formula", "no_formula"),
    Expected("a formula of another mass", "formula_mismatch"),
    Expected("a doubly charged ion", "unsupported_adduct"),
    Expected("a platinum complex", "unsupported_element"),
)


def selftest(model: LoadedModel) -> list[Check]:
    """Predict the bundled spectra and check the outcomes; what must hold for any weights."""
    spectra = [item for item in read(str(SPECTRA)) if isinstance(item, Spectrum)]
    settings = PredictSettings(sampling=_SAMPLING, top_k=_SAMPLING.samples)
    found = predict_spectra(model, spectra, settings)
    alone = predict_spectra(model, spectra[3:4], settings)
    return [
        _one_outcome_each(found),
        *(_status(*pair) for pair in zip(EXPECTED, found, strict=False)),
        _formulas_are_exact(found),
        _same_alone(found[3], alone[0]),
    ]


def _one_outcome_each(found: Sequence[Prediction]) -> Check:
    name = f"{len(EXPECTED)} spectra give {len(EXPECTED)} outcomes in order"
    places = [prediction.source.index for prediction in found]
    return Check(name, places == list(range(len(EXPECTED))), f"{len(found)} outcomes")


def _status(expected: Expected, found: Prediction) -> Check:
    words = found.status
    if found.status == OK:
        words += f", {len(found.candidates)} candidates, {_where(expected, found)}"
    return Check(f"{expected.what}: {expected.status}", found.status == expected.status, words)


def _where(expected: Expected, found: Prediction) -> str:
    ranks = [c.rank for c in found.candidates if c.inchikey14 == expected.inchikey14]
    return f"the molecule itself at rank {ranks[0]}" if ranks else "the molecule itself not drawn"


def _formulas_are_exact(found: Sequence[Prediction]) -> Check:
    candidates = [candidate for prediction in found for candidate in prediction.candidates]
    wrong = [
        candidate.smiles
        for candidate in candidates
        if formula_of(parse_smiles(candidate.smiles)) != Formula.parse(candidate.formula)
    ]
    words = f"{len(candidates) - len(wrong)} of {len(candidates)}"
    return Check("every candidate has the requested formula", not wrong and bool(candidates), words)


def _same_alone(together: Prediction, alone: Prediction) -> Check:
    same = together.candidates == alone.candidates
    return Check("a spectrum alone gives what it gives among others", same, f"equal: {same}")
