"""The authors' network, number for number, so that their released weights give their results.

A plug-in of duallgd: the entry point `authors` of the group ``duallgd.weights`` names this module.
Padding is masked throughout, so a graph's result does not depend on its batch, and what no output
depends on exists as parameters only. The network reads the true order of the atoms when it is run
as the authors run it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duallgd_authors_network.core import LoadedModel, Runtime

__version__ = "0.2.0"


def can_load(path: Path) -> bool:
    """Whether a file is a converted checkpoint of the authors."""
    from duallgd_authors_network.core import WeightsError, foreign_network
    from duallgd_authors_network.weights_file import NETWORK

    try:
        return foreign_network(path) == NETWORK
    except WeightsError:
        return False


def load(path: Path, runtime: "Runtime") -> "LoadedModel":
    """Load a converted checkpoint of the authors' whole system for prediction.

    Raises:
        WeightsError: Broken, or only an encoder or only a decoder.
    """
    from duallgd_authors_network.generator import load_for_prediction

    return load_for_prediction(path, runtime)


def describe(path: Path) -> Mapping[str, Any]:
    """Check a converted checkpoint of the authors; what `duallgd info` prints of it.

    Raises:
        WeightsError: Broken, or a tensor is missing, left over or of another shape.
    """
    from duallgd_authors_network.weights_file import describe as facts

    return facts(path)
