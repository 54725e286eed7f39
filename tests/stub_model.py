"""A stand-in for a trained model: random graphs that fit the formula.

It makes what a network would hand over, in microseconds, as a function of formula and seed alone.
"""

import time
from dataclasses import dataclass

import numpy as np

from duallgd_cli.chem.elements import VALENCES
from duallgd_cli.chem.molecule import assemble
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.scores import FingerprintLikelihood, FingerprintTanimoto
from duallgd_cli.sources import Proposal
from duallgd_cli.sources.enumerated import AnalogueSource, DatabaseSource, LibrarySource


@dataclass(frozen=True)
class StubNoise:
    """Draws a random tree over the atoms, then adds bonds until the hydrogens fit.

    Args:
        delay_s: Seconds that every spectrum takes, for tests that interrupt.
    """

    delay_s: float = 0.0
    name: str = "noise"

    def propose(self, query, n, seed):
        """N graphs, each a proposal."""
        time.sleep(self.delay_s)
        query.check()
        rng = np.random.default_rng(seed)
        for _ in range(n):
            graph = random_graph(query.formula, rng)
            made = assemble(query.formula, graph.astype(np.int8))
            likelihood = float(np.float32(rng.normal(-20, 3)))
            if isinstance(made, str):
                yield Proposal(self.name, None, likelihood, rejection=made)
            else:
                yield Proposal(self.name, made, likelihood)


def stub_fingerprint(annotated):
    """A fingerprint that depends on the formula alone."""
    rng = np.random.default_rng(annotated.hypothesis.formula.array.astype(np.int64))
    return rng.random(4096).astype(np.float32) * 0.1, None


def stub_model(delay_s=0.0):
    """A loaded model around the stub."""
    return LoadedModel(
        encode=stub_fingerprint,
        sources=(LibrarySource(), DatabaseSource(), AnalogueSource(), StubNoise(delay_s)),
        scores=(FingerprintLikelihood(), FingerprintTanimoto()),
        ranking=RankingModel(),
        name="stub",
        sha256="0" * 64,
        record={"data": "none, this is a stand-in"},
    )


def random_graph(formula, rng):
    """Bond classes (M,) of a random connected graph, of the formula wherever one is found."""
    atoms = formula.atom_class
    free = np.array([VALENCES[element][0] for element in atoms])
    if formula.charge == 1 and 1 in atoms:
        free[np.flatnonzero(atoms == 1)[0]] += 1  # the nitrogen of a quaternary ammonium
    order = np.zeros((len(atoms), len(atoms)), dtype=np.int8)
    a, b = np.triu_indices(len(atoms), 1)

    def bind(*pair):
        order[pair] += 1
        order[pair[::-1]] += 1
        free[[*pair]] -= 1

    waiting = list(rng.permutation(len(free)))
    waiting.sort(key=lambda atom: free[atom] == 1)  # halogens cannot carry the tree on
    placed = [waiting.pop(0)] if waiting else []
    for atom in waiting:
        bind(atom, rng.choice([other for other in placed if free[other] > 0] or placed))
        placed.append(atom)
    surplus = int(free.sum()) - formula.hydrogens
    for _ in range(max(0, surplus) // 2):
        possible = np.flatnonzero((free[a] > 0) & (free[b] > 0) & (order[a, b] < 3))
        if not len(possible):
            break
        bonded = possible[order[a[possible], b[possible]] > 0]
        chosen = rng.choice(bonded if len(bonded) and rng.random() < 0.7 else possible)
        bind(a[chosen], b[chosen])
    return order[a, b]
