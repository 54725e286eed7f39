"""Molecules to bond matrices and back, completed and repaired."""

import itertools

import numpy as np
import pytest
from rdkit import Chem

from duallgd_cli.chem.elements import BOND_DOUBLE, BOND_NONE, BOND_SINGLE, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, inchikey_block, parent, parse_smiles
from duallgd_cli.chem.molecule import (
    assemble,
    complete,
    disassemble,
    formula_of,
    is_internal_salt,
    is_zwitterion,
    usable,
)
from duallgd_cli.chem.repair import _ATTEMPTS, _EditSearch, repair
from duallgd_cli.chem.valence import Skeleton, bonds_of, match, pair_index
from duallgd_cli.errors import MoleculeError, UnsupportedElementError
from tests.made_molecules import QUESTIONS, another_order, damaged, disassembled, moved


@pytest.mark.parametrize(
    ("smiles", "error", "message"),
    [
        ("[Na+].[Cl-]", MoleculeError, "2 fragments"), ("[13CH4]", MoleculeError, "isotope"),
        ("[2H]C([2H])[2H]", MoleculeError, "isotope"),
        ("[H][H]", MoleculeError, "explicit hydrogen"),
        ("C[CH2]", MoleculeError, "unpaired electrons"), ("N->B", MoleculeError, "dative bond"),
        ("C[Sn](C)(C)C", UnsupportedElementError, "holds Sn; supported elements are C N O P S"),
        ("[He]", UnsupportedElementError, "holds He"), ("*C", UnsupportedElementError, "holds"),
    ],
)  # fmt: skip
def test_what_a_bond_matrix_cannot_say_is_refused(smiles, error, message):
    mol = Chem.MolFromSmiles(smiles)

    with pytest.raises(error, match=message):
        disassemble(mol)
    if error is UnsupportedElementError:
        with pytest.raises(error, match=message):
            formula_of(mol)


@pytest.mark.parametrize("smiles", ["[2H]C", "[H][H]", "C[N+](C)(C)CC[N+](C)(C)C"])
def test_a_formula_is_the_count_of_all_atoms(smiles):
    mol = Chem.MolFromSmiles(smiles)
    symbols = [atom.GetSymbol() for atom in Chem.AddHs(mol).GetAtoms()]
    charge = Chem.GetFormalCharge(mol)

    assert formula_of(mol) == Formula(tuple(map(symbols.count, SYMBOLS)), charge)


@pytest.mark.parametrize("smiles", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_molecule_comes_back_from_its_bonds_in_any_order(smiles):
    mol, rng = parse_smiles(smiles), np.random.default_rng(0)
    symbols = [atom.GetSymbol() for atom in Chem.AddHs(mol).GetAtoms()]

    parts = disassembled(mol)
    plain = assemble(parts.formula, parts.bond_class)

    counts = tuple(map(symbols.count, SYMBOLS))
    assert parts.formula == formula_of(mol) == Formula(counts, Chem.GetFormalCharge(mol))
    assert parts.atom_class.dtype == np.int64
    own = [SYMBOLS.index(mol.GetAtomWithIdx(i).GetSymbol()) for i in parts.order.tolist()]
    assert own == parts.atom_class.tolist() == sorted(own)
    assert [SYMBOLS[n] for n in own] == [atom.GetSymbol() for atom in plain.GetAtoms()]
    for row, other in itertools.combinations(range(len(own)), 2):
        bond = mol.GetBondBetweenAtoms(*parts.order[[row, other]].tolist())
        assert (bond is None) == (parts.bond_class[pair_index(row, other, len(own))] == BOND_NONE)
    assert inchikey_block(plain) == inchikey_block(mol)
    for _ in range(3):
        turned = Chem.RenumberAtoms(mol, rng.permutation(len(own)).tolist())
        np.testing.assert_array_equal(disassembled(turned).bond_class, parts.bond_class)
        bond_class = moved(parts.bond_class, another_order(parts.atom_class, rng))
        assert canonical_smiles(assemble(parts.formula, bond_class)) == canonical_smiles(plain)


@pytest.mark.parametrize(
    ("smiles", "ion"),
    [
        ("NCc1ccncc1", "NCc1cc[nH+]cc1"),  # before an amine the ring nitrogen of a pyridine
        ("NCCC(=O)O", "NCCC(=O)[O-]"),  # an acid before all else
        ("OCCS(=O)(=O)O", "O=S(=O)([O-])CCO"),
        ("CC(=O)NCCN", "CC(=O)NCC[NH3+]"),  # an amine, and no amide
        ("OCCC(=O)O", "O=C([O-])CCO"),  # before an alcohol
        ("C[N+](C)(C)[O-]", "C[N+](C)(C)O"),
        ("Cn1cc[n+]([O-])c1", "Cn1cc[n+]([O-])c1"),  # the cation beside the oxygen
    ],
)
def test_protons_and_charges_are_where_they_are_likeliest(smiles, ion):
    bonds, charged = disassembled(smiles).bond_class, formula_of(parse_smiles(ion))

    assert canonical_smiles(assemble(charged, bonds)) == ion


RING = [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 4, 4), (0, 4, 4)]
TWO_RINGS = [*RING, *((low + 5, high + 5, kind) for low, high, kind in RING), (0, 5, 1)]


