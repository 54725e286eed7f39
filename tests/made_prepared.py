"""Prepared data made from chemistry: molecules from SMILES, spectra from fragment formulas."""

import numpy as np

from duallgd_cli.chem.adduct import BY_NAME, precursor_mz
from duallgd_cli.chem.elements import ELECTRON_MASS_DA
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.chem.valence import pair_index
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.data.prepared import Decoys, Molecules, load_spectra, read_manifest, write_blocks
from duallgd_cli.data.spectra import prepare_spectra
from duallgd_cli.data.structures import pack, prepare_molecule
from duallgd_cli.files import sha256

SMILES = (
    "CCO", "CC(=O)O", "NCC(=O)O", "c1cc[nH]c1", "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "O=[N+]([O-])c1ccccc1", "CS(C)(=O)=O", "C[N+](C)(C)CCO",
    "OB(O)c1ccc(Cl)cc1Br", "CC(C)(C)OC(=O)NCCS", "OC1CCCCC1CN",
)  # fmt: skip
# SMILES, adduct, fragment ions, collision energy, fold: never measured.
SPECTRA = (
    ("CC(=O)Oc1ccccc1C(=O)O", "[M+H]+", "C7H5O2 C9H7O3 C6H7O C7H7O3", "20", "train"),
    ("CC(=O)Oc1ccccc1C(=O)O", "[M+H]+", "C7H5O2 C6H5O C5H5", "40", "train"),
    ("CC(=O)Oc1ccccc1C(=O)O", "[M-H]-", "C7H5O3 C6H5O", "", "train"),
    ("Cn1c(=O)c2c(ncn2C)n(C)c1=O", "[M+H]+", "C6H8N3O C5H8N3 C4H7N2", "30", "train"),
    ("NCC(=O)O", "[M+H]+", "CH4N", "10", "train"),
    ("Oc1ccccc1O", "[M+H]+", "C6H5O C5H5", "20", "val"),
    ("CN1CCCC1c1cccnc1", "[M+H]+", "C9H10N C8H8N C5H8N", "20", "test"),
)
COLUMNS = (
    "identifier", "mzs", "intensities", "smiles", "adduct", "precursor_mz", "instrument_type",
    "collision_energy", "fold",
)  # fmt: skip

# Esters that show their acyl cation, and nothing else.
ESTERS = {
    "CC(=O)OCC": "C2H3O", "CCC(=O)OC": "C3H5O", "CC(=O)OCCC": "C2H3O", "CCC(=O)OCC": "C3H5O",
    "CCCC(=O)OC": "C4H7O", "CCCC(=O)OCC": "C4H7O", "CCCCC(=O)OC": "C5H9O", "CC(=O)OCCCC": "C2H3O",
}  # fmt: skip


def molecules_of(*smiles, fold=None):
    """Prepared arrays of molecules, in memory."""
    return Molecules(**_arrays(smiles or SMILES, fold))


def made_decoys(smiles_of, n_molecules):
    """SMILES of molecules, each before its decoys, by the rows of prepared molecules."""
    flat = [(row, smiles) for row in sorted(smiles_of) for smiles in smiles_of[row]]
    molecules = molecules_of("CCO", *(smiles for _, smiles in flat)).take(1 + np.arange(len(flat)))
    owner = np.array([row for row, _ in flat])
    return Decoys(molecules, np.searchsorted(owner, np.arange(n_molecules + 1)))


def bond_class(molecules, row):
    """Classes of all pairs of a prepared molecule, none where no bond is, (M,)."""
    graph, n = graph_of(molecules, row), int(molecules.n_heavy[row])
    classes = np.zeros(n * (n - 1) // 2, np.int8)
    classes[pair_index(*graph.pair.T, n)] = graph.bond_class
    return classes


def bits_of(molecules, row):
    """Set bits of a prepared molecule's fingerprint."""
    return molecules.bits_of(np.array([row]))[1]


def structures_folder(path, *smiles, fold=None):
    """A prepared folder of structures."""
    arrays = _arrays(smiles or SMILES, fold)
    write_blocks(path, [arrays], lambda: {"kind": "structures", "molecules": len(arrays["fold"])})
    return path


def spectra_folder(path, *rows):
    """A prepared folder of spectra, prepared as a user would from a table beside it."""
    named = (row_of(f"made{n}", *row) for n, row in enumerate(rows or SPECTRA))
    prepare_spectra(table(path.with_name(path.name + ".tsv"), *named), path)
    return path


def made_spectra(path, *rows):
    """Prepared spectra, loaded."""
    return load_spectra(spectra_folder(path, *rows))


def verify(folder):
    """Every array of a prepared folder is the one that its manifest describes."""
    for name, described in read_manifest(folder)["arrays"].items():
        assert sha256(folder / f"{name}.npy") == described["sha256"], name


def _arrays(smiles, fold):
    prepared = [prepare_molecule(parse_smiles(text)) for text in smiles]
    folds = np.zeros(len(prepared)) if fold is None else np.asarray(fold)
    return pack(prepared) | {"fold": folds.astype(np.uint8)}


def row_of(name, smiles, adduct, fragments, energy="20", fold="train", flat=0):
    """A row of a table of labelled spectra, its peaks alike where `flat` is large."""
    ion = BY_NAME[adduct]
    peaks = sorted(
        (Formula.parse(text).atoms_mass - ion.charge * ELECTRON_MASS_DA, 1 / (place + 1 + flat))
        for place, text in enumerate(fragments.split())
    )
    mzs, intensities = (
        ",".join(f"{x:.{n}f}" for x in of)
        for of, n in zip(zip(*peaks, strict=True), (5, 4), strict=True)
    )
    precursor = f"{precursor_mz(formula_of(parse_smiles(smiles)), ion):.5f}"
    cells = (name, mzs, intensities, smiles, adduct, precursor, "Orbitrap", energy, fold)
    return dict(zip(COLUMNS, cells, strict=True))


def table(path, *rows):
    """Write a table of labelled spectra; returns its path."""
    lines = (list(rows[0]), *(row.values() for row in rows))
    path.write_text("".join("\t".join(cells) + "\n" for cells in lines), encoding="utf-8")
    return path
