"""Adducts: the table, the spellings of the field's programs, ion formulas, m/z and inference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

ASPIRIN = Formula.parse("C9H8O4")
CHOLINE = Formula.parse("C5H14NO+")


# In the order that checkpoints rely on. Calculated by hand from isotope masses and the electron's.
TRAINED = (
    ("[M+H]+", ASPIRIN, 181.04954),
    ("[M+Na]+", ASPIRIN, 203.03148),
    ("[M+K]+", ASPIRIN, 219.00542),
    ("[M+NH4]+", ASPIRIN, 198.07608),
    ("[M-H2O+H]+", ASPIRIN, 163.03897),
    ("[M]+", CHOLINE, 104.10699),
    ("[M-H]-", ASPIRIN, 179.03498),
    ("[M+HCOO]-", ASPIRIN, 225.04046),
    ("[M+CH3COO]-", ASPIRIN, 239.05611),
    ("[M+Cl]-", ASPIRIN, 215.01166),
)


def test_the_table_has_the_ten_adducts_with_their_textbook_masses():
    assert [adduct.name for adduct in ADDUCTS] == [name for name, *_ in TRAINED]
    assert [adduct.index for adduct in ADDUCTS] == list(range(10))
    assert [adduct.polarity for adduct in ADDUCTS] == [1] * 6 + [-1] * 4
    for name, molecule, mz in TRAINED:
        assert precursor_mz(molecule, BY_NAME[name]) == pytest.approx(mz, abs=1e-5)


# The neutral masses are C9H8O4 180.042259, C9H11NO2 165.078979; C2H3N 41.026549, H2O 18.010565,
# NH3 17.026549, C2F3O2 112.985039, a proton 1.007276, an electron 0.000549.
@pytest.mark.parametrize(
    ("name", "formula", "mz", "trained"),
    [
        ("[2M+H]+", "C9H8O4", 361.09179, "[M+H]+"), ("[2M+Na]+", "C9H8O4", 383.07374, "[M+Na]+"),
        ("[2M-H]-", "C9H8O4", 359.07724, "[M-H]-"), ("[2M+NH4]+", "C9H8O4", 378.11834, "[M+NH4]+"),
        ("[3M+H]+", "C9H8O4", 541.13405, "[M+H]+"), ("[M+2H]2+", "C9H8O4", 91.02841, "[M+H]+"),
        ("[M+3H]3+", "C9H8O4", 61.02136, "[M+H]+"), ("[M-2H]2-", "C9H8O4", 89.01385, "[M-H]-"),
        ("[M+H+Na]2+", "C9H8O4", 102.01938, "[M+Na]+"),
        ("[M+ACN+H]+", "C9H8O4", 222.07608, "[M+H]+"),
        ("[M+ACN+Na]+", "C9H8O4", 244.05803, "[M+Na]+"),
        ("[M-2H2O+H]+", "C9H8O4", 145.02841, "[M-H2O+H]+"),
        ("[M-NH3+H]+", "C9H11NO2", 149.05971, "[M+H]+"),
        ("[M-H2O-H]-", "C9H8O4", 161.02442, "[M-H]-"), ("[M+Br]-", "C9H8O4", 258.96115, "[M+Cl]-"),
        ("[M+Li]+", "C9H8O4", 187.05771, "[M+Na]+"),
        ("[M+CF3COO]-", "C9H8O4", 293.02785, "[M+CH3COO]-"),
        ("[M+K-2H]-", "C9H8O4", 216.99086, "[M-H]-"),
        ("[M+2Na-H]+", "C9H8O4", 225.01342, "[M+Na]+"),
        ("[2M+Ca-H]+", "C9H8O4", 399.03874, "[M+Na]+"),
    ],
)  # fmt: skip
def test_other_adducts_are_read_by_rule(name, formula, mz, trained):
    adduct, molecule = parse_adduct(name), Formula.parse(formula)

    assert precursor_mz(molecule, adduct) == pytest.approx(mz, abs=2e-5)
    assert adduct.neutral_mass(mz) == pytest.approx(molecule.mass, abs=6e-5)
    assert (adduct.name, adduct.trained.name) == (name, trained)
    assert f"take it for {trained}" in adduct.note
    assert fits(molecule, adduct)


# Spellings between bars: of mzmine, MS-DIAL, SIRIUS, GNPS, Compound Discoverer, CAMERA, mummichog,
# Skyline, HMDB and others.
MEANT = {
    "[M+H]+": (
        "[M+H]+ | [M + H]+ | M+H | [M+H] | M+H+ | MH+ | [MH]+ | [M+H]1+ | [M+H]+1 | "
        "[M+H]+ 194.08 | M+H[1+] | M+H[+] | (M+H)+ | {M+H}+ | [M+H]^+ | [M+H]^{+} | [m+h]+ | "
        "m+h | [M+h]+ | [1M+H]+ | 1M+H ]1+ | M+H]+ | [M+H | [M+H+] | [M+H+]+ | [M+(H)]+ | "
        "[M+(H+)]+ | [M+H]\u207a | \uff3bM+H\uff3d\uff0b | H+ | +H | H | [H]+ | "
        "[M+H]+;[M+H]+ | [M+1H]+ | [M+H1]+ | M-H+2H | '[M+H]+' | \"[M+H]+\" | [M+H]+; | "
        " [M+H]+  | [M-H+2H]+"
    ),
    "[M+Na]+": (
        "M+Na | [m+na]+ | [M+NA]+ | [M+na]+ | Na | Na+ | +Na | MNa+ | [MNa]+ | M+Na[1+] | "
        "[M+Na]+1 | [M+23Na]+ | [Na]+ | [M+Na]1+ | [M-H+Na+H]+"
    ),
    "[M+K]+": "M+K | [m+k]+ | K+ | K | MK+ | [M+39K]+ | [M + K]+",
    "[M+NH4]+": (
        "M+NH4 | [m+nh4]+ | [M+Nh4]+ | MNH4+ | (+NH4)+ | [+NH4]+ | NH4+ | [M+ammonium]+ | "
        "[M+NH3+H]+ | M +NH4 | [M+H+NH3]+"
    ),
    "[M-H2O+H]+": (
        "[M+H-H2O]+ | M+H-H2O | [M+H-H2O] | [M+H]+[-H2O] | [M+H]+-H2O | [M-H2O+H]1+ | "
        "[m-h2o+h]+ | [M+H-H20]+ | M-H20+H | [M-OH]+ | [M+H-(H2O)]+ | M-H2O+H[1+] | "
        "[M+H-water]+ | [M - H2O + H]+"
    ),
    "[M]+": (
        "M+ | [M]1+ | [M]+1 | [M+] | M[1+] | M[+] | [Cat]+ | Cat+ | [CAT]+ | [C]+ | [m]+ | "
        "[M] + | (M)+"
    ),
    "[M-H]-": (
        "M-H | [M-H] | M-H- | [M-H]1- | [M-H]-1 | M-H[-] | M-H[1-] | [m-h]- | (M-H)- | "
        "[M\u2212H]\u2212 | [M\u2013H]\u2013 | [M-H]\u207b | M-H)- | M-H]-1 | -H | [M-H-] | "
        "[M-(H)]- | [M-H1]- | [M - H]- | [M\u2013H]-"
    ),
    "[M+HCOO]-": (
        "[M+FA-H]- | M+FA-H | [M-H+FA]- | [M+HCOOH-H]- | [M+CHO2]- | [M+CH2O2-H]- | "
        "[M+FA]- | [m+hcoo]- | [M+formate]- | [M+Formate]- | [M+formic acid-H]- | HCOO- | "
        "[M+Hcoo]- | [M+HFA-H]- | M+FA | [M-H+HCOOH]- | [M + CH2O2 - H]-"
    ),
    "[M+CH3COO]-": (
        "[M+HAc-H]- | [M+Hac-H] | M+Hac-H | [M+OAc]- | [M+Oac]- | [M+AcO]- | [M+Ac]- | "
        "[M+acetate]- | [M+C2H3O2]- | [M+AcOH-H]- | [M+acetic acid-H]- | CH3COO- | "
        "[M+HAc]- | [m+ch3coo]- | [M+CH3COOH-H]- | [M-H+CH3COOH]- | [M + C2H4O2 - H]- | "
        "M+CH3COO"
    ),
    "[M+Cl]-": (
        "M+Cl | [m+cl]- | [M+CL]- | [M+35Cl]- | [M+Cl35]- | Cl- | MCl- | [M+HCl-H]- | "
        "M+Cl[-] | [M+Cl]1-"
    ),
    "[2M+H]+": "2M+H | [2m+h]+ | [2M+H]+1 | 2M+H+ | [2M+H]1+ | (2M+H)+",
    "[2M+Na]+": "2M+Na | [2M+NA]+",
    "[2M-H]-": "2M-H | [2m-h]-",
    "[M+2H]2+": (
        "M+2H | [M+2H]++ | [M+2H]+2 | [M+2H]\xb2\u207a | M+2H[2+] | [MH2]2+ | M+2H++ | "
        "[M+H+H]2+ | [M+(2H)]2+"
    ),
    "[M-2H]2-": "M-2H | [M-2H]-- | [M-2H]-2 | M-2H[2-]",
    "[M+H+Na]2+": "[M+Na+H]2+ | M+H+Na | [M+H+Na]+2 | [m+h+na]2+",
    "[M+10H]10+": "[M+10H]+10",
    "[M+ACN+H]+": (
        "M+ACN+H | [M+CH3CN+H]+ | [M+C2H3N+H]+ | [M+MeCN+H]+ | [M+acetonitrile+H]+ | "
        "[M+H+C2H3N]+ | M + acn + H"
    ),
    "[M+C3H8O+H]+": "[M+IsoProp+H]+ | M+IsoProp+H | [M+iPrOH+H]+",
    "[M+C2H6OS+H]+": "[M+DMSO+H]+ | M+DMSO+H",
    "[M+CF3COO]-": ("[M+TFA]- | [M+CF3CO2]- | CF3COO- | [M+C2F3O2]-"),
    "[M+TFA-H]-": "[m+tfa-h]-",
    "[M+Br]-": "M+Br | [M+BR]- | [M+79Br]- | Br-",
    "[M+Li]+": "M+Li | [M+7Li]+ | [M+LI]+ | Li+",
    "[M+Mg-H]+": "[M-H+Mg]+ | [M+MG-H]+",
    "[3M+Ca-H]+": "[3M-H+Ca]+",
    "[M-2H2O+H]+": (
        "[M+H-2H2O]+ | [M-2(H2O)+H]+ | [M+H-2H20]+ | [M+H]+[-2H2O] | M+H-2H2O | [M+H-H2O-H2O]+"
    ),
    "[M+2H2O+H]+": "[M+(H2O)2+H]+ | [M+2(H2O)+H]+",
    "[M+K-2H]-": "M-2H+K | [M-2H+K]-",
    "[M+C2H3NaO2-H]-": "[M+CH3COONa-H]- | [M+NaOOCCH3-H]-",
    "[M-NH3+H]+": "[M+H-NH3]+ | [M-H3N+H]+",
    "[M+CH4O+H]+": "[M+MeOH+H]+ | M+CH3OH+H",
    "[2M+CH2O2-H]-": "2M+FA-H",
}
REFUSED = {
    "a radical ion is not supported": (
        "[M]+. | [M]+* | [M]+\u2022 | [M\u2022]+ | [M+.] | [M+.]+ | M+. | M\xb7+ | M.+ | "
        "[M]- | M- | [M]-. | [M-H]-. | [M+H]+* | [M]\u02d9+ | [M]\u25cf+ | M-e | [M-e]+"
    ),
    "it holds the isotope": (
        "[M+Cl37]- | [M+37Cl]- | [M+13C+H]+ | [M+C13+H]+ | [M+81Br]- | [M+6Li]+ | "
        "M(C13)+H[1+] | [M+15N+H]+ | [M+34S+H]+ | [m+37cl]- | [M+41K]+ | M(Cl37)+H[1+] | "
        "[M+H]+ 13C"
    ),
    "name one of them": (
        "[M-H]-/[M-Ser]- | [M-H-/M-Ser]- | [M+H]+, [M+Na]+ | M+H, M+Na | [M+H]+;[M+Na]+ | "
        "[M+H]+|[M+Na]+ | [M+H]+ or [M+Na]+ | [M+H]+ [M+Na]+ | [M+H]+[M+Na]+ | "
        "M+H and M+Na | [M+H]+ 194.08 [M+Na]+ 172.098 | [M+H]+ & [M+Na]+"
    ),
    "neither what M gains nor what it loses": ("M | [M] | [2M]+ | [M]2+ | M+1 | M-1 | 2M-2"),
    "it holds": "[M+Fe-H]+ | [M+D]+ | [M+Xx]+ | [M+X]+ | [M+Al-2H]+",
    "give charge": (
        "[M+H]- | [M-H]+ | [M+H]2+ | [M+2H]+ | [M+ACN]+ | [M+CS]+ | [M+IsoProp+Na+H]+ | "
        "MH- | H- | [M+H2O] | [M+Na]- | [M+Cl]+"
    ),
    "write it like": (
        "? | ESI | positive | 1+ | rubbish | [A-H]- | ISF | [M+H]+_1 | NA | na | CI | "
        "[M+H]+ isotope | 1.00728 | M+H]+] | [M+H][M-H] | [M++H]+x"
    ),
    "no formula and no known name": "[M+?]+ | [M+cs]+ | [M++H]+ | [M+si]+ | [M+999H]+",
    "M holds no metal": "[M-Na]-",
    "more than 99 atoms": "[M+99C99H]+",
}


@pytest.mark.parametrize(
    ("text", "name"),
    [(text, name) for name, texts in MEANT.items() for text in (name, *texts.split(" | "))],
)
def test_a_spelling_means_an_adduct(text, name):
    adduct = parse_adduct(text)

    assert adduct.name == name
    assert adduct == BY_NAME.get(name, adduct)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, reason) for reason, texts in REFUSED.items() for text in texts.split(" | ")),
        *((text, "write it like") for text in ("", "M" * 400)),
        ("[M+H]2+", "give charge +1, not +2"),
        ("[M+H2O]", "which is no ion"),
    ],
)
def test_a_spelling_is_refused_in_a_sentence(text, reason):
    failure = parse_adduct(text)

    assert failure.status == "unsupported_adduct"
    assert failure.message.startswith(("adduct 'MMM", f"adduct {text!r} is not supported: "))
    assert reason in failure.message


@given(st.sampled_from(ADDUCTS), st.data())
def test_upper_and_lower_case_never_change_an_adduct(adduct, data):
    text = "".join(data.draw(st.sampled_from([c.lower(), c.upper()])) for c in adduct.name)

    assert parse_adduct(text) == adduct


@pytest.mark.parametrize(
    ("molecule", "adduct", "ion"),
    [
        (ASPIRIN, "[M+H]+", "C9H9O4+"), (ASPIRIN, "[M+Na]+", "C9H8O4"),
        (ASPIRIN, "[M-H2O+H]+", "C9H7O3+"), (ASPIRIN, "[M+HCOO]-", "C10H9O6-"),
        (CHOLINE, "[M]+", "C5H14NO+"),
    ],
)  # fmt: skip
def test_the_parent_ion_has_the_atoms_of_molecule_and_adduct_without_the_metal(
    molecule, adduct, ion
):
    assert str(parent_formula(molecule, BY_NAME[adduct])) == ion


def test_a_multimer_lacks_what_all_its_molecules_lack():
    water = Formula.parse("C6H6O")

    assert fits(water, parse_adduct("[2M-2H2O+H]+"))
    assert not fits(water, parse_adduct("[M-2H2O+H]+"))
    assert str(parent_formula(water, parse_adduct("[2M+Na]+"))) == "C12H12O2"


def test_fragments_keep_metals_charges_and_whole_molecules():
    def kept(text):
        carriers = parse_adduct(text).carriers
        return [(one.molecules, one.metals, one.charge, one.protons) for one in carriers]

    assert kept("[M+H]+") == [(0, "", 1, 1)]
    assert kept("[M+Na]+") == [(0, "", 1, 1), (0, "Na", 1, 0)]
    assert kept("[2M-H]-") == [(0, "", -1, -1), (1, "", -1, -1)]
    assert kept("[M+2H]2+") == [(0, "", 1, 1), (0, "", 2, 2)]
    assert kept("[M+H+Na]2+") == [(0, "", 1, 1), (0, "Na", 1, 0), (0, "Na", 2, 1)]
    assert kept("[M+2Na-H]+") == [(0, "", 1, 1), (0, "Na", 1, 0), (0, "Na2", 1, -1)]
    assert kept("[M+K-2H]-") == [(0, "", -1, -1), (0, "K", -1, -2)]


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
