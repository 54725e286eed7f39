"""What this installation and a network are made of, for `duallgd info` and run records."""

import platform
import re
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from duallgd_cli import __version__

if TYPE_CHECKING:
    from torch import nn

_LIBRARIES: Final = ("torch", "numpy", "rdkit", "pyteomics")
_NUMBER: Final = re.compile(r"\.\d+(?=\.|$)")


def versions() -> dict[str, str]:
    """Version of duallgd, of Python and of the libraries that results depend on."""
    return {
        "duallgd": __version__,
        "python": platform.python_version(),
        **{library: _version(library) for library in _LIBRARIES},
    }


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


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "absent"
