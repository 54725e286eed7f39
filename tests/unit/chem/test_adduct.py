"""Adducts: the table, the spellings of the field's programs, ion formulas, m/z and inference."""

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

# Of aspirin, C9H8O4 180.042259 Da, and choline, C5H14NO+, by hand from isotope masses and the
# electron's. The trained ones first, in the order that checkpoints rely on; what each other one is
# taken for.
MZ = """
[M+H]+ 181.04954, [M+Na]+ 203.03148, [M+K]+ 219.00542, [M+NH4]+ 198.07608, [M-H2O+H]+ 163.03897,
[M]+ 104.10699, [M-H]- 179.03498, [M+HCOO]- 225.04046, [M+CH3COO]- 239.05611, [M+Cl]- 215.01166,
[2M+H]+ 361.09179 [M+H]+, [2M+Na]+ 383.07374 [M+Na]+, [2M-H]- 359.07724 [M-H]-,
[2M+NH4]+ 378.11834 [M+NH4]+, [3M+H]+ 541.13405 [M+H]+, [M+2H]2+ 91.02841 [M+H]+,
[M+3H]3+ 61.02136 [M+H]+, [M-2H]2- 89.01385 [M-H]-, [M+H+Na]2+ 102.01938 [M+Na]+,
[M+ACN+H]+ 222.07608 [M+H]+, [M+ACN+Na]+ 244.05803 [M+Na]+, [M-2H2O+H]+ 145.02841 [M-H2O+H]+,
[M-NH3+H]+ 164.02299 [M+H]+, [M-H2O-H]- 161.02442 [M-H]-, [M+Br]- 258.96115 [M+Cl]-,
[M+Li]+ 187.05771 [M+Na]+, [M+CF3COO]- 293.02785 [M+CH3COO]-, [M+K-2H]- 216.99086 [M-H]-,
[M+2Na-H]+ 225.01342 [M+Na]+, [2M+Ca-H]+ 399.03874 [M+Na]+
"""
ROWS = [(*row.split(), row.split()[0])[:3] for row in MZ.split(",")]


@pytest.mark.parametrize(("name", "mz", "trained"), ROWS)
def test_an_adduct_has_its_textbook_mass_and_a_trained_one_that_it_is_taken_for(name, mz, trained):
    molecule = Formula.parse("C5H14NO+" if name == "[M]+" else "C9H8O4")
    adduct = parse_adduct(name)

    assert (adduct.name, adduct.trained.name) == (name, trained)
    assert precursor_mz(molecule, adduct) == pytest.approx(float(mz), abs=2e-5)
    assert adduct.neutral_mass(float(mz)) == pytest.approx(molecule.atoms_mass, abs=6e-5)
    assert fits(molecule, adduct) == (name != "[M-NH3+H]+")
    assert bool(adduct.note) == (f"take it for {trained}" in adduct.note) == (name != trained)


def test_rows_and_polarities_of_trained_adducts_never_change():
    assert [(a.name, a.index, a.polarity) for a in ADDUCTS] == [
        (name, row, 1 if row < 6 else -1) for row, (name, *_) in enumerate(ROWS[:10])
    ]


# How programs write any adduct: its groups, the size and the sign of its charge.
STYLES = (
    *("{t}", "[{t}", "[{t}]", "[{t}]{s}{n}", "[{t}]{n}{s}", "{t}]{n}{s}", "{t}[{n}{s}]"),
    *("({t}){n}{s}", "{{{t}}}{n}{s}", "[{t}]^{n}{s}", "[{t}]^{{{n}{s}}}", "'[{t}]{n}{s}'"),
    *('"[{t}]{n}{s}"', "[{t}]{n}{s};", " [{t}]{n}{s} ", "[{t}]{n}{s} 194.08"),
)
OF_ONE_CHARGE = ("{t}{s}", "[{t}{s}]", "[{t}{s}]{s}", "[1{t}]{s}")
STYLED = (
    *(a.name for a in ADDUCTS if a.name != "[M]+"),
    *("[2M+H]+", "[M+2H]2+", "[M-2H]2-", "[M+H+Na]2+", "[M+ACN+H]+", "[M-2H2O+H]+"),
)
TYPOGRAPHY = str.maketrans("[]+-2", "\uff3b\uff3d\uff0b\u2212\xb2")


