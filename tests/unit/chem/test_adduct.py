"""Adducts: the table, the spellings of the tools, ion formulas, m/z and inference."""

import pytest

from duallgd_cli.chem.adduct import (
    ADDUCTS,
    BY_NAME,
    fits,
    infer_adduct,
    parent_formula,
    parse_adduct,
    precursor_mz,
)
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import FormulaError

ASPIRIN = Formula.parse("C9H8O4")
CHOLINE = Formula.parse("C5H14NO+")


def test_the_table_has_the_ten_adducts_in_the_order_that_checkpoints_rely_on():
    assert [adduct.name for adduct in ADDUCTS] == [
        "[M+H]+",
        "[M+Na]+",
        "[M+K]+",
        "[M+NH4]+",
        "[M-H2O+H]+",
        "[M]+",
        "[M-H]-",
        "[M+HCOO]-",
        "[M+CH3COO]-",
        "[M+Cl]-",
    ]
    assert [adduct.index for adduct in ADDUCTS] == list(range(10))
    assert [adduct.polarity for adduct in ADDUCTS] == [1] * 6 + [-1] * 4


# Calculated by hand from isotope masses and the electron's.
@pytest.mark.parametrize(
    ("name", "mz"),
    [
        ("[M+H]+", 181.04954),
        ("[M+Na]+", 203.03148),
        ("[M+K]+", 219.00542),
        ("[M+NH4]+", 198.07608),
        ("[M-H2O+H]+", 163.03897),
        ("[M-H]-", 179.03498),
        ("[M+HCOO]-", 225.04046),
        ("[M+CH3COO]-", 239.05611),
        ("[M+Cl]-", 215.01166),
    ],
)
def test_the_precursor_of_aspirin_has_the_textbook_mass(name, mz):
    assert precursor_mz(ASPIRIN, BY_NAME[name]) == pytest.approx(mz, abs=2e-5)


def test_a_permanent_cation_lacks_one_electron():
    assert precursor_mz(CHOLINE, BY_NAME["[M]+"]) == pytest.approx(104.10699, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("[M+H]+", ["M+H", "[M+H]", "[M+H]1+", "[M+H]+1", "[M + H]+", "(M+H)+", "M+H+", "MH+"]),
        ("[M+H]+", ["[M+H]⁺", " [M+H]+ ", "{M+H}+", "[M-H+2H]+"]),
        ("[M+Na]+", ["M+Na", "[M+Na]1+", "[M-H+Na+H]+"]),
        ("[M+K]+", ["M+K", "[M + K]+"]),
        ("[M+NH4]+", ["M+NH4", "[M+NH3+H]+", "[M+H+NH3]+"]),
        ("[M-H2O+H]+", ["[M+H-H2O]+", "[M - H2O + H]+", "M+H-H2O", "[M-OH]+"]),
        ("[M]+", ["M+", "[M]1+", "[M] +"]),
        ("[M-H]-", ["M-H", "[M-H]1-", "[M\u2212H]\u2212", "[M\u2013H]-", "M-H-", "[M-H1]-"]),
        ("[M+HCOO]-", ["[M+FA-H]-", "[M-H+FA]-", "[M+HCOOH-H]-", "[M-H+HCOOH]-", "[M+CHO2]-"]),
        ("[M+HCOO]-", ["[M + CH2O2 - H]-", "M+FA-H", "[M+formate]-"]),
        ("[M+CH3COO]-", ["M+Hac-H", "[M+HAc-H]-", "[M+OAc]-", "[M+C2H3O2]-", "[M-H+CH3COOH]-"]),
        ("[M+CH3COO]-", ["[M+Oac]-", "[M + C2H4O2 - H]-", "M+CH3COO", "[M+acetate]-"]),
        ("[M+Cl]-", ["M+Cl", "[M+HCl-H]-", "[M+Cl]1-"]),
    ],
)
def test_every_common_spelling_means_its_adduct(name, spellings):
    assert [parse_adduct(text) for text in [name, *spellings]] == [BY_NAME[name]] * (
        len(spellings) + 1
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "M", "[M]", "H", "1+", "positive", "[M+?]+"),
        *("[M+2H]2+", "[M+H]2+", "[2M+H]+", "[M+H]-", "[M-H]+", "[M]-", "M-"),
        *("[M]+.", "[M+.]+", "[M]+*"),
        *("[M-2H+Na]-", "[M+2Na-H]+", "[M+ACN+H]+", "[M+Li]+", "[M+Xx]+"),
        *("M+H]+]", "[M++H]+", "[M+H][M-H]"),
    ],
)
def test_anything_else_is_no_supported_adduct(text):
    assert parse_adduct(text) is None


def test_a_lost_bracket_hides_nothing():
    assert parse_adduct("[M+H") == BY_NAME["[M+H]+"]


def test_the_parent_ion_has_the_atoms_of_molecule_and_adduct_without_the_metal():
    assert str(parent_formula(ASPIRIN, BY_NAME["[M+H]+"])) == "C9H9O4+"
    assert str(parent_formula(ASPIRIN, BY_NAME["[M+Na]+"])) == "C9H8O4"
    assert str(parent_formula(ASPIRIN, BY_NAME["[M-H2O+H]+"])) == "C9H7O3+"
    assert str(parent_formula(ASPIRIN, BY_NAME["[M+HCOO]-"])) == "C10H9O6-"
    assert parent_formula(CHOLINE, BY_NAME["[M]+"]) == CHOLINE


def test_an_adduct_cannot_take_what_is_not_there():
    with pytest.raises(FormulaError, match=r"\[M-H2O\+H\]\+ takes away O, of which C6H6"):
        parent_formula(Formula.parse("C6H6"), BY_NAME["[M-H2O+H]+"])


def test_the_adduct_follows_from_formula_and_precursor():
    def names(mz, polarity=0):
        return [adduct.name for adduct in infer_adduct(ASPIRIN, mz, polarity, 10)]

    assert names(181.0495) == ["[M+H]+"]
    assert names(203.0315) == ["[M+Na]+"]
    assert names(179.0350) == ["[M-H]-"]
    assert names(181.0495, polarity=-1) == []
    assert names(180.0417) == []  # the radical cation
    assert names(300.0) == []


def test_a_cation_written_without_its_charge_is_recognised_by_its_electrons():
    choline = Formula.parse("C5H14NO")

    assert infer_adduct(choline, 104.1070, 0, 10) == [BY_NAME["[M]+"]]
    assert fits(choline, BY_NAME["[M]+"])
    assert not fits(choline, BY_NAME["[M+H]+"])
    assert not fits(ASPIRIN, BY_NAME["[M]+"])
    assert not fits(CHOLINE, BY_NAME["[M+H]+"])
