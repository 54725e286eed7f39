"""Where accuracy is lost: candidates come from the true fingerprints, as a perfect encoder's.

    duallgd evaluate --benchmark massbank.tsv --fold val --limit 80 -o val
    python examples/studies/true_fingerprints.py val

The same spectra are predicted with the settings, the seed and the weights of the evaluation. It
knows the answer, so its candidates are a bound and never a result. They lie in the folder as
``true_fingerprint.csv``; finished spectra are kept, and the same command goes on.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from command import run, show
from numpy.typing import NDArray
from rich.table import Table

from duallgd_cli.chem import identity
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.molecule import assemble, disassemble, formula_of
from duallgd_cli.config import parse
from duallgd_cli.errors import FormulaError, MoleculeError, UsageError
from duallgd_cli.evaluate.intervals import Estimate, share
from duallgd_cli.evaluate.metrics import Scores, score
from duallgd_cli.evaluate.report import RESULTS, ranked_of
from duallgd_cli.evaluate.run import PREDICTIONS, SPECTRA, TRUTH
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Predicted, Truth, read_predictions, truths_of
from duallgd_cli.predict import api
from duallgd_cli.predict.model import Encode, Encoded, LoadedModel
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.runtime import Runtime
from duallgd_cli.sources.collection import bonds_between
from duallgd_cli.spectra.types import AnnotatedSpectrum
from duallgd_cli.tables import table_rows


@dataclass(frozen=True, eq=False)
class TrueFingerprints:
    """An encoder that knows the answer."""

    bits: Mapping[str, NDArray[np.uint16]]  # set Morgan bits of the true molecule, by spectrum
    encode: Encode  # the trained one: what each bit speaks for a molecule beside its isomers

    def __call__(self, annotated: AnnotatedSpectrum) -> Encoded:
        """Zeros and ones of the true molecule, float32 (4096,); the rest as the spectrum says."""
        dense = np.zeros(FINGERPRINT_BITS, np.float32)
        dense[self.bits[annotated.hypothesis.feature.first.spectrum_id]] = 1
        return dense, self.encode(annotated)[1]


def knowing(model: LoadedModel, truths: Sequence[Truth]) -> LoadedModel:
    """A model whose sources and scores are given the true fingerprints."""
    bits = {
        truth.spectrum_id: identity.fingerprint(identity.parse_smiles(truth.smiles))
        for truth in truths
    }
    name = f"{model.name} with true fingerprints"
    return replace(model, encode=TrueFingerprints(bits, model.encode), again=None, name=name)


def predicted_by(
    model: LoadedModel, folder: Path, found: Mapping[str, Any]
) -> dict[str, Predicted]:
    """What a model makes of the spectra of an evaluation; what is finished of it is kept.

    It predicts with the settings and the seed of results.json, of which `found` is the contents.
    """
    given = dict(found["prediction"]["settings"])
    if given.pop("formulas"):
        raise UsageError("the evaluation took formulas from a table; make one that does not")
    request = PredictRequest(
        inputs=(str(folder / SPECTRA),),
        output=str(folder / "true_fingerprint.csv"),
        settings=parse(PredictSettings, given),
        resume=(folder / "true_fingerprint.csv.journal.jsonl").exists(),
    )
    predict(request, model)
    return read_predictions(Path(request.output))


@lru_cache(maxsize=100_000)
def assembly_recovers(smiles: str) -> bool:
    """Whether the perfect bond matrix of a molecule is assembled into that molecule first."""
    try:
        mol = identity.parse_smiles(smiles)
        graph, order = disassemble(mol)
    except (MoleculeError, FormulaError):
        return False  # outside what bond matrices can express
    bonds = bonds_between(graph, np.arange(len(order)), len(order))
    built = assemble(formula_of(mol), bonds)
    if isinstance(built, str):
        return False
    wanted = identity.inchikey_block(identity.parse_smiles(smiles))
    return identity.inchikey_block(built) == wanted


def steps(ours: Scores, bound: Scores) -> dict[str, Estimate]:
    """Where accuracy is lost between a perfect answer and the first candidate, in order.

    Shares of spectra, each at most about the one before it: a perfect bond matrix is assembled into
    the right molecule; that is drawn from its true fingerprint, and first there; it is drawn at
    all; it is among the first ten; it is first. The bound is of true fingerprints.
    """
    recovered = [float(assembly_recovers(truth.smiles)) for truth in ours.truths]
    right = {
        "perfect bond matrix, assembled": np.array(recovered),
        "true fingerprint, any sample": bound.columns["oracle_accuracy"],
        "true fingerprint, first candidate": bound.columns["accuracy@1"],
        "predicted fingerprint, any sample": ours.columns["oracle_accuracy"],
    }
    for name in reversed([name for name in ours.columns if name.startswith("accuracy@")]):
        right[f"predicted fingerprint, first {name.partition('@')[2]}"] = ours.columns[name]
    return {step: share(column, ours.molecule) for step, column in right.items()}


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of duallgd evaluate.")],
    weights: Annotated[
        str | None, typer.Option(help="Those of the evaluation; by default duallgd's own.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Predict an evaluation's spectra from their true fingerprints, and show every step."""
    found: dict[str, Any] = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    truths = truths_of(table_rows(folder / TRUTH, required=("smiles",)), "", TRUTH)
    model = api.load(weights, runtime=Runtime.resolve(device))
    if model.sha256 != found["prediction"]["weights"]["sha256"]:
        raise UsageError(f"the evaluation used other weights than {model.name}; give --weights")
    told = predicted_by(knowing(model, truths), folder, found)
    settings = EvaluateSettings(top_k=tuple(found["scoring"]["top_k"]), mces=False)
    ours, bound = (
        score(truths, ranked_of(truths, predicted), settings)
        for predicted in (read_predictions(folder / PREDICTIONS), told)
    )
    table = Table("step", "spectra with the right molecule", "95 % interval", title=found["title"])
    for step, one in steps(ours, bound).items():
        table.add_row(step, f"{one.mean:.1%}", f"{one.low:.1%} to {one.high:.1%}")
    show(table)


if __name__ == "__main__":
    run(main)