@pytest.mark.parametrize(
    ("formula", "bonds", "reason"),
    [
        ("C2H8", [], "disconnected"), ("C2H5", [(0, 1, BOND_SINGLE)], "radical"),
        ("C2H2", [(0, 1, BOND_SINGLE)], "hydrogens"), ("C2H8", [(0, 1, BOND_SINGLE)], "hydrogens"),
        ("CH2F2", [(0, 1, BOND_DOUBLE), (0, 2, BOND_SINGLE)], "valence"),
        ("Si10H8", TWO_RINGS, "kekule"),
    ],
)  # fmt: skip
def test_a_matrix_that_is_no_molecule_is_rejected_with_the_reason(formula, bonds, reason):
    formula = Formula.parse(formula)
    n = formula.n_heavy
    bond_class = np.zeros(n * (n - 1) // 2, dtype=np.int8)
    for low, high, kind in bonds:
        bond_class[pair_index(low, high, n)] = kind

    assert assemble(formula, bond_class) == reason


@pytest.mark.parametrize(
    ("smiles", "is_salt", "is_apart"),
    [
        ("C[N+](C)(C)CC(=O)[O-]", False, True), ("C[N+](C)(C)CC[O-]", True, True),
        ("[CH2-][N+](C)(C)C", True, False), ("[C-]#[N+]c1ccccc1", False, False),
        ("O=[N+]([O-])c1ccccc1", False, False), ("C[N+](C)(C)CC", False, False),
    ],
)  # fmt: skip
def test_an_anion_without_a_reason_makes_an_internal_salt(smiles, is_salt, is_apart):
    mol = parse_smiles(smiles)

    assert (is_internal_salt(mol), is_zwitterion(mol)) == (is_salt, is_apart)


@pytest.mark.parametrize(
    "smiles",
    [
        "Nc1ncnc2[nH]cnc12",
        "C[N+](C)(C)CC(O)CC(=O)[O-]",  # or an alkoxide, but not a carbanion
        # Nineteen alcohols and one quaternary nitrogen: any oxygen may be the anion.
        "C[N+](C)(C)" + "C(O)" * 19 + "C[O-]",
    ],
)
def test_answers_come_cheapest_first_and_are_few(smiles):
    parts = disassembled(smiles)
    bonds = bonds_of(parts.atom_class.size, parts.bond_class)
    skeleton = Skeleton.of(parts.atom_class.tolist(), bonds)

    answers = complete(skeleton, parts.formula.hydrogens, parts.formula.charge)

    costs = [answer.cost for answer in answers]
    assert 1 < len(costs) <= 24
    assert costs == sorted(costs)
    assert costs[-1] <= costs[0] + 2
    sums = {(sum(answer.hydrogens), sum(answer.charge)) for answer in answers}
    assert sums == {(parts.formula.hydrogens, 0)}


CHAIN = [(0, 1), (1, 2), (2, 3)]
# The first choice, atom 0 with atom 2, would leave 3 and 5 without a partner.
TAKEN_BACK = [(0, 2), (0, 4), (1, 3), (1, 4), (1, 5), (2, 3), (2, 5)]


@pytest.mark.parametrize(
    ("bonds", "required", "optional", "n_pairs"),
    [
        (TAKEN_BACK, 0b111111, 0, 3), (CHAIN, 0b0101, 0b1010, 2), (CHAIN, 0b0001, 0b0010, 1),
        (CHAIN, 0b0101, 0, None),
    ],
)  # fmt: skip
def test_atoms_are_paired_along_bonds_each_once(bonds, required, optional, n_pairs):
    neighbours = [sum(1 << a + b - atom for a, b in bonds if atom in (a, b)) for atom in range(6)]

    pairs = match(required, neighbours, optional)

    assert (pairs and len(pairs)) == n_pairs
    paired = [atom for pair in pairs or () for atom in pair]
    assert set(pairs or ()) <= set(bonds)
    assert len(paired) == len(set(paired))
    assert pairs is None or all(atom in paired for atom in range(6) if required >> atom & 1)


def certain(bond_class, nats=6.0):
    """Log-probabilities of a model that is sure of the true classes, whatever was sampled."""
    logits = np.eye(5)[bond_class] * nats
    return (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).astype(np.float32)


def repaired(parts, sample, log_prob):
    return canonical_smiles(assemble(parts.formula, repair(parts.formula, sample, log_prob)))


# As the search of version 0.2 found them, whose states were all built anew.
FOUND = {
    ("CC(=O)Oc1ccccc1C(=O)O", 12): "CC(=O)Oc1ccccc1C(=O)O",
    ("CC(=O)Oc1ccccc1C(=O)O", 25): "C=C=C1[O+]=CC([O-])(O)C1=C(O)C=C",
    ("Cn1c(=O)c2c(ncn2C)n(C)c1=O", 12): "C[N-]C(=O)C[N+](=CN)C1C(=O)C1=C=N",
    ("Cn1c(=O)c2c(ncn2C)n(C)c1=O", 25): "C[N+]#CON(C)C([O-])=CN=CCC#N",
    ("CC(N)Cc1c[nH]c2ccccc12", 12): "CC(N)Cc1c[nH]c2ccccc12",
    ("CC(N)Cc1c[nH]c2ccccc12", 25): "CC1NC2(C)CC=C(N2)C2=C1C=C2",
    ("O=[N+]([O-])c1ccc(Cl)cc1", 12): "O=C=C1C(=CCl)C=C1NO",
    ("O=[N+]([O-])c1ccc(Cl)cc1", 25): "O=NC12CC=C1C2=COCl",
    ("CS(=O)(=O)Nc1ccc(F)cc1Br", 12): "CS(=O)(=O)Nc1ccc(F)cc1Br",
    ("CS(=O)(=O)Nc1ccc(F)cc1Br", 25): "CN(F)C12OS13(=C=CC2Br)C=CO3",
    ("OCC1OC(O)C(O)C(O)C1O", 12): "OCC1OC(O)C(O)C(O)C1O",
    ("OCC1OC(O)C(O)C(O)C1O", 25): "COC(O)=C(CO)COOCO",
}


MOLECULES = sorted({"C[N+](C)(C)CC(=O)[O-]", *(smiles for smiles, _ in FOUND)})


@pytest.mark.parametrize(("smiles", "n_flips"), FOUND)
def test_a_search_finds_what_it_found_before(smiles, n_flips):
    parts = disassembled(smiles)
    sample = damaged(parts.bond_class, n_flips, np.random.default_rng(n_flips))

    assert repaired(parts, *sample) == FOUND[smiles, n_flips]


@pytest.mark.parametrize("smiles", MOLECULES)
def test_one_wrong_bond_is_put_right_where_the_model_knows_better(smiles):
    parts = disassembled(smiles)
    places = np.random.default_rng(0).choice(parts.bond_class.size, 10, replace=False)
    for pair in (None, *places):
        sample = parts.bond_class.copy()
        if pair is not None:
            sample[pair] = BOND_DOUBLE if sample[pair] == BOND_NONE else BOND_NONE

        fixed = repair(parts.formula, sample, certain(parts.bond_class))

        assert fixed.dtype == np.int8
        np.testing.assert_array_equal(fixed, parts.bond_class)


@pytest.mark.parametrize("smiles", MOLECULES)
def test_repair_does_not_depend_on_the_order_of_like_atoms(smiles):
    rng, parts = np.random.default_rng(4), disassembled(smiles)
    sample = damaged(parts.bond_class, 4, rng)
    order = another_order(parts.atom_class, rng)

    assert repaired(parts, *sample) == repaired(parts, *(moved(part, order) for part in sample))


@pytest.mark.parametrize("formula", ["C2H5", "C2H20", "CF2Br2ClH", "CH6"])
def test_a_formula_that_no_molecule_has_gives_nothing(formula):
    formula = Formula.parse(formula)
    nothing = np.zeros(formula.n_heavy * (formula.n_heavy - 1) // 2, dtype=np.int8)

    assert repair(formula, nothing, certain(nothing, nats=0.0)) is None


@pytest.mark.parametrize("smiles", MOLECULES)
def test_what_a_search_keeps_of_bonds_is_that_of_the_changed_matrix(smiles):
    parts = disassembled(smiles)
    sample, log_prob = damaged(parts.bond_class, 8, np.random.default_rng(3))
    nats = -log_prob.astype(np.float64)

    def search(bond_class):
        return _EditSearch(parts.formula, bond_class.astype(np.int64), nats, _ATTEMPTS[0])

    for state in itertools.islice(search(sample)._states(), 20):
        edited = sample.copy()
        edited[list(state.edits)] = list(state.edits.values())
        anew = search(edited)._first()

        assert state.kind.tolist() == anew.kind.tolist()
        for name in ("bonds", "fragments", "unpaired", "faults", "least", "most"):
            assert getattr(state, name) == getattr(anew, name), name
        assert state.nats == pytest.approx(anew.nats)


DRUG = "CN1CCC(CC1)OC(c1ccccc1)c1ccccc1"  # diphenylpyraline


@pytest.mark.parametrize(
    ("salt", "alone"),
    [
        # Salts of amines: drawn with the proton on the acid, or on the amine.
        ("CCN.Cl", "CCN"), ("CC[NH3+].[Cl-]", "CCN"), (f"{DRUG}.Cl.O", DRUG),
        (f"{DRUG}.OS(O)(=O)=O", DRUG), (f"{DRUG}.{DRUG}.OP(O)(O)=O", DRUG),
        (f"{DRUG}.CS(O)(=O)=O", DRUG), ("[NH3+]CC(O)=O.[Cl-]", "NCC(=O)O"),
        # Salts of acids: carboxylic, sulfonic, phosphoric acids, phenols, sulfonamides.
        ("[Na+].CC([O-])=O", "CC(=O)O"), ("[NH4+].CC([O-])=O", "CC(=O)O"),
        ("[Ca+2].[O-]C(=O)c1ccccc1.[O-]C(=O)c1ccccc1", "O=C(O)c1ccccc1"),
        ("[K+].[K+].[O-]C(=O)CCC([O-])=O.O.O", "O=C(O)CCC(=O)O"),
        ("[Na+].Nc1ccc(cc1)S(=O)(=O)[N-]c1ncccn1", "Nc1ccc(S(=O)(=O)Nc2ncccn2)cc1"),
        ("[Na+].[O-]c1ccccc1[N+]([O-])=O", "O=[N+]([O-])c1ccccc1O"),
        # What no proton makes neutral keeps its charge; a betaine has none to lose.
        ("C[N+](C)(C)CCO.[Cl-]", "C[N+](C)(C)CCO"), ("C[n+]1ccccc1.[I-]", "C[n+]1ccccc1"),
        ("C[N+](C)(C)CC([O-])=O.O", "C[N+](C)(C)CC(=O)[O-]"),
        # Half a salt, solvates, isotopes in the solvent.
        ("[NH3+]Cc1ccccc1.NCc1ccccc1.[Cl-]", "NCc1ccccc1"), ("[2H]O[2H].CCCN", "CCCN"),
        ("Oc1ccccc1.CN(C)C=O", "Oc1ccccc1"),
        # Usual counter-ions are no parents, be they the larger piece, unless nothing else is there.
        (f"{DRUG}.OC(=O)C(F)(F)F", DRUG), ("C[NH3+].[O-]C(=O)C(F)(F)F", "CN"),
        ("CC(N)Cc1ccccc1.O[C@H]([C@@H](O)C(O)=O)C(O)=O", "CC(N)Cc1ccccc1"),
        ("[Na+].OC(=O)CC(O)(CC([O-])=O)C(O)=O", "OC(=O)CC(O)(CC(O)=O)C(O)=O"),
        ("OC(=O)CCC(=O)O.CCO", "OC(=O)CCC(=O)O"), ("OC(=O)C(=O)O.CN(C)C=O", "OC(=O)C(=O)O"),
    ],
)  # fmt: skip
def test_a_salt_or_solvate_is_its_parent(salt, alone):
    assert canonical_smiles(parse_smiles(parent(salt))) == canonical_smiles(parse_smiles(alone))


@pytest.mark.parametrize(
    "text",
    [
        "CCO", "C1.C1", "CC(=O)[O-]", "[Na]OC(C)=O", "xx(.C", "[Na+].[Cl-]",
        # Ferrocene is no cyclopentadiene, nor is a complex its ligand.
        "[Gd+3].[O-]C(=O)CN(CC(=O)[O-])CCN(CC(=O)[O-])CC(=O)O", "[Cr].c1ccccc1",
        "Cl[Au].c1ccc(P(c2ccccc2)c2ccccc2)cc1",
        "N.N.[Cl-].[Cl-].[Pt+2]", "[Fe+2].[cH-]1cccc1.[cH-]1cccc1",
        "NCc1ccccc1.OC(=O)c1ccccc1", "Cc1ccccc1.NCCCCCC",  # each may be the one that is meant
    ],
)  # fmt: skip
def test_what_is_no_salt_of_one_molecule_is_left_as_it_is(text):
    assert parent(text) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("xx(", "not a molecule"), ("", "not a molecule"), ("C[N](C)(C)C", "not a molecule"),
        ("CCO ethanol", "other text follows the SMILES in its cell"),
        ("C[Hg]C", "unsupported element"), ("C", "number of heavy atoms outside 2 to 100"),
        ("C" * 101, "number of heavy atoms outside 2 to 100"),
        ("CCN.Cl", "the molecule has 2 fragments; exactly one is needed"),
        ("[13CH3]C", "the molecule holds isotope labels; remove them first"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_so_for_a_reason_that_can_be_counted(text, reason):
    with pytest.raises(MoleculeError) as refused:
        usable(text)

    assert refused.value.reason == reason
