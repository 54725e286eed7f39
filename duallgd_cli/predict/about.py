"""What this installation is made of and what it can do, for `duallgd info` and run records."""

import platform
import re
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from duallgd_cli import __version__
from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.chem.elements import SYMBOLS
from duallgd_cli.reference.subformula import knows_adduct

if TYPE_CHECKING:
    from torch import nn

    from duallgd_cli.model.settings import ModelSettings

_LIBRARIES: Final = ("torch", "numpy", "rdkit", "pyteomics")
_NUMBER: Final = re.compile(r"\.\d+(?=\.|$)")


def versions() -> dict[str, str]:
    """Version of duallgd, of Python and of the libraries that results depend on."""
    return {
        "duallgd": __version__,
        "python": platform.python_version(),
        **{library: _version(library) for library in _LIBRARIES},
    }


def elements() -> tuple[str, ...]:
    """Symbols of the supported elements, in the order of the network's atom classes."""
    return SYMBOLS


def adducts() -> tuple[str, ...]:
    """Names of the supported adducts."""
    return tuple(adduct.name for adduct in ADDUCTS)


def reference_adducts() -> tuple[str, ...]:
    """Names of the supported adducts that the authors' spectrum encoder knows too."""
    return tuple(adduct.name for adduct in ADDUCTS if knows_adduct(adduct.name))


def parameter_counts(module: "nn.Module", depth: int = 3) -> dict[str, int]:
    """Trainable parameters by part of a network, in its order.

    Args:
        module: The network.
        depth: Parts of a name that are told apart; layers of one stack are counted together.
    """
    counts: Counter[str] = Counter()
    for name, parameter in module.named_parameters():
        parts = _NUMBER.sub("", name).split(".")[:-1]
        counts[".".join(parts[:depth])] += parameter.numel()
    return dict(counts)


def preset_counts(settings: "ModelSettings") -> dict[str, int]:
    """Trainable parameters by part of the network of these sizes, without weights."""
    from duallgd_cli.model.ablations import build  # torch loads only here

    return parameter_counts(build(settings))


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "absent"
