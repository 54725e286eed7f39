"""Graphs that begin as an analogue's: what the denoiser meets where samples start from molecules.

For a condition (predicted fingerprint, formula) an analogue is chosen and put on the formula's
atoms exactly as in prediction (`data.analogues`). The molecule that is sought gets the labelling
under which most of its bonds agree with the analogue's, and the loss is that of guessing its bonds.
On the way from the first step t0 to a step t below, part of the bonds that differ have been mended:
each is still the analogue's with the chance (1 - a_t) / (1 - a_t0), which is what the posterior of
the noise process (equation 11) leaves of it where the guess is always right.

Letters: B graphs, N atoms, M pairs.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.elements import N_HEAVY
from duallgd_cli.data.alignment import aligned
from duallgd_cli.data.analogues import NOISED, Analogues, fitted
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.data.prepared import pair_index
from duallgd_cli.data.tensors import map_tensors
from duallgd_cli.diffusion.schedule import alpha_bar
from duallgd_cli.model.condition import Condition
from duallgd_cli.training.decoder import GraphBatch, noise_steps


class AnalogueStarts:
    """Makes some graphs of a batch begin as an analogue's.

    Args:
        known: Molecules to choose from.
        share: Of the graphs, where the formula has an analogue that is not the molecule itself.
    """

    def __init__(self, known: Analogues, share: float) -> None:
        self.known, self.share = known, share
        self.n_bits = int(known.molecules.bits.max()) + 1

    def begin(self, batch: GraphBatch, n_steps: int) -> GraphBatch:
        """The batch with `begun` and `analogue`; these graphs' levels and labels are changed, too.

        Args:
            batch: Graphs with the condition that the network is told.
            n_steps: T.
        """
        there, device = map_tensors(batch, lambda x: x.detach().cpu()), batch.level.device
        clean, level = there.graph.bond_class.clone(), there.level.clone()
        begun, analogue = clean.clone(), torch.zeros(len(level))
        for row, seed in enumerate(there.seed.tolist()):
            generator = np.random.default_rng(seed)
            if generator.random() >= self.share:
                continue
            pair = self._pair(there, row, generator)
            if pair is None:
                continue
            first = NOISED[generator.integers(len(NOISED))]
            level[row] *= first
            own = generator.random(pair[0].shape) < _left(level[row], first, n_steps)
            places = _places(len(own), there.condition.atom_mask.shape[1])
            clean[row, places], begun[row, places] = (
                torch.from_numpy(dense[np.triu_indices(len(own), 1)])
                for dense in (pair[1], np.where(own, *pair))
            )
            analogue[row] = 1
        graph = replace(batch.graph, bond_class=clean.to(device))
        begun, analogue = begun.to(device), analogue.to(device)
        return replace(batch, graph=graph, level=level.to(device), begun=begun, analogue=analogue)

    def _pair(
        self, batch: GraphBatch, row: int, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Bonds of an analogue and of the molecule labelled like it, both symmetric (N, N)."""
        condition = batch.condition
        heavy = condition.formula[row, :N_HEAVY].numpy().astype(np.int64)
        nearest = self.known.nearest(self._chance(condition, row), heavy)
        if not len(nearest):
            return None
        chosen = graph_of(self.known.molecules, int(generator.choice(nearest)))
        n = int(heavy.sum())
        atom_class = condition.atom_class[row, :n].numpy()
        own = batch.graph.bond_class[row, _places(n, condition.atom_mask.shape[1])].numpy()
        start, target = (_dense(x, n) for x in (fitted(chosen, atom_class, generator), own))
        order = aligned(start, target, atom_class, generator)
        target = target[np.ix_(order, order)]
        return None if (start == target).all() else (start, target)

    def _chance(self, condition: Condition, row: int) -> NDArray[np.float32]:
        """Chances of the fingerprint bits that are known, 0 for all others."""
        bit, log_prob = condition.bit[row], condition.bit_log_prob[row]
        chance = torch.zeros(max(self.n_bits, int(bit.max()) + 1))
        return chance.index_add(0, bit, log_prob.exp()).numpy()


def _left(level: Tensor, first: float, n_steps: int) -> float:
    """Share of the bonds that differ which nothing has mended yet."""
    lost = 1 - alpha_bar(n_steps)
    here = noise_steps(level[None], n_steps)[0]
    return float(lost[here] / lost[round(first * n_steps)])


def _dense(bond_class: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    dense = np.zeros((n, n), np.int64)
    dense[np.triu_indices(n, 1)] = bond_class
    return dense + dense.T


def _places(n: int, size: int) -> NDArray[np.int64]:
    """Where the pairs of n atoms are among those of `size` atoms."""
    return pair_index(*np.triu_indices(n, 1), size)
