"""Fitting what scores candidates beside the network, see `scores.fragments`.

A fragment model that is fitted to measured spectra says which peaks a molecule gives. What each
fragment speaks for a molecule, as a peak or as none, is then fitted so that molecules of fold train
are told from rivals of the same formula. That is what a candidate's score is asked for.

Letters: C fragments, H hydrogen shifts, K peaks, R rivals and the molecule itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.fragmentation import (
    BY_CHANCE,
    FOUND,
    MISSED,
    Ion,
    fragment_features,
    fragments,
    measured_intensity,
)
from duallgd_cli.data.molecular_graph import Rival
from duallgd_cli.data.prepared import Molecules, PreparedSpectra
from duallgd_cli.data.simulation import FragmentModel
from duallgd_cli.errors import UnreadableError
from duallgd_cli.train.encoder import by_molecule
from duallgd_cli.train.simulator import explained_peaks, fit_simulator, one_cycle, simulated_rows

# Narrower than what simulates spectra: it goes with every weights file and scores every candidate.
_WIDTH: Final = 96
# Rounds through all molecules, so many at a time, each beside so many rivals.
_ROUNDS: Final = 6
_AT_ONCE, _RIVALS = 16, 20
_LEARNING_RATE, _WEIGHT_DECAY = 1e-3, 0.02
_DROPOUT: Final = 0.1
# Of the first fit's loss, so that chances stay chances.
_LIKELIHOOD: Final = 0.02


class Judge(nn.Module):
    """What fragments speak for a molecule.

    Args:
        fitted: To spectra; it is the likelihood of these before anything else is learnt.
    """

    def __init__(self, fitted: FragmentModel) -> None:
        super().__init__()
        self.hidden, self.presence = fitted.hidden, fitted.presence
        self.dropout = nn.Dropout(_DROPOUT)
        width, n_shifts = fitted.presence.in_features, fitted.presence.out_features
        self.worth = nn.Linear(width, 2 * n_shifts)
        nn.init.zeros_(self.worth.weight)
        nn.init.zeros_(self.worth.bias)

    def forward(self, features: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Log-odds of a peak, and what each speaks for the molecule, both (C, H).

        Args:
            features: As `data.fragmentation.fragment_features` makes them, (C, N_INPUTS).
            there: Which are peaks, (C, H).
        """
        hidden = self.dropout(self.hidden(features))
        log_odds = self.presence(hidden)
        found, missed = self.worth(hidden).chunk(2, 1)
        found = found + FOUND * (nn.functional.logsigmoid(log_odds) - BY_CHANCE)
        missed = missed * torch.sigmoid(log_odds) - MISSED * nn.functional.softplus(log_odds)
        return log_odds, torch.where(there, found, missed)


@dataclass(frozen=True, eq=False)
class Rivals:
    """A molecule beside others of its formula.

    Attributes:
        made: The molecule itself first, (R,).
        spectra: Of the molecule: ion, sub-formulas int16 (K, N_ELEMENTS) and intensities (K,).
    """

    made: Sequence[Rival]
    spectra: Sequence[tuple[Ion, NDArray[np.int16], NDArray[np.float32]]]


def one_of_each(spectra: PreparedSpectra, seed: int) -> list[int]:
    """A spectrum of each molecule of fold train that the fragment model understands, at random."""
    generator = np.random.default_rng(seed)
    _, every = by_molecule(spectra, simulated_rows(spectra, "train"))
    return [int(generator.choice(own)) for own in every]


