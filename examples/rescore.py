"""A score of your own for candidates: does one cut through the molecule give the measured peaks?

    python examples/rescore.py examples/spectra.mgf

It stands for any model that predicts a spectrum from a structure: put that into `fragment_mz`, and
let `by_one_cut` say how much likelier the peaks make a candidate. duallgd calls it with all
candidates of a feature, ranks them anew and says so in every row.
"""

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem.Descriptors import ExactMolWt

from duallgd_cli import load
from duallgd_cli.results import Candidate
from duallgd_cli.spectra.types import Spectrum

PROTON_DA, HYDROGEN_DA = 1.007276, 1.007825
TOLERANCE_DA = 0.005
WEIGHT = 5.0  # by hand: fit it on standards of yours before you trust it


def fragment_mz(smiles: str, charge: int) -> NDArray[np.float64]:
    """m/z of what is left when one bond outside the rings is cut, and of the whole molecule.

    Either side may keep the hydrogens of the cut or lose two.

    Args:
        smiles: Of the candidate.
        charge: 1 or -1; the charge is a proton more or less.
    """
    molecule = Chem.MolFromSmiles(smiles)
    masses = {ExactMolWt(molecule)}
    for bond in molecule.GetBonds():
        if not bond.IsInRing() and bond.GetBondType() == Chem.BondType.SINGLE:
            parted = Chem.FragmentOnBonds(molecule, [bond.GetIdx()], addDummies=False)
            masses |= {ExactMolWt(piece) for piece in Chem.GetMolFrags(parted, asMols=True)}
    whole = np.array(sorted(masses)) + charge * PROTON_DA
    return np.concatenate([whole, whole - 2 * HYDROGEN_DA])


def by_one_cut(spectra: Sequence[Spectrum], candidates: Sequence[Candidate]) -> list[float]:
    """For each candidate the share of the intensity that its fragments explain, as log-odds."""
    mz = np.concatenate([spectrum.mz for spectrum in spectra])
    share = np.concatenate([one.intensity / one.intensity.sum() for one in spectra]) / len(spectra)
    scores = []
    for candidate in candidates:
        predicted = fragment_mz(candidate.smiles, 1 if candidate.adduct.endswith("+") else -1)
        matched = (np.abs(mz[:, None] - predicted) < TOLERANCE_DA).any(1)
        scores.append(WEIGHT * float(share[matched].sum()))
    return scores


def main(path: str) -> None:
    """Predict a file with the score and print the first candidates, the score beside them."""
    found = load().predict(path, samples=20, rescore=by_one_cut)
    for prediction in found:
        for candidate in prediction.candidates[:3]:
            added = candidate.extra_scores["rescore"]
            words = (prediction.spectrum_id, candidate.smiles, f"{candidate.confidence:.3f}")
            print(*words, f"{added:.2f}", sep="\t")  # noqa: T201  the result of a script
    print(f"rescored by {found.record['rescored_by']}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
