"""The fitted numbers that formulas are ranked with; `weights/formulas.py` makes their file.

Letters: K rows, D columns, H hidden units.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

FILE: Final = Path(__file__).with_name("model.npz")
_FURTHEST: Final = 8.0  # standard deviations; beyond them nothing was fitted


class Network(NamedTuple):
    """A perceptron with rectified hidden layers, if any, and one output.

    Attributes:
        mean: Of each input, (D,).
        deviation: Standard deviation of each input, (D,).
        layers: Weights (inputs, outputs) and biases (outputs,) of each layer.
    """

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]
    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]

    def __call__(self, inputs: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The output for each row of inputs (K, D), shape (K,)."""
        hidden = standardised(inputs, self.mean, self.deviation)
        for weight, bias in self.layers[:-1]:
            hidden = np.maximum(hidden @ weight + bias, 0)
        weight, bias = self.layers[-1]
        return (hidden @ weight + bias)[:, 0].astype(np.float64)


class Table(NamedTuple):
    """Log-odds of formulas of fragments or losses.

    Attributes:
        code: See `formula_candidates.codes`; ascending, int64 (T,).
        log_odds: That an explanation with this formula is a true one, float32 (T,).
    """

    code: NDArray[np.int64]
    log_odds: NDArray[np.float32]

    def columns(self, code: NDArray[np.int64]) -> NDArray[np.float32]:
        """Log-odds (0 where unknown) and whether they are known, shape (K, 2)."""
        row = np.minimum(np.searchsorted(self.code, code), self.code.size - 1)
        known = self.code[row] == code
        return np.stack([np.where(known, self.log_odds[row], 0), known], axis=1).astype(np.float32)


class FormulaModel(NamedTuple):
    """All that is fitted.

    Attributes:
        prior: What the composition alone says.
        explanation: Whether an explanation of a peak is a true one.
        losses: Of neutral losses.
        fragments: Of fragment ions.
        scorer: Score of a candidate; its exponential is a weight among the candidates.
        sharpness: By which scores are multiplied, fitted on other molecules.
        unlisted: Share of the best candidate's weight that formulas outside the list have.
    """

    prior: Network
    explanation: Network
    losses: Table
    fragments: Table
    scorer: Network
    sharpness: float
    unlisted: float


def standardised(
    inputs: NDArray[np.floating[Any]],
    mean: NDArray[np.float32],
    deviation: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Inputs (K, D) as networks take them."""
    scaled = (inputs - mean) / deviation
    return np.asarray(np.clip(scaled, -_FURTHEST, _FURTHEST), dtype=np.float32)


@cache
def formula_model() -> FormulaModel:
    """The model that comes with duallgd."""
    return load(FILE)


def load(path: Path) -> FormulaModel:
    """Read a model that `save` wrote."""
    with np.load(path) as file:
        arrays = dict(file)
    return FormulaModel(
        _network(arrays, "prior"),
        _network(arrays, "explanation"),
        Table(arrays["losses.code"], arrays["losses.log_odds"]),
        Table(arrays["fragments.code"], arrays["fragments.log_odds"]),
        _network(arrays, "scorer"),
        float(arrays["sharpness"]),
        float(arrays["unlisted"]),
    )


def save(path: Path, model: FormulaModel) -> None:
    """Write a model."""
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


def _network(arrays: Mapping[str, NDArray[Any]], name: str) -> Network:
    n_layers = sum(key.startswith(f"{name}.weight") for key in arrays)
    layers = [(arrays[f"{name}.weight{i}"], arrays[f"{name}.bias{i}"]) for i in range(n_layers)]
    return Network(arrays[f"{name}.mean"], arrays[f"{name}.deviation"], tuple(layers))
