"""Builders shared by the chemistry tests: molecules, shuffled and damaged bond matrices."""

from typing import NamedTuple

import numpy as np

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import disassemble, formula_of
from duallgd_cli.chem.valence import pairs
from duallgd_cli.sources.collection import bonds_between

# One molecule for each kind of hydrogen, charge or Kekule question that assembly has to answer.
QUESTIONS = {
    "methane": "C", "water": "O", "alkane": "CCC(C)C", "pyrrole": "c1cc[nH]c1",
    "indole": "CC(N)Cc1c[nH]c2ccccc12", "imidazole": "Cc1c[nH]cn1", "tetrazole": "Cc1nnn[nH]1",
    "pyridone": "O=c1cccc[nH]1", "uracil": "O=c1cc[nH]c(=O)[nH]1", "purine": "Nc1ncnc2[nH]cnc12",
    "caffeine": "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "porphine": "c1cc2cc3ccc(cc4ccc(cc5ccc(cc1n2)[nH]5)n4)[nH]3", "nitro": "O=[N+]([O-])c1ccccc1",
    "dinitro": "Cc1ccc([N+](=O)[O-])cc1[N+](=O)[O-]", "nitrate": "CCO[N+](=O)[O-]",
    "amine oxide": "C[N+](C)(C)[O-]", "pyridine oxide": "C[n+]1ccccc1C(=O)[O-]",
    "aromatic N-oxide": "[O-][n+]1ccccc1", "N-hydroxyindole": "On1ccc2ccccc21",
    "nitrone": "CC=[N+](C)[O-]", "azide": "CCN=[N+]=[N-]", "diazo": "CCOC(=O)C=[N+]=[N-]",
    "isocyanide": "[C-]#[N+]c1ccccc1", "azoxy": "C[N+]([O-])=NC",
    "betaine": "C[N+](C)(C)CC(=O)[O-]", "carnitine": "C[N+](C)(C)CC(O)CC(=O)[O-]",
    "trigonelline": "C[n+]1cccc(C(=O)[O-])c1", "sulfobetaine": "C[N+](C)(C)CCCS(=O)(=O)[O-]",
    "phosphocholine": "C[N+](C)(C)CCOP(=O)([O-])O", "choline": "C[N+](C)(C)CCO",
    "N-methylpyridinium": "C[n+]1ccccc1", "flavylium": "Oc1ccc2cc(O)c(-c3ccccc3)[o+]c2c1",
    "tetraphenylphosphonium": "c1ccc([P+](c2ccccc2)(c2ccccc2)c2ccccc2)cc1",
    "sulfonium": "C[S+](C)CCC(N)C(=O)O", "thiazolium": "Cc1c(CCO)sc[n+]1C",
    "diazonium": "N#[N+]c1ccccc1", "iminium dye": "CN(C)c1ccc(C=C2C=CC(=[N+](C)C)C=C2)cc1",
    "sulfoxide": "CS(C)=O", "sulfoxide, charges written": "C[S+](C)[O-]",
    "sulfone": "CS(C)(=O)=O", "sulfonamide": "NS(=O)(=O)c1ccccc1", "sulfoximine": "CS(C)(=N)=O",
    "thiol": "CCS", "thiophene": "c1ccsc1", "selenophene": "c1cc[se]c1", "phosphine": "CP(C)C",
    "phosphine oxide": "CP(C)(C)=O", "phosphonate, P-H": "CO[PH](=O)OC",
    "phosphate": "CCOP(=O)(O)O", "boronic acid": "OB(O)c1ccccc1",
    "borate complex": "F[B-]1(F)OC(C)=CC(C)=[O+]1", "carborane-free boron": "ClB1NB(Cl)NB(Cl)N1",
    "silane": "C[Si](C)(C)O[SiH3]", "iodine(III)": "CC(=O)OI(OC(C)=O)c1ccccc1",
    "nitrile and alkyne": "C#CC#N", "cumulene": "CC=C=O", "azulene": "c1ccc2cccc-2cc1",
    "cyclooctatetraene": "C1=CC=CC=CC=C1", "fulvene": "C=C1C=CC=C1",
    "quinone": "O=C1C=CC(=O)C=C1",
    # The usual form is not the cheapest.
    "carboline oxide": "Cc1c2[nH]c3ccccc3c2cc[n+]1[O-]",
}  # fmt: skip


class Parts(NamedTuple):
    """A molecule as a matrix of bonds describes it."""

    formula: Formula
    atom_class: np.ndarray  # (N,)
    bond_class: np.ndarray  # of all pairs, (M,)
    order: np.ndarray  # RDKit's index of each atom, (N,)


def disassembled(molecule):
    """The parts of a molecule or a SMILES."""
    mol = parse_smiles(molecule) if isinstance(molecule, str) else molecule
    graph, order = disassemble(mol)
    bond_class = bonds_between(graph, np.arange(len(order)), len(order))
    assert graph.hydrogens == formula_of(mol).hydrogens
    return Parts(formula_of(mol), graph.element, bond_class, order)


def another_order(atom_class, rng):
    """The atoms in another order within each element."""
    return np.lexsort((rng.random(len(atom_class)), atom_class))


def moved(values, order):
    """Values of all pairs, (M, ...), where row `order[i]` has become row i."""
    low, high = pairs(len(order))
    full = np.zeros((len(order), len(order), *values.shape[1:]), values.dtype)
    full[low, high] = full[high, low] = values
    return full[order][:, order][low, high]


def damaged(bond_class, n_flips, rng):
    """A sample with flipped pairs, and noisy log-probabilities under which the truth is likely.

    Half of the flipped pairs are bonded ones; the wrong class leads by up to two nats there.

    Returns:
        Bond classes int8 (M,) and log-probabilities float32 (M, 5).
    """
    every = np.arange(bond_class.size)
    logits = rng.normal((2.4, 0.4, -0.3, -1.5, 0.2), 1.5, (bond_class.size, 5))
    logits[every, bond_class] = logits.max(axis=1) + 3 + rng.exponential(2, bond_class.size)
    bonded = np.flatnonzero(bond_class)
    chosen = set(rng.choice(bonded, min(bonded.size, (n_flips + 1) // 2), replace=False).tolist())
    while len(chosen) < n_flips:
        chosen.add(int(rng.integers(bond_class.size)))
    sample = bond_class.copy()
    for pair in sorted(chosen):
        wrong = rng.choice([c for c in range(5) if c != bond_class[pair]])
        logits[pair, wrong] = logits[pair, bond_class[pair]] + rng.uniform(0, 2)
        sample[pair] = wrong
    log_prob = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return sample, log_prob.astype(np.float32)
