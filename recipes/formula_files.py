"""The two files of numbers that formulas are ranked with, as `duallgd_cli.formulas` reads them."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.formulas.composition import RARER, codes
from duallgd_cli.formulas.scoring import FormulaModel


def save_known(path: Path, formulas: NDArray[np.int16], structures: NDArray[np.int64]) -> None:
    """Write what `composition.known_formulas` reads.

    Args:
        path: Of an .npz file.
        formulas: Distinct formulas, shape (T, N_ELEMENTS).
        structures: Known structures of each by group, shape (T, G).
    """
    code = codes(formulas)
    order = np.argsort(code)
    rarer, n_formulas = np.unique(formulas[:, RARER], axis=0, return_counts=True)
    several = n_formulas > 1
    np.savez_compressed(
        path,
        step=np.diff(code[order], prepend=0),
        structures=np.minimum(structures[order], 255).astype(np.uint8),
        rarer=rarer[several].astype(np.int16),
        rarer_weight=np.log(n_formulas[several] / len(formulas)),
    )


def save_model(path: Path, model: FormulaModel) -> None:
    """Write what `scoring.formula_model` reads."""
    networks = {name: getattr(model, name) for name in ("prior", "explanation", "scorer")}
    arrays: dict[str, Any] = {}
    for name, network in networks.items():
        arrays |= {f"{name}.mean": network.mean, f"{name}.deviation": network.deviation}
        for i, (weight, bias) in enumerate(network.layers):
            arrays |= {f"{name}.weight{i}": weight, f"{name}.bias{i}": bias}
    for name, table in (("losses", model.losses), ("fragments", model.fragments)):
        arrays |= {f"{name}.code": table.code, f"{name}.log_odds": table.log_odds}
    arrays |= {"sharpness": model.sharpness, "unlisted": model.unlisted}
    np.savez_compressed(path, **arrays)
