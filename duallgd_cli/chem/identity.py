"""What a molecule is called and when two molecules are the same: SMILES, InChI, fingerprints.

Stereochemistry is left out everywhere, as a tandem mass spectrum seldom shows it. Coarser than the
structure are its scaffold and its family: where substituents sit on rings a spectrum seldom tells,
nor how rings are joined. Two molecules are of one family if they fall into the same pieces when
every acyclic single bond at a ring is cut: the same rings, groups and chains, their positions open.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, DataStructs, rdBase
from rdkit.Chem import rdFingerprintGenerator, rdinchi
from rdkit.Chem.MolStandardize import rdMolStandardize

from duallgd_cli.chem.elements import FINGERPRINT_BITS, MAX_HEAVY_ATOMS
from duallgd_cli.errors import MoleculeError, quote

FINGERPRINT_RADIUS: Final = 2
BLOCK_LENGTH: Final = 14
MORE_THAN_ONE: Final = "other text follows the SMILES in its cell"


def sole_token(text: str, what: str = "SMILES") -> str:
    """A SMILES or SMARTS without the blanks around it.

    RDKit would take what follows the first blank or line break for a name, and drop it.

    Raises:
        MoleculeError: Something follows it.
    """
    first, *others = text.split() or [""]
    if others:
        message = f"other text follows the {what} {quote(first)} in {quote(text)}"
        raise MoleculeError(message, MORE_THAN_ONE)
    return first


# Of 100,000 characters RDKit takes half a minute; the largest molecules here need some hundreds.
LONGEST_SMILES: Final = 2_000


def parse_smiles(text: str) -> Chem.Mol:
    """Read a SMILES, without its stereochemistry and with explicit hydrogens folded in.

    Raises:
        MoleculeError: The text is not a SMILES alone, or not a possible molecule.
    """
    if len(text) > LONGEST_SMILES:
        raise MoleculeError(
            f"a SMILES or InChI of more than {LONGEST_SMILES:,} characters, which no molecule of "
            f"at most {MAX_HEAVY_ATOMS} heavy atoms needs"
        )
    text = sole_token(text)
    # RDKit reports failures to a log and returns None: silence the log, raise the reason.
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(text)
        if mol is None:
            loose = Chem.MolFromSmiles(text, sanitize=False)
            problems = [] if loose is None else Chem.DetectChemistryProblems(loose)
            why = "the SMILES does not parse" if loose is None else "it cannot be sanitised"
            why = problems[0].Message() if problems else why
            raise MoleculeError(f"{quote(text)} is not a molecule: {why}", "not a molecule")
        Chem.RemoveStereochemistry(mol)
    if mol.GetNumAtoms() == 0:
        message = "an empty SMILES is not a molecule; write one such as CCO"
        raise MoleculeError(message, "not a molecule")
    return mol


def smiles_of_inchi(text: str) -> str:
    """SMILES of an InChI, "" where it is none, or one that is too long to be read."""
    if not text or len(text) > LONGEST_SMILES:
        return ""
    with rdBase.BlockLogs():
        mol = Chem.MolFromInchi(text)  # type: ignore[no-untyped-call]
    return "" if mol is None else str(Chem.MolToSmiles(mol))


_CARBON, _CARBANION = Chem.MolFromSmarts("[#6]"), Chem.MolFromSmarts("[#6-]")
_BASE: Final = Chem.MolFromSmarts("[$([NX3;!$(N[C,S]=O)]),N+,n+]")
# Not transition metals, whose complexes are drawn in pieces, too.
_OF_SALTS: Final = frozenset(
    map(Chem.GetPeriodicTable().GetAtomicNumber, [
        *(["H", "B", "C", "N", "O", "F", "Si", "P", "S", "Cl", "As", "Se", "Br", "I"]),
        *(["Li", "Na", "K", "Rb", "Cs", "Mg", "Ca", "Sr", "Ba", "Zn", "Al", "Bi"]),
    ])
)  # fmt: skip
_LEAST_OF_A_MIXTURE: Final = 6  # heavy atoms, from which on an organic piece is no solvent
# Of drugs: oxalate, maleate and fumarate, succinate, malate, tartrate, citrate, trifluoroacetate,
# triflate, besylate, tosylate.
_COUNTER_IONS: Final = frozenset(
    Chem.MolToSmiles(Chem.MolFromSmiles(acid))
    for acid in (
        "OC(=O)C(=O)O", "OC(=O)C=CC(=O)O", "OC(=O)CCC(=O)O", "OC(=O)C(O)CC(=O)O",
        "OC(=O)C(O)C(O)C(=O)O", "OC(=O)CC(O)(CC(=O)O)C(=O)O", "OC(=O)C(F)(F)F",
        "OS(=O)(=O)C(F)(F)F", "OS(=O)(=O)c1ccccc1", "Cc1ccc(S(=O)(=O)O)cc1",
    )
)  # fmt: skip


def parent(smiles: str) -> str:
    """SMILES of a salt or solvate without counter-ions and solvents; other texts as they are.

    The molecule that is left has the protons that it exchanged with the others. Mixtures are no
    salts, nor is what holds no carbon, or complexes of a metal.
    """
    if "." not in smiles:
        return smiles
    try:
        mol = parse_smiles(smiles)
    except MoleculeError:
        return smiles
    pieces = Chem.GetMolFrags(mol, asMols=True)
    if len(pieces) < 2 or any(atom.GetAtomicNum() not in _OF_SALTS for atom in mol.GetAtoms()):
        return smiles
    with rdBase.BlockLogs():
        neutral = rdMolStandardize.Uncharger().uncharge
        organic = [piece for piece in pieces if piece.HasSubstructMatch(_CARBON)]
        names = {canonical_smiles(neutral(piece)): piece for piece in organic}
        ranks = {name: _rank(name, piece) for name, piece in names.items()}
        chosen = [name for name, rank in ranks.items() if rank == max(ranks.values())]
        if len(chosen) != 1:
            return smiles
        piece = names[chosen[0]]
        is_ion = Chem.GetFormalCharge(piece) and not Chem.GetFormalCharge(mol)
        if is_ion and piece.HasSubstructMatch(_CARBANION):
            return smiles
        return chosen[0] if is_ion else canonical_smiles(piece)


def _rank(name: str, piece: Chem.Mol) -> int:
    """Of the pieces of a salt the one that it is of: a molecule, a base, an acid, no solvent."""
    if name in _COUNTER_IONS:
        return 1
    if piece.GetNumHeavyAtoms() >= _LEAST_OF_A_MIXTURE:
        return 3
    return 2 * piece.HasSubstructMatch(_BASE)


def salts(number: int) -> str:
    """What so many salts count as, in words; "" without any."""
    several = f"{number} salts are read as their parent molecules" * bool(number)
    return "1 salt is read as its parent molecule" if number == 1 else several


def canonical_smiles(mol: Chem.Mol) -> str:
    """Canonical SMILES without stereochemistry and isotopes."""
    return str(Chem.MolToSmiles(mol, isomericSmiles=False))


def charge_free_smiles(mol: Chem.Mol) -> str:
    """Atoms and bonds alone: the same for molecules that differ in charges and hydrogens only."""
    bare = Chem.RWMol(mol)
    for index in range(bare.GetNumAtoms()):
        atom = bare.GetAtomWithIdx(index)
        atom.SetFormalCharge(0)
        atom.SetNumExplicitHs(0)
        atom.SetNoImplicit(True)
    return canonical_smiles(bare)


def inchi(mol: Chem.Mol) -> str:
    """Standard InChI without stereochemistry.

    Raises:
        MoleculeError: InChI does not accept the molecule.
    """
    text, _, message, _, _ = rdinchi.MolToInchi(mol, "-SNon")
    if not text:
        raise MoleculeError(f"{canonical_smiles(mol)} has no InChI: {message}", "it has no InChI")
    return str(text)


def inchikey(mol: Chem.Mol) -> str:
    """InChIKey (27 characters) of the molecule without stereochemistry, by `inchi`."""
    return inchikey_of(inchi(mol))


def inchikey_of(inchi_text: str) -> str:
    """InChIKey (27 characters) of an InChI."""
    return str(rdinchi.InchiToInchiKey(inchi_text))


def inchikey_block(mol: Chem.Mol) -> str:
    """First block of the InChIKey (14 characters): the identity every metric here rests on."""
    return inchikey(mol)[:BLOCK_LENGTH]


def fingerprint(mol: Chem.Mol, n_bits: int = FINGERPRINT_BITS) -> NDArray[np.uint16]:
    """Set bits of the Morgan fingerprint of radius 2, ascending, (n_on,)."""
    # Of the counts, which RDKit gives in half the time of a row of zeros and ones.
    return np.fromiter(_generator(n_bits).GetCountFingerprint(mol).GetNonzeroElements(), np.uint16)


def bits_away(mol: Chem.Mol, places: Sequence[int]) -> NDArray[np.uint16]:
    """Bits of the Morgan fingerprint whose surroundings reach none of some atoms, ascending."""
    bit, atom, radius = surroundings(mol)
    far = Chem.GetDistanceMatrix(mol)[list(places)].min(0)
    return np.unique(bit[far[atom] > radius]).astype(np.uint16)


def surroundings(mol: Chem.Mol) -> NDArray[np.int64]:
    """Bits of the Morgan fingerprint, ascending, and the atom and radius each stands for, (3, E).

    A bit that stands for several surroundings comes as often.
    """
    extra = rdFingerprintGenerator.AdditionalOutput()
    extra.AllocateBitInfoMap()
    _generator(FINGERPRINT_BITS).GetFingerprint(mol, additionalOutput=extra)
    rows = [(bit, *place) for bit, seen in sorted(extra.GetBitInfoMap().items()) for place in seen]
    return np.array(rows, np.int64).reshape(-1, 3).T


def tanimoto(a: NDArray[np.uint16], b: NDArray[np.uint16]) -> float:
    """Tanimoto similarity of two sets of bits, each without repeats; 1 for two empty sets."""
    shared = np.intersect1d(a, b, assume_unique=True).size
    union = a.size + b.size - shared
    return shared / union if union else 1.0


def most_alike(
    mols: Iterable[Chem.Mol], known: Iterable[Chem.Mol], n_bits: int = FINGERPRINT_BITS
) -> NDArray[np.float64]:
    """Tanimoto similarity of each molecule to the most similar known one, 0 without any, (B,)."""
    generator = _generator(n_bits)
    asked = [generator.GetFingerprint(mol) for mol in mols]
    best = np.zeros(len(asked))
    for mol in known:
        alike = DataStructs.BulkTanimotoSimilarity(generator.GetFingerprint(mol), asked)
        best = np.maximum(best, alike)
    return best


@cache
def _generator(n_bits: int) -> rdFingerprintGenerator.FingerprintGenerator64:
    return rdFingerprintGenerator.GetMorganGenerator(radius=FINGERPRINT_RADIUS, fpSize=n_bits)


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
_CUT: Final = Chem.MolFromSmarts("[R]-;!@*")


def scaffold(mol: Chem.Mol) -> str:
    """SMILES of the Murcko scaffold: rings and what links them; ``acyclic`` where there is none."""
    from rdkit.Chem.Scaffolds import MurckoScaffold  # which loads most of rdkit

    text = canonical_smiles(MurckoScaffold.GetScaffoldForMol(mol))  # type: ignore[no-untyped-call]
    return text or ACYCLIC


def family(mol: Chem.Mol) -> str:
    """The pieces of a molecule as SMILES in alphabetical order, a point between them.

    Every acyclic single bond of which an end is a ring atom is cut, and hydrogen put at both ends.
    A molecule without rings is a family of its own, and so is one whose pieces are no molecules.
    """
    bonds = [mol.GetBondBetweenAtoms(*ends).GetIdx() for ends in mol.GetSubstructMatches(_CUT)]
    if not bonds:
        return canonical_smiles(mol)
    cut = Chem.FragmentOnBonds(mol, sorted(bonds), dummyLabels=[(0, 0)] * len(bonds))
    pieces = [closed(piece) for piece in Chem.MolToSmiles(cut).split(".")]
    return ".".join(sorted(pieces)) if all(pieces) else canonical_smiles(mol)


@lru_cache(maxsize=20_000)  # candidates share most of their pieces
def closed(piece: str) -> str:
    """A piece with hydrogen in place of what was cut off, "" where that is no molecule."""
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(piece.replace("*", "[H]"))
    for atom in () if mol is None else mol.GetAtoms():  # where a double bond was cut
        atom.SetNumExplicitHs(atom.GetNumExplicitHs() + atom.GetNumRadicalElectrons())
        atom.SetNumRadicalElectrons(0)
    return "" if mol is None else canonical_smiles(mol)


@lru_cache(maxsize=4096)
def family_name(text: str) -> str:
    """A family in words, rings first: ``chromone + benzene ring + 4 hydroxyl, positions open``."""
    pieces = Counter(text.split("."))
    if pieces[text]:
        return _NAMES.get(text, text)
    order = sorted(pieces, key=lambda piece: (not any(c.isdigit() for c in piece), -len(piece)))
    words = (f"{pieces[piece]} {_NAMES.get(piece, piece)}".removeprefix("1 ") for piece in order)
    return f"{' + '.join(words)}, positions open"
