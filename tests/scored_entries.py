"""Scores of structures written as plain tuples, for tests."""

from duallgd_cli.evaluate.metrics import score
from duallgd_cli.evaluate.tables import Predicted, Truth


def scored(entries, settings, truths=None):
    """Score tuples of a spectrum, its molecule, the true SMILES and the candidates, best first."""
    truths = truths or [Truth(name, smiles, molecule) for name, molecule, smiles, _ in entries]
    predicted = [Predicted(tuple(candidates), ()) for *_, candidates in entries]
    return score(truths, predicted, settings)
