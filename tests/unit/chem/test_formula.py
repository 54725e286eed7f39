"""Elements and formulas; names of molecules, their families, scaffolds, bits and environments."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem
from rdkit.Chem import Descriptors

from duallgd_cli.chem import elements, identity
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, family, parse_smiles, scaffold
from duallgd_cli.errors import FormulaError, MoleculeError, UnsupportedElementError
from duallgd_cli.scores import environments, known_environments, unknown_environments

CHOLINE = "C[N+](C)(C)CCO"


def test_elements_have_the_number_and_mass_of_their_most_common_isotope_and_valences_by_twos():
    table, order = Chem.GetPeriodicTable(), elements.SYMBOLS
    masses = dict(zip(order, elements.MASSES_DA, strict=True))
    metals = {metal: mass for metal, (mass, _) in elements.METALS.items()}

    assert list(elements.ATOMIC_NUMBERS) == list(map(table.GetAtomicNumber, order))
    for each, off in ((masses, 5e-6), (metals, 1e-5)):
        assert each == pytest.approx({s: table.GetMostCommonIsotopeMass(s) for s in each}, abs=off)
    cation = Formula.parse("C5H14NO+")
    assert cation.mass == pytest.approx(Descriptors.ExactMolWt(Chem.MolFromSmiles(CHOLINE)))
    assert cation.atoms_mass == cation.mass + elements.ELECTRON_MASS_DA
    steps = [pair for valences in elements.VALENCES for pair in itertools.pairwise(valences)]
    assert all(high - low == 2 for low, high in steps)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("C9H8O4", "C9H8O4"), ("H2O", "H2O"), ("BrH", "BrH"), ("OH2CCl", "CH2ClO"),
        ("(CH3)2CO", "C3H6O"), ("CH3CH2OH", "C2H6O"), ("C₆H₁₂O₆", "C6H12O6"), (" C2 H6 ", "C2H6"),
        ("CCl4", "CCl4"), ("C2H6Si0", "C2H6"), ("((CH2)2NH)3", "C6H15N3"),
        ("[C5H14NO]+", "C5H14NO+"), ("C5H14NO+", "C5H14NO+"),
        ("C5H14+", "C5H14+"),  # without brackets the last digits belong to the element
        ("[C4H4O4]2-", "C4H4O4-2"), ("C4H4O4-2", "C4H4O4-2"), ("CH3^2+", "CH3+2"),
        ("C7H7^+", "C7H7+"),
    ],
)  # fmt: skip
def test_a_formula_is_read_however_it_is_written_and_printed_in_hill_order(text, printed):
    _, plus, size = printed.replace("-", "+-").partition("+")

    formula = Formula.parse(text)

    assert (str(formula), formula.charge) == (printed, int(size if size else bool(plus)))


NO_FORMULA = "is not a molecular formula; write it like"


@pytest.mark.parametrize(
    ("read", "text", "reason"),
    [
        *(
            (Formula.parse, text, NO_FORMULA)
            for text in (
                *("", "  ", "c6h6", "C6H6)", "(C6H6", "12", "C--", "hello", "C1e3", "C100000"),
                *("C\uff19H8O4", "C" + "9" * 5000, "C9H8O4" * 1000, f"[C9H8O4]{'9' * 400}+"),
                "(" * 200 + "C9" + ")9999" * 99,
            )
        ),
        (Formula.parse, "C10H10FeNa", "holds Fe, Na; supported elements are C N O"),
        (parse_smiles, "C1CC", "does not parse"), (parse_smiles, "C(C)(C)(C)(C)C", "valence"),
        (parse_smiles, "c1cccc1", "kekulize"), (parse_smiles, "", "empty"),
        (parse_smiles, "water", "does not parse"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_formula_or_molecule_is_refused_in_a_short_sentence(read, text, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        read(text)

    is_foreign, kinds = "Fe" in text, (FormulaError, MoleculeError)
    expected = UnsupportedElementError if is_foreign else kinds[read is parse_smiles]
    assert refused.type is expected
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("text", "unsaturation", "closed"),
    [
        ("C6H6", 4, True), ("CH4", 0, True), ("C5H5N", 4, True), ("C2H3Cl", 1, True),
        ("[C5H14NO]+", 0, True), ("C6H5O-", 4, True), ("CH3+", 1, True), ("N2", 2, True),
        ("CH3", 0.5, False), ("NO", 1.5, False),
    ],
)  # fmt: skip
def test_rings_and_double_bonds_are_counted_and_odd_electrons_noticed(text, unsaturation, closed):
    formula = Formula.parse(text)

    assert (formula.unsaturation, formula.has_even_electrons) == (unsaturation, closed)


CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


def test_stereochemistry_is_dropped_on_reading_and_by_inchi():
    written = [canonical_smiles(parse_smiles(s)) for s in ("C[C@H](N)C(=O)O", "C/C=C/C")]
    left_in = Chem.MolFromSmiles("C[C@H](N)C(=O)O")

    assert written == ["CC(N)C(=O)O", "CC=CC"]
    assert identity.inchikey(left_in) == identity.inchikey(parse_smiles("CC(N)C(=O)O"))


def test_inchi_and_key_are_the_standard_ones():
    aspirin = parse_smiles(ASPIRIN)

    assert identity.inchi(aspirin) == (
        "InChI=1S/C9H8O4/c1-6(10)13-8-5-3-2-4-7(8)9(11)12/h2-5H,1H3,(H,11,12)"
    )
    assert identity.inchikey(aspirin) == "BSYNRYMUTXBXSQ-UHFFFAOYSA-N"
    assert identity.inchikey_block(aspirin) == "BSYNRYMUTXBXSQ"


@pytest.mark.parametrize(
    ("smiles", "rings", "pieces", "name"),
    [
        ("CCO", "acyclic", "CCO", "hydroxyethyl or ethoxy"),
        ("Cc1ccccc1O", "c1ccccc1", "C.O.c1ccccc1",
         "benzene ring + methyl + hydroxyl, positions open"),
        (CAFFEINE, "O=c1[nH]c(=O)c2[nH]cnc2[nH]1", "C.C.C.O=c1[nH]c(=O)c2[nH]cnc2[nH]1",
         "xanthine + 3 methyl, positions open"),
        ("O=[N+]([O-])c1ccccc1", "c1ccccc1", "O=[NH+][O-].c1ccccc1",
         "benzene ring + nitro, positions open"),
        ("C[N+](C)(C)CC(=O)[O-]", "acyclic", "C[N+](C)(C)CC(=O)[O-]", "C[N+](C)(C)CC(=O)[O-]"),
        ("C[n+]1ccccc1", "c1cc[nH+]cc1", "C.c1cc[nH+]cc1",
         "c1cc[nH+]cc1 + methyl, positions open"),
        ("O=C(Nc1ccccc1)c1ccncc1", "O=C(Nc1ccccc1)c1ccncc1", "NC=O.c1ccccc1.c1ccncc1",
         "benzene ring + pyridine ring + carboxamide, positions open"),
    ],
)  # fmt: skip
def test_scaffolds_and_pieces_and_their_names(smiles, rings, pieces, name):
    mol = parse_smiles(smiles)

    assert (scaffold(mol), family(mol), identity.family_name(pieces)) == (rings, pieces, name)


def test_every_piece_with_a_name_is_written_as_pieces_are():
    assert [canonical_smiles(parse_smiles(piece)) for piece in identity._NAMES] == [
        *identity._NAMES
    ]


MOLECULES = (
    *("Cc1ccccc1O", CAFFEINE, "OCC1OC(Oc2ccccc2)C(O)C(O)C1O", "C[n+]1ccccc1", "CCO", "CC(C)N"),
    *("CC(C)(C)c1nc2ccccc2n1C", "O=S(=O)(Nc1ccccc1)c1cccs1", "CCOP(=S)(OCC)Oc1ccccc1"),
    *("CCOC(C)=O", "CCCOC(C)=O", "CCCCOC(=O)c1ccccc1", "COC(=O)c1ccncc1", "CS(=O)(=O)N(C)C"),
)


@given(st.sampled_from(MOLECULES), st.randoms(use_true_random=False))
def test_the_order_of_atoms_has_no_say(smiles, random):
    mol = parse_smiles(smiles)
    order = list(range(mol.GetNumAtoms()))
    random.shuffle(order)

    again = Chem.RenumberAtoms(mol, order)

    assert (family(again), scaffold(again)) == (family(mol), scaffold(mol))


def known(*smiles):
    """The table of environments of these, each of which two molecules have."""
    return known_environments([environments(parse_smiles(text)) for text in smiles] * 2)


@pytest.mark.parametrize(
    ("smiles", "seen", "count"),
    [
        ("CCO", ["CCO"], 0),
        # Atoms alone, CH3 and OH beside CH2 are ethanol's. New are each CH2 with both neighbours,
        # and one look at all atoms: whatever sees the same bonds counts once.
        ("CCCO", ["CCO"], 3),
        ("N", ["CCO"], 1),
        ("CCO", [], 6),
    ],
)
def test_environments_that_no_structure_has_are_counted(smiles, seen, count):
    assert unknown_environments(parse_smiles(smiles), known(*seen)) == count


@given(st.lists(st.sampled_from(MOLECULES), min_size=1, unique=True))
def test_no_known_structure_has_an_unknown_environment(smiles):
    table = known(*smiles)

    assert all(unknown_environments(parse_smiles(text), table) == 0 for text in smiles)
    assert table.size & (table.size - 1) == 0
    assert np.unpackbits(table).mean() < 0.55  # about one in twenty at most passes by chance
