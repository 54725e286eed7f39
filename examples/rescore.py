"""A score of your own for candidates: does one cut through the molecule give the measured peaks?

    python examples/rescore.py examples/spectra.mgf

It stands for any model that predicts a spectrum from a structure: put that into `fragment_mz`, and
let `OneCut` say how much likelier the peaks make a candidate. duallgd calls it with all molecules
that were proposed for a spectrum, ranks them anew and says so in every row. A package that names
such a class in the entry points ``duallgd.scores`` has it used by the command line, too.
"""

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem.Descriptors import ExactMolWt

from duallgd_cli import load
from duallgd_cli.scores import Molecule
from duallgd_cli.sources import Query

PROTON_DA, HYDROGEN_DA = 1.007276, 1.007825
TOLERANCE_DA = 0.005
WEIGHT = 5.0  # by hand: fit it on standards of yours before you trust it


def fragment_mz(molecule: Chem.Mol, charge: int) -> NDArray[np.float64]:
    """m/z of what is left when one bond outside the rings is cut, and of the whole molecule.

    Either side may keep the hydrogens of the cut or lose two.

    Args:
        molecule: The candidate.
        charge: 1 or -1; the charge is a proton more or less.
    """
    masses = {ExactMolWt(molecule)}
    for bond in molecule.GetBonds():
        if not bond.IsInRing() and bond.GetBondType() == Chem.BondType.SINGLE:
            parted = Chem.FragmentOnBonds(molecule, [bond.GetIdx()], addDummies=False)
            masses |= {ExactMolWt(piece) for piece in Chem.GetMolFrags(parted, asMols=True)}
    whole = np.array(sorted(masses)) + charge * PROTON_DA
    return np.concatenate([whole, whole - 2 * HYDROGEN_DA])


class OneCut:
    """For each molecule the share of the intensity that its fragments explain, as log-odds."""

    name = "one_cut"

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> list[float]:
        """Score molecules."""
        hypothesis = query.annotated.hypothesis
        spectra = hypothesis.feature.spectra
        mz = np.concatenate([one.mz for one in spectra])
        share = np.concatenate([one.intensity / one.intensity.sum() for one in spectra])
        charge = 1 if hypothesis.adduct.name.endswith("+") else -1
        matched = [
            (np.abs(mz[:, None] - fragment_mz(one.mol, charge)) < TOLERANCE_DA).any(1)
            for one in molecules
        ]
        return [WEIGHT * float(share[peaks].sum()) / len(spectra) for peaks in matched]


def main(path: str) -> None:
    """Predict a file with the score and print the first candidates, the score beside them."""
    found = load(scores=[OneCut()]).predict(path, samples=20)
    for prediction in found:
        for candidate in prediction.candidates[:3]:
            added = candidate.extra_scores["one_cut"]
            words = (prediction.spectrum_id, candidate.smiles, f"{candidate.confidence:.3f}")
            print(*words, f"{added:.2f}", sep="\t")  # noqa: T201  the result of a script


if __name__ == "__main__":
    main(sys.argv[1])
