"""Ranked molecular structures for a tandem mass spectrum of an unknown.

From Python: ``from duallgd_cli import load``; see `duallgd_cli.predict.api`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duallgd_cli.predict.api import (
        GuideFiles,
        PredictSettings,
        load,
        predict_spectra,
        to_dataframe,
    )

__all__ = [
    "GuideFiles",
    "PredictSettings",
    "__version__",
    "load",
    "predict_spectra",
    "to_dataframe",
]
__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """Import the Python interface when asked for, so that ``duallgd --help`` stays instant."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from duallgd_cli.predict import api

    found: object = getattr(api, name)
    return found