@pytest.mark.parametrize("name", STYLED)
def test_an_adduct_is_understood_in_any_style(name):
    terms, charge = name[1:].split("]")
    size, sign = charge[:-1] or "1", charge[-1]
    styles = STYLES if size != "1" or "2M" in name else (*STYLES, *OF_ONE_CHARGE)
    sizes = (size, "") if size == "1" else (size,)
    texts = [style.format(t=terms, n=number, s=sign) for style in styles for number in sizes]
    texts += [f"[{terms}]{sign * int(size)}", name.translate(TYPOGRAPHY)]
    texts += [name.replace("-", dash) for dash in "\u2013\u207b"]

    adduct = parse_adduct(name)
    assert {text: parse_adduct(text) for text in texts} == dict.fromkeys(texts, adduct)
    assert (adduct.name, adduct) == (name, BY_NAME.get(name, adduct))


# Spellings between bars: of mzmine, MS-DIAL, SIRIUS, GNPS, Compound Discoverer, CAMERA, mummichog,
# Skyline, HMDB and others.
MEANT = {
    "[M+H]+": (
        "MH+ | [MH]+ | M+H[+] | [M+(H)]+ | [M+(H+)]+ | H+ | +H | H | [H]+ | [M+H]+;[M+H]+ | "
        "[M+1H]+ | [M+H1]+ | M-H+2H | [M-H+2H]+ | [M+h]+ | 1M+H ]1+"
    ),
    "[M+Na]+": (
        "Na | Na+ | +Na | MNa+ | [MNa]+ | [M+23Na]+ | [Na]+ | [M-H+Na+H]+ | [M+NA]+ | [M+na]+"
    ),
    "[M+K]+": "K+ | K | MK+ | [M+39K]+",
    "[M+NH4]+": (
        "MNH4+ | (+NH4)+ | [+NH4]+ | NH4+ | [M+ammonium]+ | [M+NH3+H]+ | M +NH4 | [M+H+NH3]+ | "
        "[M+Nh4]+"
    ),
    "[M-H2O+H]+": (
        "[M+H-H2O]+ | [M+H]+[-H2O] | [M+H]+-H2O | [M+H-H20]+ | [M-OH]+ | [M+H-(H2O)]+ | "
        "[M+H-water]+ | M-H20+H"
    ),
    "[M]+": (
        "M+ | [M]1+ | [M]+1 | [M+] | M[1+] | M[+] | [Cat]+ | Cat+ | [CAT]+ | [C]+ | (M)+ | [m]+ | "
        "[M] +"
    ),
    "[M-H]-": "M-H[-] | -H | [M-(H)]- | [M-H1]- | M-H)- | M-H]-1",
    "[M+HCOO]-": (
        "[M+FA-H]- | [M-H+FA]- | [M+HCOOH-H]- | [M+CHO2]- | [M+CH2O2-H]- | [M+FA]- | "
        "[M+formate]- | [M+formic acid-H]- | HCOO- | [M+HFA-H]- | M+FA | [M-H+HCOOH]- | "
        "[M+Formate]- | [M+Hcoo]-"
    ),
    "[M+CH3COO]-": (
        "[M+HAc-H]- | [M+Hac-H] | [M+OAc]- | [M+AcO]- | [M+Ac]- | [M+acetate]- | [M+C2H3O2]- | "
        "[M+AcOH-H]- | [M+acetic acid-H]- | CH3COO- | [M+HAc]- | [M+CH3COOH-H]- | [M+C2H4O2-H]- | "
        "[M+Oac]- | [M-H+CH3COOH]-"
    ),
    "[M+Cl]-": "[M+CL]- | [M+35Cl]- | [M+Cl35]- | Cl- | MCl- | [M+HCl-H]- | M+Cl[-]",
    "[M+2H]2+": "[M+2H]\xb2\u207a | [MH2]2+ | M+2H++ | [M+H+H]2+ | [M+(2H)]2+",
    "[M+10H]10+": "[M+10H]+10",
    "[M+H+Na]2+": "[M+Na+H]2+ | [m+h+na]2+",
    "[M+ACN+H]+": (
        "[M+CH3CN+H]+ | [M+C2H3N+H]+ | [M+MeCN+H]+ | [M+acetonitrile+H]+ | [M+H+C2H3N]+"
    ),
    "[M+C3H8O+H]+": "[M+IsoProp+H]+ | [M+iPrOH+H]+",
    "[M+C2H6OS+H]+": "[M+DMSO+H]+",
    "[M+CF3COO]-": "[M+TFA]- | [M+CF3CO2]- | CF3COO- | [M+C2F3O2]-",
    "[M+TFA-H]-": "[m+tfa-h]-",
    "[M+Br]-": "[M+BR]- | [M+79Br]- | Br-",
    "[M+Li]+": "[M+7Li]+ | [M+LI]+ | Li+",
    "[M+Mg-H]+": "[M-H+Mg]+ | [M+MG-H]+",
    "[3M+Ca-H]+": "[3M-H+Ca]+",
    "[M-2H2O+H]+": ("[M+H-2H2O]+ | [M-2(H2O)+H]+ | [M+H-2H20]+ | [M+H]+[-2H2O] | [M+H-H2O-H2O]+"),
    "[M+2H2O+H]+": "[M+(H2O)2+H]+ | [M+2(H2O)+H]+",
    "[M+K-2H]-": "M-2H+K | [M-2H+K]-",
    "[M+C2H3NaO2-H]-": "[M+CH3COONa-H]- | [M+NaOOCCH3-H]-",
    "[M-NH3+H]+": "[M+H-NH3]+ | [M-H3N+H]+",
    "[M+CH4O+H]+": "[M+MeOH+H]+ | M+CH3OH+H",
    "[2M+CH2O2-H]-": "2M+FA-H",
}
REFUSED = {
    "a radical ion is not supported": (
        "[M]+. | [M]+* | [M]+\u2022 | [M\u2022]+ | [M+.] | [M+.]+ | M+. | M\xb7+ | M.+ | [M]- | "
        "M- | [M]-. | [M-H]-. | [M+H]+* | [M]\u02d9+ | [M]\u25cf+ | M-e | [M-e]+"
    ),
    "it holds the isotope": (
        "[M+Cl37]- | [M+37Cl]- | [M+13C+H]+ | [M+C13+H]+ | [M+81Br]- | [M+6Li]+ | M(C13)+H[1+] | "
        "[M+15N+H]+ | [M+34S+H]+ | [m+37cl]- | [M+41K]+ | M(Cl37)+H[1+] | [M+H]+ 13C"
    ),
    "name one of them": (
        "[M-H]-/[M-Ser]- | [M-H-/M-Ser]- | [M+H]+, [M+Na]+ | M+H, M+Na | [M+H]+;[M+Na]+ | "
        "[M+H]+|[M+Na]+ | [M+H]+ or [M+Na]+ | [M+H]+ [M+Na]+ | [M+H]+[M+Na]+ | M+H and M+Na | "
        "[M+H]+ 194.08 [M+Na]+ 172.098 | [M+H]+ & [M+Na]+"
    ),
    "neither what M gains nor what it loses": "M | [M] | [2M]+ | [M]2+ | M+1 | M-1 | 2M-2",
    "it holds": "[M+Fe-H]+ | [M+D]+ | [M+Xx]+ | [M+X]+ | [M+Al-2H]+",
    "give charge": (
        "[M+H]- | [M-H]+ | [M+2H]+ | [M+ACN]+ | [M+CS]+ | [M+IsoProp+Na+H]+ | MH- | H- | [M+Na]- | "
        "[M+Cl]+"
    ),
    "give charge +1, not +2": "[M+H]2+",
    "which is no ion": "[M+H2O]",
    "write it like": (
        "? | ESI | positive | 1+ | rubbish | [A-H]- | ISF | [M+H]+_1 | NA | na | CI | "
        f"[M+H]+ isotope | 1.00728 | M+H]+] | [M+H][M-H] | [M++H]+x |  | {'M' * 400}"
    ),
    "no formula and no known name": "[M+?]+ | [M+cs]+ | [M++H]+ | [M+si]+ | [M+999H]+",
    "M holds no metal": "[M-Na]-",
    "more than 99 atoms": "[M+99C99H]+",
}


