"""Fitting what candidates are asked with besides the network; see `predict.evidence`."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.data.prepared import Molecules, PreparedSpectra
from duallgd_cli.errors import UnreadableError
from duallgd_cli.train.fragment_model import fit_simulator

# Narrower than what simulates spectra: it goes with every weights file and asks every candidate.
_WIDTH = 96
_UNUSED = "intensity."


def fit_evidence(
    structures: Molecules,
    spectra: PreparedSpectra,
    n_bits: int,
    steps: int = 2500,
    seed: int = 1,
    advance: Callable[[int], None] = lambda steps: None,
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Count bits and fit a fragment model, both on fold train.

    Args:
        structures: Whose bits are counted.
        spectra: That the fragment model is fitted on.
        n_bits: Length of their fingerprints.
        steps: Of that fit.
        seed: Likewise.
        advance: Told each step.

    Returns:
        Tensors for a weights file, and what to keep on record.

    Raises:
        UnreadableError: Fold train of either is empty.
    """
    train = structures.in_folds("train")
    if not train.any():
        raise UnreadableError("the prepared structures hold none of fold train")
    simulator, record = fit_simulator(spectra, steps, seed, advance, width=_WIDTH)
    fitted = simulator.model.state_dict()
    tensors = {name: t for name, t in fitted.items() if not name.startswith(_UNUSED)}
    tensors["log_prevalence"] = _log_prevalence(structures, train, n_bits)
    return tensors, {"structures": int(train.sum()), **record}


def _log_prevalence(structures: Molecules, some: NDArray[np.bool_], n_bits: int) -> Tensor:
    """Log share of some of the molecules that have each bit, none of it 0; (n_bits,)."""
    of_bit = np.repeat(some, np.diff(structures.bit_offset))
    counts = np.bincount(np.asarray(structures.bits)[of_bit], minlength=n_bits)
    return torch.from_numpy(np.log((counts + 1) / (some.sum() + 1))).float()
