"""By whose rules a benchmark is predicted: ours, or the authors' with the true order of the atoms.

The authors' network reads the order in which a molecule's atoms are listed. They list them as the
true molecule's canonical SMILES does, so part of the answer is in the question. That order exists
here, in evaluation, and nowhere else; whatever comes of it carries `TRUE_ORDER`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.molecules import elements_in_smiles_order
from duallgd_cli.evaluate.overlap import Checked
from duallgd_cli.evaluate.tables import read_rows
from duallgd_cli.predict.generation import LoadedModel

TRUE_ORDER: Final = (
    "TRUE ATOM ORDER: the network was shown the atoms in the order of the true molecule's "
    "canonical SMILES, as in the authors' tests; the order tells part of the answer and is not "
    "known of an unlabelled spectrum."
)
PRESETS: Final = ("duallgd", "reference")
ATOM_ORDERS: Final = ("formula", "truth")
# Elements of the released weights, hydrogen aside.
RELEASED_ELEMENTS: Final = ("C", "O", "P", "N", "S", "Cl", "F")


@dataclass(frozen=True, slots=True)
class Protocol:
    """Rules of a prediction for evaluation.

    Attributes:
        preset: ``reference`` for the authors' choice of molecules, with their weights.
        atom_order: ``formula``, or ``truth``, which only the authors' network reads.
    """

    preset: str = PRESETS[0]
    atom_order: str = ATOM_ORDERS[0]

    def __post_init__(self) -> None:
        for option, value, known in (
            ("preset", self.preset, PRESETS),
            ("atom-order", self.atom_order, ATOM_ORDERS),
        ):
            if value not in known:
                raise UsageError(f"--{option} is {' or '.join(known)}, not {value!r}")

    @property
    def is_reference(self) -> bool:
        """Whether the authors' rules are asked for."""
        return self.preset == PRESETS[1]

    @property
    def tells_order(self) -> bool:
        """Whether the network is told the true order."""
        return self.atom_order == ATOM_ORDERS[1]

    def applied(self, model: LoadedModel, checked: Checked) -> tuple[LoadedModel, Checked]:
        """The model and the spectra under these rules; remarks say what was done.

        Raises:
            UsageError: The weights are not the authors', or no spectrum is left.
        """
        if not self.is_reference and not self.tells_order:
            return model, checked
        from duallgd_cli.evaluate.true_order import elements_of, told  # torch loads only here

        asked = "--atom-order truth" if self.tells_order else "--preset reference"
        known = elements_of(model, asked)
        if self.is_reference:
            checked = with_elements(checked, known)
        if self.tells_order:
            checked = stamped(checked)
            model = told(model, checked.truths, TRUE_ORDER)
        return model, checked


def with_elements(checked: Checked, known: Iterable[str]) -> Checked:
    """The spectra of molecules that hold these elements alone, as the authors choose theirs.

    Raises:
        UsageError: None is left.
    """
    vocabulary = {*known, "H"}
    listed = " ".join(sorted(vocabulary))
    kept = tuple(
        truth
        for truth in checked.truths
        if vocabulary.issuperset(elements_in_smiles_order(truth.smiles))
    )
    dropped = len(checked.truths) - len(kept)
    if not kept:
        raise UsageError(f"all {dropped} molecules hold elements other than {listed}")
    remark = (
        f"Preset reference: {dropped} of {len(checked.truths)} spectra are left out, as the "
        f"authors do, since their molecules hold elements other than {listed}."
    )
    return replace(checked, truths=kept, remarks=(*checked.remarks, remark))


def stamped(checked: Checked) -> Checked:
    """The same, with `TRUE_ORDER` among the remarks once."""
    return replace(checked, remarks=tuple(dict.fromkeys((*checked.remarks, TRUE_ORDER))))


def tells_true_order(predictions: Path) -> bool:
    """Whether a table of predictions says that they come from the true order."""
    rows = read_rows(predictions, required=("smiles",))
    return any(TRUE_ORDER in row.get("message", "") for row in rows)