def fit_evidence(
    structures: Molecules,
    environments: NDArray[np.uint8],
    spectra: PreparedSpectra,
    rivals: Mapping[int, Sequence[Rival]],
    steps: int = 2500,
    seed: int = 1,
    advance: Callable[[int], None] = lambda steps: None,
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """What scores candidates beside the network: bits counted and a fragment model, of fold train.

    Args:
        structures: Whose bits are counted.
        environments: Filter of those that they have, see `scores.substructures`, (B,).
        spectra: That the fragment model is fitted to.
        rivals: By row of a molecule, itself first: what it learns to tell apart then.
        steps: Optimiser steps of the first fit.
        seed: Random seed.
        advance: Told each step of both.

    Returns:
        Tensors for a weights file, and what to keep on record.

    Raises:
        UnreadableError: Fold train of either is empty.
    """
    train = structures.in_folds("train")
    if not train.any():
        raise UnreadableError("the prepared structures hold none of fold train")
    simulator, record = fit_simulator(spectra, steps, seed, advance, width=_WIDTH)
    of_train = zip(*by_molecule(spectra, simulated_rows(spectra, "train")), strict=True)
    beside = [
        Rivals(rivals[row], [explained_peaks(spectra, spectrum) for spectrum in own])
        for row, own in ((int(molecule), own) for molecule, own in of_train)
        if len(rivals.get(row, ())) > 1
    ]
    judge = Judge(simulator.model)
    told_apart = tell_apart(judge, beside, seed, advance) if beside else {}
    tensors = dict(judge.state_dict())
    # Share of the molecules that have each bit, none of it 0.
    of_bit = np.repeat(train, np.diff(structures.bit_offset))
    counts = np.bincount(np.asarray(structures.bits)[of_bit], minlength=FINGERPRINT_BITS)
    share = (counts + 1) / (train.sum() + 1)
    tensors["log_prevalence"] = torch.from_numpy(np.log(share)).float()
    tensors["environments"] = torch.from_numpy(environments)
    return tensors, {"structures": int(train.sum()), **record, **told_apart}


def tell_apart(
    model: Judge,
    rivals: Sequence[Rivals],
    seed: int = 1,
    advance: Callable[[int], None] = lambda steps: None,
) -> dict[str, object]:
    """Fit a judge to give each molecule a higher score than its rivals, in place.

    Args:
        model: Fitted to spectra.
        rivals: Of each molecule.
        seed: Random seed.
        advance: Told each step.

    Returns:
        What to keep on record: molecules, and the share of the last round that came first.
    """
    torch.manual_seed(seed)
    generator, n_steps = np.random.default_rng(seed), _ROUNDS * -(-len(rivals) // _AT_ONCE)
    descend = one_cycle(model, _LEARNING_RATE, _WEIGHT_DECAY, n_steps, rising=0.1, steepest=5.0)
    model.train()
    first: list[bool] = []
    for _ in range(_ROUNDS):
        first = []
        order = generator.permutation(len(rivals))
        for start in range(0, len(order), _AT_ONCE):
            some = [rivals[row] for row in order[start : start + _AT_ONCE]]
            scores, likelihood = _scores(model, some, generator)
            entropy = torch.stack([one.logsumexp(0) - one[0] for one in scores]).mean()
            first += [int(one.argmax()) == 0 for one in scores]
            loss = entropy + _LIKELIHOOD * likelihood
            descend(loss)
            advance(1)
    model.eval()
    return {"told_apart": len(rivals), "first_of_rivals": float(np.mean(first))}


def _scores(
    model: Judge, rivals: Sequence[Rivals], generator: np.random.Generator
) -> tuple[list[Tensor], Tensor]:
    """Score of each molecule and of some rivals, and loss of the peaks of the molecules."""
    rows = [list(_rows(one, generator)) for one in rivals]
    every = [row for own in rows for row in own]
    features, there = (torch.from_numpy(np.concatenate(part)) for part in zip(*every, strict=True))
    log_odds, worth = model(features, there)
    sums = torch.stack([part.sum() for part in worth.sum(1).split([len(x) for x, _ in every])])
    right = torch.cat(
        [torch.full((len(x),), not place) for own in rows for place, (x, _) in enumerate(own)]
    )
    seen = there[right]
    entropy = nn.functional.binary_cross_entropy_with_logits(
        log_odds[right], seen.float(), reduction="sum"
    )
    return list(sums.split([len(own) for own in rows])), entropy / seen.sum().clamp_min(1)


def _rows(
    rivals: Rivals, generator: np.random.Generator
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
    """Features (C, N_INPUTS) and which peaks are there (C, H): of the molecule, of some rivals."""
    ion, subformula, intensity = rivals.spectra[int(generator.integers(len(rivals.spectra)))]
    some = 1 + generator.permutation(len(rivals.made) - 1)[:_RIVALS]
    for place in (0, *some.tolist()):
        found = fragments(rivals.made[place].graph, np.random.default_rng(0))  # as in scoring
        there = measured_intensity(found, ion, subformula, intensity) > 0
        yield fragment_features(found, ion), there
