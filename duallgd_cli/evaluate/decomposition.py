"""Where accuracy is lost between a perfect answer and the first candidate.

Shares of spectra, each at most about the one before it: a perfect bond matrix is assembled into the
right molecule; the decoder, given the true fingerprint, draws the right molecule at all; it does so
with the predicted fingerprint; the right molecule is among the first ten; it is the first.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from duallgd_cli.chem import identity
from duallgd_cli.chem.molecule import Assembled, assemble, disassemble
from duallgd_cli.errors import FormulaError, MoleculeError
from duallgd_cli.evaluate.bootstrap import Estimate, per_spectrum
from duallgd_cli.evaluate.scoring import Scores

ASSEMBLY: Final = "perfect bond matrix, assembled"
TRUE_FINGERPRINT: Final = "true fingerprint, any sample"
TRUE_FINGERPRINT_FIRST: Final = "true fingerprint, first candidate"
PREDICTED_FINGERPRINT: Final = "predicted fingerprint, any sample"
TOP: Final = "predicted fingerprint, first {k}"


@lru_cache(maxsize=100_000)
def assembly_recovers(smiles: str) -> bool:
    """Whether the perfect bond matrix of a molecule is assembled into that molecule first."""
    try:
        taken_apart = disassemble(identity.parse_smiles(smiles))
    except (MoleculeError, FormulaError):
        return False  # outside what bond matrices can express
    built = assemble(taken_apart.formula, taken_apart.bond_class)
    if not isinstance(built, Assembled):
        return False
    wanted = identity.inchikey_block(identity.parse_smiles(smiles))
    return identity.inchikey_block(built.molecules[0]) == wanted


def decompose(
    truth_smiles: Sequence[str],
    scores: Scores,
    with_true_fingerprint: Scores | None,
    *,
    seed: int = 0,
) -> dict[str, Estimate]:
    """The shares, with clustered intervals, in order.

    Args:
        truth_smiles: SMILES of each true molecule, B of them.
        scores: Of the predictions.
        with_true_fingerprint: Of predictions of the same spectra from their true fingerprints, or
            None to leave those steps out.
        seed: Of the bootstrap.
    """
    recovered = [float(assembly_recovers(smiles)) for smiles in truth_smiles]
    columns = {ASSEMBLY: np.array(recovered, dtype=np.float64)}
    if with_true_fingerprint is not None:
        columns[TRUE_FINGERPRINT] = with_true_fingerprint.columns["oracle_accuracy"]
        if "accuracy@1" in with_true_fingerprint.columns:
            columns[TRUE_FINGERPRINT_FIRST] = with_true_fingerprint.columns["accuracy@1"]
    columns[PREDICTED_FINGERPRINT] = scores.columns["oracle_accuracy"]
    ranks = sorted(int(n.partition("@")[2]) for n in scores.columns if n.startswith("accuracy@"))
    for k in reversed(ranks):
        columns[TOP.format(k=k)] = scores.columns[f"accuracy@{k}"]
    estimates = per_spectrum(np.column_stack(list(columns.values())), scores.molecule, seed=seed)
    return dict(zip(columns, estimates, strict=True))
