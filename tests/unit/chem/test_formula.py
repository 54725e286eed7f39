import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors

from duallgd_cli.chem.elements import ELECTRON_MASS_DA, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import FormulaError, UnsupportedElementError


def counts_of(formula):
    return {s: n for s, n in zip(SYMBOLS, formula.counts, strict=True) if n}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C9H8O4", {"C": 9, "H": 8, "O": 4}),
        ("(CH3)2CO", {"C": 3, "H": 6, "O": 1}),
        ("CH3CH2OH", {"C": 2, "H": 6, "O": 1}),
        ("C₆H₁₂O₆", {"C": 6, "H": 12, "O": 6}),
        (" C2 H6 ", {"C": 2, "H": 6}),
        ("CCl4", {"C": 1, "Cl": 4}),
        ("C2H6Si0", {"C": 2, "H": 6}),
        ("((CH2)2NH)3", {"C": 6, "H": 15, "N": 3}),
    ],
)
def test_parsing_counts_every_element(text, expected):
    formula = Formula.parse(text)

    assert counts_of(formula) == expected
    assert formula.charge == 0


@pytest.mark.parametrize(
    ("text", "charge"),
    [
        ("[C5H14NO]+", 1),
        ("C5H14NO+", 1),
        ("[C4H4O4]2-", -2),
        ("C4H4O4-2", -2),
        ("CH3^2+", 2),
        ("C7H7^+", 1),
    ],
)
def test_a_trailing_charge_is_kept(text, charge):
    assert Formula.parse(text).charge == charge


def test_without_brackets_the_last_digits_belong_to_the_element():
    assert counts_of(Formula.parse("C5H14+"))["H"] == 14


@pytest.mark.parametrize(
    "text", ["", "  ", "c6h6", "C6H6)", "(C6H6", "12", "C--", "hello", "C1e3", "C100000"]
)
def test_a_text_that_is_no_formula_is_refused_with_an_example(text):
    with pytest.raises(FormulaError):
        Formula.parse(text)


def test_a_foreign_element_is_named():
    with pytest.raises(
        UnsupportedElementError, match=r"holds Fe, Na; supported elements are C N O"
    ):
        Formula.parse("C10H10FeNa")


@pytest.mark.parametrize(
    ("text", "printed"),
    [("H2O", "H2O"), ("OH2CCl", "CH2ClO"), ("BrH", "BrH"), ("[C5H14NO]+", "C5H14NO+")],
)
def test_formulas_print_in_hill_order(text, printed):
    assert str(Formula.parse(text)) == printed


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
    ("text", "unsaturation"),
    [("C6H6", 4), ("CH4", 0), ("C5H5N", 4), ("C2H3Cl", 1), ("[C5H14NO]+", 0), ("C6H5O-", 4)],
)
def test_unsaturation_counts_rings_and_double_bonds(text, unsaturation):
    assert Formula.parse(text).unsaturation == unsaturation


@pytest.mark.parametrize(
    ("text", "closed"),
    [("C6H6", True), ("CH3", False), ("CH3+", True), ("NO", False), ("N2", True)],
)
def test_an_odd_number_of_electrons_is_noticed(text, closed):
    assert Formula.parse(text).has_even_electrons is closed


@pytest.mark.parametrize(
    "text",
    [
        "C" + "9" * 5000,
        "C9H8O4" * 1000,
        "(" * 200 + "C9" + ")9999" * 99,
        f"[C9H8O4]{'9' * 400}+",
        "C\uff19H8O4",
    ],
)
def test_absurd_formulas_are_refused_in_a_short_sentence(text):
    with pytest.raises(FormulaError, match="is not a molecular formula") as refused:
        Formula.parse(text)

    assert len(str(refused.value)) < 300
