"""A few bundled spectra through the whole path, each result held against what must be true.

The spectra are made from chemistry, not measured (``examples/make_examples.py``). That the path is
whole says that an installation works; whether a molecule is found says little about accuracy.
"""

from pathlib import Path
from typing import Final, TypeAlias

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import counted
from duallgd_cli.predict.api import predict_spectra
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.results import OK
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
    predictions = predict_spectra(model, spectra, settings)
    alone = predict_spectra(model, spectra[3:4], settings)[0].candidates
    in_order = [prediction.source.index for prediction in predictions] == [*range(len(EXPECTED))]
    name = f"{len(EXPECTED)} spectra give {len(EXPECTED)} outcomes in order"
    checks: list[Check] = [(name, in_order, f"{len(predictions)} outcomes")]
    for (what, status, block), prediction in zip(EXPECTED, predictions, strict=False):
        words = prediction.status
        if words == OK:
            ranks = [one.rank for one in prediction.candidates if one.inchikey14 == block]
            where = f"at rank {ranks[0]}" if ranks else "not drawn"
            number = counted(len(prediction.candidates), "candidate")
            words += f", {number}, the molecule itself {where}"
        checks.append((f"{what}: {status}", prediction.status == status, words))
    right = [
        formula_of(parse_smiles(candidate.smiles)) == Formula.parse(candidate.formula)
        for prediction in predictions
        for candidate in prediction.candidates
    ]
    is_exact = bool(right) and all(right)
    said = f"{sum(right)} of {len(right)}"
    checks.append(("every candidate has the requested formula", is_exact, said))
    same = predictions[3].candidates == alone
    what = "a spectrum alone gives what it gives among others"
    return [*checks, (what, same, f"equal: {same}")]
