"""Elements, and formulas as they are written."""

import itertools

import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors

from duallgd_cli.chem import elements
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import FormulaError, UnsupportedElementError


def test_elements_have_the_number_and_mass_of_their_most_common_isotope_and_valences_by_twos():
    table, order = Chem.GetPeriodicTable(), elements.SYMBOLS
    masses = dict(zip(order, elements.MASSES_DA, strict=True))
    masses |= {metal: mass for metal, (mass, _) in elements.METALS.items()}

    assert list(elements.ATOMIC_NUMBERS) == list(map(table.GetAtomicNumber, order))
    assert masses == pytest.approx({s: table.GetMostCommonIsotopeMass(s) for s in masses}, abs=1e-5)
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


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "c6h6", "C6H6)", "(C6H6", "12", "C--", "hello", "C1e3", "C100000"),
        "C" + "9" * 5000, "C9H8O4" * 1000, "(" * 200 + "C9" + ")9999" * 99, f"[C9H8O4]{'9' * 400}+",
        "C\uff19H8O4",
    ],
)  # fmt: skip
def test_a_text_that_is_no_formula_is_refused_in_a_short_sentence(text):
    with pytest.raises(FormulaError, match="is not a molecular formula; write it like") as refused:
        Formula.parse(text)

    assert len(str(refused.value)) < 300


def test_a_foreign_element_is_named():
    with pytest.raises(UnsupportedElementError, match="holds Fe, Na; supported elements are C N O"):
        Formula.parse("C10H10FeNa")


@pytest.mark.parametrize(
    "smiles",
    ["CC(=O)Oc1ccccc1C(=O)O", "C[N+](C)(C)CCO", "ClC(Br)I", "C[Si](C)(C)OB(F)P", "[Se]1CC1"],
)
def test_masses_agree_with_rdkit(smiles):
    mol = Chem.MolFromSmiles(smiles)
    formula = Formula.parse(Chem.rdMolDescriptors.CalcMolFormula(mol))

    assert formula.mass == pytest.approx(Descriptors.ExactMolWt(mol), abs=1e-5)
    assert formula.atoms_mass == formula.mass + formula.charge * elements.ELECTRON_MASS_DA


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