@pytest.mark.parametrize("name", MEANT)
def test_spellings_mean_an_adduct(name):
    texts = (name, *MEANT[name].split(" | "))

    adduct = parse_adduct(name)
    assert adduct.name == name
    assert {text: parse_adduct(text) for text in texts} == dict.fromkeys(texts, adduct)
    assert {parse_adduct(text).name for text in texts} == {name}


@pytest.mark.parametrize(
    ("text", "reason"),
    [(text, reason) for reason, texts in REFUSED.items() for text in texts.split(" | ")],
)
def test_a_spelling_is_refused_in_a_sentence(text, reason):
    failure = parse_adduct(text)

    assert failure.status == "unsupported_adduct"
    assert failure.message.startswith(("adduct 'MMM", f"adduct {text!r} is not supported: "))
    assert reason in failure.message


@pytest.mark.parametrize(
    ("formula", "ions"),
    [
        ("C9H8O4", "[M+H]+ C9H9O4+, [M+Na]+ C9H8O4, [M-H2O+H]+ C9H7O3+, [M+HCOO]- C10H9O6-, [M]+"),
        ("C5H14NO+", "[M]+ C5H14NO+, [M+H]+"),
        ("C5H14NO", "[M]+ C5H14NO+, [M+H]+"),  # a cation written without its charge
        # A multimer lacks what all its molecules lack.
        ("C6H6O", "[2M-2H2O+H]+ C12H9+, [M-2H2O+H]+, [2M+Na]+ C12H12O2"),
    ],
)
def test_an_ion_has_the_atoms_of_molecule_and_adduct_without_metals_if_they_fit(formula, ions):
    molecule = Formula.parse(formula)

    for text, *ion in map(str.split, ions.split(", ")):
        adduct = parse_adduct(text)
        assert fits(molecule, adduct) == bool(ion), text
        assert not ion or [str(parent_formula(molecule, adduct))] == ion


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("[M+H]+", [(0, "", 1, 1)]),
        ("[M+Na]+", [(0, "", 1, 1), (0, "Na", 1, 0)]),
        ("[2M-H]-", [(0, "", -1, -1), (1, "", -1, -1)]),
        ("[M+2H]2+", [(0, "", 1, 1), (0, "", 2, 2)]),
        ("[M+H+Na]2+", [(0, "", 1, 1), (0, "Na", 1, 0), (0, "Na", 2, 1)]),
        ("[M+2Na-H]+", [(0, "", 1, 1), (0, "Na", 1, 0), (0, "Na2", 1, -1)]),
        ("[M+K-2H]-", [(0, "", -1, -1), (0, "K", -1, -2)]),
    ],
)
def test_fragments_keep_metals_charges_and_whole_molecules(text, kept):
    carriers = parse_adduct(text).carriers

    assert [(c.molecules, c.metals, c.charge, c.protons) for c in carriers] == kept


@pytest.mark.parametrize(
    ("formula", "mz", "polarity", "names"),
    [
        ("C9H8O4", 181.0495, 0, ["[M+H]+"]), ("C9H8O4", 203.0315, 1, ["[M+Na]+"]),
        ("C9H8O4", 179.0350, 0, ["[M-H]-"]), ("C9H8O4", 181.0495, -1, []),
        ("C9H8O4", 180.0417, 0, []),  # the radical cation
        ("C9H8O4", 300.0, 0, []), ("C5H14NO", 104.1070, 0, ["[M]+"]),
    ],
)  # fmt: skip
def test_the_adduct_follows_from_formula_and_precursor(formula, mz, polarity, names):
    inferred = infer_adduct(Formula.parse(formula), mz, polarity, 10)

    assert [adduct.name for adduct in inferred] == names
