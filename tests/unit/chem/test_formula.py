import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors

from duallgd_cli.chem.elements import ELECTRON_MASS_DA
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import FormulaError, UnsupportedElementError


@pytest.mark.parametrize(
    ("text", "printed", "charge"),
    [
        ("C9H8O4", "C9H8O4", 0),
        ("H2O", "H2O", 0),
        ("BrH", "BrH", 0),
        ("OH2CCl", "CH2ClO", 0),
        ("(CH3)2CO", "C3H6O", 0),
        ("CH3CH2OH", "C2H6O", 0),
        ("C₆H₁₂O₆", "C6H12O6", 0),
        (" C2 H6 ", "C2H6", 0),
        ("CCl4", "CCl4", 0),
        ("C2H6Si0", "C2H6", 0),
        ("((CH2)2NH)3", "C6H15N3", 0),
        ("[C5H14NO]+", "C5H14NO+", 1),
        ("C5H14NO+", "C5H14NO+", 1),
        ("C5H14+", "C5H14+", 1),  # without brackets the last digits belong to the element
        ("[C4H4O4]2-", "C4H4O4-2", -2),
        ("C4H4O4-2", "C4H4O4-2", -2),
        ("CH3^2+", "CH3+2", 2),
        ("C7H7^+", "C7H7+", 1),
    ],
)
def test_formulas_are_read_however_they_are_written_and_printed_in_hill_order(
    text, printed, charge
):
    formula = Formula.parse(text)

    assert (str(formula), formula.charge) == (printed, charge)


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
    with pytest.raises(
        UnsupportedElementError, match=r"holds Fe, Na; supported elements are C N O"
    ):
        Formula.parse("C10H10FeNa")


@pytest.mark.parametrize(
    "smiles",
    ["CC(=O)Oc1ccccc1C(=O)O", "C[N+](C)(C)CCO", "ClC(Br)I", "C[Si](C)(C)OB(F)P", "[Se]1CC1"],
)
def test_masses_agree_with_rdkit(smiles):
    mol = Chem.MolFromSmiles(smiles)
    formula = Formula.parse(Chem.rdMolDescriptors.CalcMolFormula(mol))

    assert formula.mass == pytest.approx(Descriptors.ExactMolWt(mol), abs=1e-5)
    assert formula.atoms_mass == pytest.approx(formula.mass + formula.charge * ELECTRON_MASS_DA)


@pytest.mark.parametrize(
    ("text", "unsaturation", "closed"),
    [
        ("C6H6", 4, True), ("CH4", 0, True), ("C5H5N", 4, True), ("C2H3Cl", 1, True),
        ("[C5H14NO]+", 0, True), ("C6H5O-", 4, True), ("CH3+", 1, True), ("N2", 2, True),
        ("CH3", 0.5, False), ("NO", 1.5, False),
    ],
)  # fmt: skip
def test_rings_and_double_bonds_are_counted_and_an_odd_number_of_electrons_is_noticed(
    text, unsaturation, closed
):
    formula = Formula.parse(text)

    assert (formula.unsaturation, formula.has_even_electrons) == (unsaturation, closed)
