"""Coarser identities than the structure: the scaffold, and the family.

Where substituents sit on rings a tandem mass spectrum seldom tells, nor how rings are joined. Two
molecules are of one family if they fall into the same pieces when every acyclic single bond at a
ring is cut: the same rings, the same groups and chains, their positions open.
"""

from collections import Counter
from functools import lru_cache
from typing import Final

from rdkit import Chem, rdBase
from rdkit.Chem.Scaffolds import MurckoScaffold

from duallgd_cli.chem.identity import canonical_smiles

# Pieces as chemists call them, each as the molecule that it is once hydrogens stand at the cuts.
_NAMES: Final = {
    "O": "hydroxyl", "C": "methyl", "N": "amino", "S": "sulfanyl", "F": "fluoro", "Cl": "chloro",
    "Br": "bromo", "I": "iodo", "CO": "methoxy or hydroxymethyl", "CC": "ethyl", "CN": "C1 amine",
    "C=O": "carbonyl", "O=CO": "carboxyl", "NC=O": "carboxamide", "CC=O": "acetyl",
    "CC(=O)O": "acetoxy or carboxymethyl", "CC(N)=O": "acetamide", "O=[NH+][O-]": "nitro",
    "C#N": "cyano", "CCO": "hydroxyethyl or ethoxy", "CCC": "propyl or isopropyl",
    "CC=C(C)C": "prenyl", "FC(F)F": "trifluoromethyl", "C[SH](=O)=O": "methylsulfonyl",
    "O=[SH](=O)O": "sulfo", "O=S(=O)(O)O": "sulfate", "O=P(O)(O)O": "phosphate",
    "N[SH](=O)=O": "sulfonamide", "COC=O": "methoxycarbonyl", "c1ccccc1": "benzene ring",
    "C1CCOCC1": "oxane ring (pyranose)", "C1CCOC1": "oxolane ring (furanose)",
    "C1CCCCC1": "cyclohexane ring", "C1=CCCCC1": "cyclohexene ring", "C1CCNCC1": "piperidine ring",
    "C1CNCCN1": "piperazine ring", "C1COCCN1": "morpholine ring", "C1CCNC1": "pyrrolidine ring",
    "c1ccncc1": "pyridine ring", "c1cncnc1": "pyrimidine ring", "c1c[nH]cn1": "imidazole ring",
    "c1cc[nH]c1": "pyrrole ring", "c1ccoc1": "furan ring", "c1ccsc1": "thiophene ring",
    "c1cscn1": "thiazole ring", "c1cn[nH]c1": "pyrazole ring", "c1nc[nH]n1": "triazole ring",
    "c1ncncn1": "triazine ring", "c1ccc2[nH]ccc2c1": "indole", "c1ccc2ncccc2c1": "quinoline",
    "c1ccc2cnccc2c1": "isoquinoline", "c1ccc2ccccc2c1": "naphthalene", "c1ncc2nc[nH]c2n1": "purine",
    "O=c1ccoc2ccccc12": "chromone", "O=c1ccc2ccccc2o1": "coumarin",
    "O=C1CCOc2ccccc21": "chromanone", "c1ccc2c(c1)CCCO2": "chromane",
    "c1ccc2c(c1)OCO2": "benzodioxole", "O=c1cc[nH]c(=O)[nH]1": "uracil",
    "O=c1[nH]cnc2[nH]cnc12": "hypoxanthine", "O=c1[nH]c(=O)c2[nH]cnc2[nH]1": "xanthine",
    "O=C1c2ccccc2C(=O)c2ccccc21": "anthraquinone", "O=c1c2ccccc2oc2ccccc12": "xanthone",
    "C=C": "vinyl", "CCCC": "butyl", "C1CO1": "epoxide", "C1CC1": "cyclopropane ring",
    "C1CCCC1": "cyclopentane ring", "O=C1CCCN1": "pyrrolidinone",
    "c1ccc2[nH]cnc2c1": "benzimidazole", "c1ccc2occc2c1": "benzofuran",
    "c1ccc2c(c1)CCCC2": "tetralin", "O=c1cccco1": "pyranone",
}  # fmt: skip
ACYCLIC: Final = "acyclic"


def scaffold(mol: Chem.Mol) -> str:
    """SMILES of the Murcko scaffold: rings and what links them; ``acyclic`` where there is none."""
    text = canonical_smiles(MurckoScaffold.GetScaffoldForMol(mol))  # type: ignore[no-untyped-call]
    return text or ACYCLIC


def family(mol: Chem.Mol) -> str:
    """The pieces of a molecule as SMILES in alphabetical order, a point between them.

    Every acyclic single bond of which an end is a ring atom is cut, and hydrogen put at both ends.
    A molecule without rings is a family of its own, and so is one whose pieces are no molecules.
    """
    bonds = [
        bond.GetIdx()
        for bond in mol.GetBonds()
        if bond.GetBondType() == Chem.BondType.SINGLE
        and not bond.IsInRing()
        and (bond.GetBeginAtom().IsInRing() or bond.GetEndAtom().IsInRing())
    ]
    if not bonds:
        return canonical_smiles(mol)
    cut = Chem.FragmentOnBonds(mol, bonds, dummyLabels=[(0, 0)] * len(bonds))
    pieces = [_closed(piece) for piece in Chem.MolToSmiles(cut).split(".")]
    return ".".join(sorted(pieces)) if all(pieces) else canonical_smiles(mol)


@lru_cache(maxsize=20_000)  # candidates share most of their pieces
def _closed(piece: str) -> str:
    """A piece with hydrogen in place of what was cut off, "" where that is no molecule."""
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(piece.replace("*", "[H]"))
    return "" if mol is None else canonical_smiles(mol)


@lru_cache(maxsize=4096)
def family_name(text: str) -> str:
    """A family in words, rings first: ``chromone + benzene ring + 4 hydroxyl, positions open``."""
    pieces = Counter(text.split("."))
    if len(pieces) == 1 and pieces[text] == 1:
        return _NAMES.get(text, text)
    order = sorted(pieces, key=lambda piece: (not any(c.isdigit() for c in piece), -len(piece)))
    counts = ("" if pieces[piece] == 1 else f"{pieces[piece]} " for piece in order)
    words = [count + _NAMES.get(piece, piece) for count, piece in zip(counts, order, strict=True)]
    return f"{' + '.join(words)}, positions open"
