"""A few bundled spectra through the whole path, each result held against what must be true.

The spectra are made from chemistry, not measured (``examples/make_examples.py``). That the path is
whole says that an installation works; whether a molecule is found says little about accuracy.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.api import predict_spectra
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.results import OK, Prediction
from duallgd_cli.spectra.reading import read

SPECTRA: Final = Path(__file__).with_name("selftest.mgf")
_SAMPLING: Final = SamplingSettings(steps=10, samples=20)


# Molecule or what is wrong with the record, status of its row, first block of the InChIKey.
EXPECTED: Final = (
    ("caffeine, 20 eV", OK, "RYYVLZVUVIJVGH"),
    ("caffeine, 45 eV", OK, "RYYVLZVUVIJVGH"),
    ("ibuprofen [M-H]-", OK, "HEFNNWSXXWATRW"),
    ("paracetamol", OK, "RZVAJINKPMORJF"),
    ("acetylcholine [M]+", OK, "OIPILFWXSMYKGL"),
    ("paracetamol without formula", OK, "RZVAJINKPMORJF"),
    ("a formula of another mass", "formula_mismatch", ""),
    ("a radical ion", "unsupported_adduct", ""),
    ("a platinum complex", "unsupported_element", ""),
)
# What must hold, whether it does, and what was found.
Check: TypeAlias = tuple[str, bool, str]


def selftest(model: LoadedModel) -> list[Check]:
    """Predict the bundled spectra and check the outcomes; what must hold for any weights."""
    spectra = list(read(str(SPECTRA)))
    settings = PredictSettings(sampling=_SAMPLING, top_k=_SAMPLING.samples)
    found = predict_spectra(model, spectra, settings)
    alone = predict_spectra(model, spectra[3:4], settings)[0].candidates
    name = f"{len(EXPECTED)} spectra give {len(EXPECTED)} outcomes in order"
    in_order = [prediction.source.index for prediction in found] == [*range(len(EXPECTED))]
    same = found[3].candidates == alone
    return [
        (name, in_order, f"{len(found)} outcomes"),
        *(_status(*expected, one) for expected, one in zip(EXPECTED, found, strict=False)),
        _formulas_are_exact(found),
        ("a spectrum alone gives what it gives among others", same, f"equal: {same}"),
    ]


def _status(what: str, status: str, inchikey14: str, found: Prediction) -> Check:
    words = found.status
    if found.status == OK:
        ranks = [one.rank for one in found.candidates if one.inchikey14 == inchikey14]
        where = f"at rank {ranks[0]}" if ranks else "not drawn"
        words += f", {len(found.candidates)} candidates, the molecule itself {where}"
    return f"{what}: {status}", found.status == status, words


def _formulas_are_exact(found: Sequence[Prediction]) -> Check:
    candidates = [candidate for prediction in found for candidate in prediction.candidates]
    right = [
        formula_of(parse_smiles(one.smiles)) == Formula.parse(one.formula) for one in candidates
    ]
    name = "every candidate has the requested formula"
    return name, bool(right) and all(right), f"{sum(right)} of {len(right)}"
