"""The true order of the atoms, for the authors' network alone.

N heavy atoms of a molecule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.bench.oracle import HasFeature
from duallgd_cli.chem.elements import HYDROGEN, INDEX
from duallgd_cli.errors import Failure, UsageError
from duallgd_cli.evaluate.molecules import elements_in_smiles_order
from duallgd_cli.evaluate.tables import Truth
from duallgd_cli.predict.generation import LoadedModel, RefusedError
from duallgd_cli.reference.generator import ReferenceGenerator


class _HasAtoms(Protocol):
    @property
    def atom_class(self) -> NDArray[np.int64]: ...


class HasFormula(HasFeature, Protocol):
    """What a spectrum may be of, as far as the order of atoms goes."""

    @property
    def formula(self) -> _HasAtoms:
        """Its heavy atoms, sorted by element."""
        ...


@dataclass(frozen=True, eq=False)
class TrueOrder:
    """Lists a formula's atoms as the true molecule's canonical SMILES does.

    Attributes:
        elements: Element of each heavy atom of the true molecule in that order, by spectrum.
    """

    elements: Mapping[str, Sequence[str]]

    def __call__(self, hypothesis: HasFormula) -> NDArray[np.int64]:
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


def elements_of(model: LoadedModel, asked: str) -> tuple[str, ...]:
    """Elements that the authors' weights know.

    Args:
        model: To be used.
        asked: The option that needs them.

    Raises:
        UsageError: These are other weights.
    """
    return _reference(model, asked).model.settings.atom_symbols


def told(model: LoadedModel, truths: Sequence[Truth], sentence: str) -> LoadedModel:
    """The model with the true order of the atoms of these spectra.

    Args:
        model: Of the authors' weights.
        truths: What the spectra are.
        sentence: Said with everything that it draws.

    Raises:
        UsageError: These are other weights.
    """
    elements = {
        " ".join(truth.spectrum_id.split()): elements_in_smiles_order(truth.smiles)
        for truth in truths
    }
    generator = _reference(model, "--atom-order truth")
    knowing = replace(generator, atom_order=TrueOrder(elements), message=sentence)
    name = f"{model.name}, told the true atom order"
    return replace(model, generator=knowing, name=name, remark=sentence)


def _reference(model: LoadedModel, asked: str) -> ReferenceGenerator:
    if not isinstance(model.generator, ReferenceGenerator):
        raise UsageError(
            f"{asked} is for the authors' weights, and {model.name} holds others; give --weights "
            "FILE as 'duallgd weights convert' writes it"
        )
    return model.generator
