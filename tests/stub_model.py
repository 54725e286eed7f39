"""A stand-in for a trained model at the generator seam: random graphs that fit the formula.

It makes what a network would hand over, in microseconds, as a function of formula and seed alone.
"""

import time

import numpy as np

from duallgd_cli.chem.elements import VALENCES
from duallgd_cli.predict.generation import Generated, LoadedModel, OutOfTimeError
from duallgd_cli.predict.ranking import RankingModel


class StubGenerator:
    """Draws a random tree over the atoms, then adds bonds until the hydrogens fit.

    Args:
        delay_s: Seconds that every spectrum takes, for tests that interrupt.
    """

    def __init__(self, delay_s=0.0):
        self.delay_s = delay_s

    def generate(self, annotated, settings, seed, known=None):
        time.sleep(self.delay_s)
        if settings.timeout_s is not None and self.delay_s > settings.timeout_s:
            raise OutOfTimeError
        formula = annotated.hypothesis.formula
        rng = np.random.default_rng(seed)
        graphs = [random_graph(formula, rng) for _ in range(settings.samples)]
        isomers = known.isomers(formula) if known is not None and known.databases else ()
        return Generated(
            molecules=tuple(("database", mol) for mol in isomers),
            bond_class=np.array(graphs, dtype=np.int8).reshape(settings.samples, -1),
            log_likelihood=rng.normal(-20, 3, settings.samples).astype(np.float32),
            fingerprint=rng.random(4096).astype(np.float32) * 0.1,
        )


def stub_model(delay_s=0.0):
    """A loaded model around the stub."""
    return LoadedModel(
        generator=StubGenerator(delay_s),
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
    _grow_tree(order, free, rng)
    _add_bonds(order, free, int(free.sum()) - formula.hydrogens, rng)
    return order[np.triu_indices(len(atoms), 1)]


def _grow_tree(order, free, rng):
    waiting = list(rng.permutation(len(free)))
    waiting.sort(key=lambda atom: free[atom] == 1)  # halogens cannot carry the tree on
    placed = [waiting.pop(0)] if waiting else []
    for atom in waiting:
        open_atoms = [other for other in placed if free[other] > 0] or placed
        _bind(order, free, atom, rng.choice(open_atoms))
        placed.append(atom)


def _add_bonds(order, free, surplus, rng):
    for _ in range(max(0, surplus) // 2):
        a, b = np.triu_indices(len(free), 1)
        possible = np.flatnonzero((free[a] > 0) & (free[b] > 0) & (order[a, b] < 3))
        if not len(possible):
            return
        bonded = possible[order[a[possible], b[possible]] > 0]
        chosen = rng.choice(bonded if len(bonded) and rng.random() < 0.7 else possible)
        _bind(order, free, a[chosen], b[chosen])


def _bind(order, free, a, b):
    order[a, b] += 1
    order[b, a] += 1
    free[[a, b]] -= 1
