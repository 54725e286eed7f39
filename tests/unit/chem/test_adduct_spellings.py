"""Adducts as the programs of the field spell them: what each means, or why it is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.adduct import ADDUCTS, BY_NAME, parse_adduct

MEANT = {
    "[M+H]+": (
        # mzmine, MS-DIAL, SIRIUS, GNPS, Compound Discoverer, CAMERA, mummichog, Skyline, HMDB.
        *("[M+H]+", "[M + H]+", "M+H", "[M+H]", "M+H+", "MH+", "[MH]+", "[M+H]1+", "[M+H]+1"),
        *("[M+H]+ 194.08", "M+H[1+]", "M+H[+]", "(M+H)+", "{M+H}+", "[M+H]^+", "[M+H]^{+}"),
        *("[m+h]+", "m+h", "[M+h]+", "[1M+H]+", "1M+H ]1+", "M+H]+", "[M+H", "[M+H+]", "[M+H+]+"),
        *("[M+(H)]+", "[M+(H+)]+", "[M+H]\u207a", "\uff3bM+H\uff3d\uff0b", "H+", "+H", "H", "[H]+"),
        *("[M+H]+;[M+H]+", "[M+1H]+", "[M+H1]+", "M-H+2H"),
        *("'[M+H]+'", '"[M+H]+"', "[M+H]+;"),
    ),
    "[M+Na]+": (
        *(
            "M+Na",
            "[m+na]+",
            "[M+NA]+",
            "[M+na]+",
            "Na",
            "Na+",
            "+Na",
            "MNa+",
            "[MNa]+",
            "M+Na[1+]",
        ),
        *("[M+Na]+1", "[M+23Na]+", "[Na]+"),
    ),
    "[M+K]+": ("M+K", "[m+k]+", "K+", "K", "MK+", "[M+39K]+"),
    "[M+NH4]+": (
        *("M+NH4", "[m+nh4]+", "[M+Nh4]+", "MNH4+", "(+NH4)+", "[+NH4]+", "NH4+", "[M+ammonium]+"),
        *("[M+NH3+H]+", "M +NH4"),
    ),
    "[M-H2O+H]+": (
        *(
            "[M+H-H2O]+",
            "M+H-H2O",
            "[M+H-H2O]",
            "[M+H]+[-H2O]",
            "[M+H]+-H2O",
        ),
        *("[M-H2O+H]1+", "[m-h2o+h]+", "[M+H-H20]+", "M-H20+H", "[M-OH]+", "[M+H-(H2O)]+"),
        *("M-H2O+H[1+]", "[M+H-water]+"),
    ),
    "[M]+": (
        *(
            "M+",
            "[M]1+",
            "[M]+1",
            "[M+]",
            "M[1+]",
            "M[+]",
            "[Cat]+",
            "Cat+",
            "[CAT]+",
            "[C]+",
            "[m]+",
        ),
        *("[M] +", "(M)+"),
    ),
    "[M-H]-": (
        *("M-H", "[M-H]", "M-H-", "[M-H]1-", "[M-H]-1", "M-H[-]", "M-H[1-]", "[m-h]-", "(M-H)-"),
        *("[M\u2212H]\u2212", "[M\u2013H]\u2013", "[M-H]\u207b", "M-H)-", "M-H]-1", "-H", "[M-H-]"),
        *("[M-(H)]-", "[M-H1]-", "[M - H]-"),
    ),
    "[M+HCOO]-": (
        *(
            "[M+FA-H]-",
            "M+FA-H",
            "[M-H+FA]-",
            "[M+HCOOH-H]-",
            "[M+CHO2]-",
            "[M+CH2O2-H]-",
            "[M+FA]-",
        ),
        *("[m+hcoo]-", "[M+formate]-", "[M+Formate]-", "[M+formic acid-H]-", "HCOO-", "[M+Hcoo]-"),
        *("[M+HFA-H]-", "M+FA"),
    ),
    "[M+CH3COO]-": (
        *("[M+HAc-H]-", "[M+Hac-H]", "M+Hac-H", "[M+OAc]-", "[M+Oac]-", "[M+AcO]-", "[M+Ac]-"),
        *(
            "[M+acetate]-",
            "[M+C2H3O2]-",
            "[M+AcOH-H]-",
            "[M+acetic acid-H]-",
            "CH3COO-",
            "[M+HAc]-",
        ),
        *("[m+ch3coo]-", "[M+CH3COOH-H]-"),
    ),
    "[M+Cl]-": (
        *("M+Cl", "[m+cl]-", "[M+CL]-", "[M+35Cl]-", "[M+Cl35]-", "Cl-", "MCl-", "[M+HCl-H]-"),
        *("M+Cl[-]",),
    ),
    "[2M+H]+": ("2M+H", "[2m+h]+", "[2M+H]+1", "2M+H+", "[2M+H]1+"),
    "[2M+Na]+": ("2M+Na", "[2M+NA]+"),
    "[2M-H]-": ("2M-H", "[2m-h]-"),
    "[M+2H]2+": (
        *("M+2H", "[M+2H]++", "[M+2H]+2", "[M+2H]\u00b2\u207a", "M+2H[2+]", "[MH2]2+", "M+2H++"),
        *("[M+H+H]2+", "[M+(2H)]2+"),
    ),
    "[M-2H]2-": ("M-2H", "[M-2H]--", "[M-2H]-2", "M-2H[2-]"),
    "[M+H+Na]2+": ("[M+Na+H]2+", "M+H+Na", "[M+H+Na]+2", "[m+h+na]2+"),
    "[M+10H]10+": ("[M+10H]+10",),
    "[M+ACN+H]+": ("M+ACN+H", "[M+CH3CN+H]+", "[M+C2H3N+H]+", "[M+MeCN+H]+", "[M+acetonitrile+H]+"),
    "[M+C3H8O+H]+": ("[M+IsoProp+H]+", "M+IsoProp+H", "[M+iPrOH+H]+"),
    "[M+C2H6OS+H]+": ("[M+DMSO+H]+", "M+DMSO+H"),
    "[M+CF3COO]-": ("[M+TFA]-", "[M+CF3CO2]-", "CF3COO-"),
    "[M+TFA-H]-": ("M+TFA-H", "[m+tfa-h]-"),
    "[M+Br]-": ("M+Br", "[M+BR]-", "[M+79Br]-", "Br-"),
    "[M+Li]+": ("M+Li", "[M+7Li]+", "[M+LI]+", "Li+"),
    "[M+Mg-H]+": ("[M-H+Mg]+", "[M+MG-H]+"),
    "[3M+Ca-H]+": ("[3M-H+Ca]+",),
    "[M-2H2O+H]+": ("[M+H-2H2O]+", "[M-2(H2O)+H]+", "[M+H-2H20]+", "[M+H]+[-2H2O]"),
    "[M+2H2O+H]+": ("[M+(H2O)2+H]+", "[M+2(H2O)+H]+"),
    "[M+K-2H]-": ("M-2H+K", "[M-2H+K]-"),
    "[M+C2H3NaO2-H]-": ("[M+CH3COONa-H]-", "[M+NaOOCCH3-H]-"),
}
REFUSED = {
    "a radical ion is not supported": (
        *(
            "[M]+.",
            "[M]+*",
            "[M]+\u2022",
            "[M\u2022]+",
            "[M+.]",
            "[M+.]+",
            "M+.",
            "M\u00b7+",
            "M.+",
        ),
        *("[M]-", "M-", "[M]-.", "[M-H]-.", "[M+H]+*", "[M]\u02d9+", "[M]\u25cf+", "M-e", "[M-e]+"),
    ),
    "it holds the isotope": (
        *("[M+Cl37]-", "[M+37Cl]-", "[M+13C+H]+", "[M+C13+H]+", "[M+81Br]-", "[M+6Li]+"),
        *(
            "M(C13)+H[1+]",
            "[M+15N+H]+",
            "[M+34S+H]+",
            "[m+37cl]-",
            "[M+41K]+",
            "M(Cl37)+H[1+]",
            "[M+H]+ 13C",
        ),
    ),
    "name one of them": (
        *("[M-H]-/[M-Ser]-", "[M-H-/M-Ser]-", "[M+H]+, [M+Na]+", "M+H, M+Na", "[M+H]+;[M+Na]+"),
        *("[M+H]+|[M+Na]+", "[M+H]+ or [M+Na]+", "[M+H]+ [M+Na]+", "[M+H]+[M+Na]+", "M+H and M+Na"),
        *("[M+H]+ 194.08 [M+Na]+ 172.098", "[M+H]+ & [M+Na]+"),
    ),
    "neither what M gains nor what it loses": ("M", "[M]", "[2M]+", "[M]2+", "M+1", "M-1", "2M-2"),
    "it holds": ("[M+Fe-H]+", "[M+D]+", "[M+Xx]+", "[M+X]+", "[M+Al-2H]+"),
    "give charge": (
        *("[M+H]-", "[M-H]+", "[M+H]2+", "[M+2H]+", "[M+ACN]+", "[M+CS]+", "[M+IsoProp+Na+H]+"),
        *("MH-", "H-", "[M+H2O]", "[M+Na]-", "[M+Cl]+"),
    ),
    "write it like": (
        *(
            "",
            "?",
            "ESI",
            "positive",
            "1+",
            "rubbish",
            "[A-H]-",
            "ISF",
            "[M+H]+_1",
            "NA",
            "na",
            "CI",
        ),
        *("[M+H]+ isotope", "1.00728", "M+H]+]", "[M+H][M-H]", "M" * 400),
    ),
    "no formula and no known name": ("[M+?]+", "[M+cs]+", "[M++H]+", "[M+si]+", "[M+999H]+"),
}


@pytest.mark.parametrize(
    ("text", "name"), [(text, name) for name, texts in MEANT.items() for text in (name, *texts)]
)
def test_a_spelling_means_an_adduct(text, name):
    adduct = parse_adduct(text)

    assert adduct.name == name
    assert adduct == BY_NAME.get(name, adduct)


@pytest.mark.parametrize(
    ("text", "reason"), [(text, reason) for reason, texts in REFUSED.items() for text in texts]
)
def test_a_spelling_is_refused_by_name(text, reason):
    failure = parse_adduct(text)

    assert failure.status == "unsupported_adduct"
    assert reason in failure.message


@given(st.sampled_from(ADDUCTS), st.data())
def test_upper_and_lower_case_never_change_an_adduct(adduct, data):
    text = "".join(data.draw(st.sampled_from([c.lower(), c.upper()])) for c in adduct.name)

    assert parse_adduct(text) == adduct


@given(st.text(alphabet="M[]()+-0123456789HNaKClOC2.* ", max_size=40))
def test_what_is_understood_is_read_back_from_its_name(text):
    adduct = parse_adduct(text)

    if hasattr(adduct, "name"):
        assert parse_adduct(adduct.name) == adduct
