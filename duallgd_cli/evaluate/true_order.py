"""The authors' rules for their own network: their choice of molecules, the true order of atoms.

The authors' network reads the order in which a molecule's atoms are listed. They list them as the
true molecule's canonical SMILES does, so part of the answer is in the question. That order exists
here, in evaluation, and nowhere else; whatever comes of it carries `TRUE_ORDER`. N heavy atoms of a
molecule.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import HYDROGEN, INDEX
from duallgd_cli.errors import Failure, UsageError
from duallgd_cli.evaluate.molecules import elements_in_smiles_order
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.suites import EvaluationInputs
from duallgd_cli.files import table_rows
from duallgd_cli.predict.generation import LoadedModel, RefusedError
from duallgd_cli.spectra.types import Hypothesis

if TYPE_CHECKING:
    from duallgd_cli.reference.generator import ReferenceGenerator

TRUE_ORDER: Final = (
    "TRUE ATOM ORDER: the network was shown the atoms in the order of the true molecule's "
    "canonical SMILES, as in the authors' tests; the order tells part of the answer and is not "
    "known of an unlabelled spectrum."
)
# Elements of the released weights, hydrogen aside.
RELEASED_ELEMENTS: Final = ("C", "O", "P", "N", "S", "Cl", "F")


@dataclass(frozen=True, eq=False)
class TrueOrder:
    """Lists a formula's atoms as the true molecule's canonical SMILES does.

    Attributes:
        elements: Element of each heavy atom of the true molecule in that order, by spectrum.
    """

    elements: Mapping[str, Sequence[str]]

    def __call__(self, hypothesis: Hypothesis) -> NDArray[np.int64]:
        """Which atom of the formula's list stands at each place, int64 (N,).

        Raises:
            RefusedError: The true molecule has other atoms than the formula.
        """
        symbols = self.elements[hypothesis.feature.first.spectrum_id]
        true = np.array([INDEX.get(symbol, HYDROGEN) for symbol in symbols])
        by_element = np.argsort(true, kind="stable")
        if not np.array_equal(true[by_element], hypothesis.formula.atom_class):
            message = (
                f"the true molecule's {len(symbols)} heavy atoms are not those of "
                f"{hypothesis.formula}, so its order cannot be used"
            )
            raise RefusedError(Failure("formula_mismatch", message, "sample"))
        shown = np.empty_like(by_element)
        shown[by_element] = np.arange(len(symbols))
        return shown


def by_authors_rules(
    settings: EvaluateSettings, model: LoadedModel, inputs: EvaluationInputs
) -> tuple[LoadedModel, EvaluationInputs]:
    """The model and the spectra under the rules that are asked for; remarks say what was done.

    Raises:
        UsageError: The weights are not the authors', or no spectrum is left.
    """
    if settings.preset == "reference":
        asked = "--atom-order truth" if settings.tells_order else "--preset reference"
        known = _reference(model, asked).model.settings.atom_symbols
        inputs = with_elements(inputs, known)
    if settings.tells_order:
        generator = _reference(model, "--atom-order truth")
        inputs = inputs.noted(TRUE_ORDER)
        elements = {
            " ".join(truth.spectrum_id.split()): elements_in_smiles_order(truth.smiles)
            for truth in inputs.truths
        }
        knowing = replace(generator, atom_order=TrueOrder(elements), message=TRUE_ORDER)
        name = f"{model.name}, told the true atom order"
        model = replace(model, generator=knowing, name=name, remark=TRUE_ORDER)
    return model, inputs


def with_elements(inputs: EvaluationInputs, known: Iterable[str]) -> EvaluationInputs:
    """The spectra of molecules that hold these elements alone, as the authors choose theirs.

    Raises:
        UsageError: None is left.
    """
    vocabulary = {*known, "H"}
    listed = " ".join(sorted(vocabulary))
    kept = tuple(
        truth
        for truth in inputs.truths
        if vocabulary.issuperset(elements_in_smiles_order(truth.smiles))
    )
    dropped = len(inputs.truths) - len(kept)
    if not kept:
        raise UsageError(f"all {dropped} molecules hold elements other than {listed}")
    remark = (
        f"Preset reference: {dropped} of {len(inputs.truths)} spectra are left out, as the "
        f"authors do, since their molecules hold elements other than {listed}."
    )
    return replace(inputs, truths=kept).noted(remark)


def tells_true_order(predictions: Path) -> bool:
    """Whether a table of predictions says that they come from the true order."""
    rows = table_rows(predictions, required=("smiles",))
    return any(TRUE_ORDER in row.get("message", "") for row in rows)


def _reference(model: LoadedModel, asked: str) -> "ReferenceGenerator":
    from duallgd_cli.reference.generator import ReferenceGenerator  # torch loads only here

    if not isinstance(model.generator, ReferenceGenerator):
        raise UsageError(
            f"{asked} is for the authors' weights, and {model.name} holds others; give --weights "
            "FILE as 'duallgd weights convert' writes it"
        )
    return model.generator
