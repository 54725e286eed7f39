"""What a chemist knows of an unknown, and patterns that would be compared for ever."""

import time

import pytest
from rdkit import Chem

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide, read_core
from duallgd_cli.chem.identity import parse_smiles, smiles_of_inchi
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.chem.parts import catalogue
from duallgd_cli.errors import MoleculeError, RefusedError, UsageError

FLAVONE, OPEN = "O=c1cc(-c2ccccc2)oc2ccccc12", "*c1ccc(-c2ccccc2)cc1OC"


def test_cores_that_are_too_large_together_are_a_row_that_says_so():
    both = Guide("C" * 60).and_also(Guide("N" * 60))

    with pytest.raises(RefusedError, match=r"has 120 heavy atoms, .* at most 100") as refused:
        both.require_room(Formula.parse("C80H162"))

    assert refused.value.failure.status == "core_mismatch"


@pytest.mark.parametrize(
    ("guide", "formula", "status", "message"),
    [
        (Guide(core=FLAVONE), "C14H10O2", "core_mismatch",
         f"C14H10O2 cannot hold the core {FLAVONE!r}: it lacks 1 C"),
        (Guide(core=OPEN), "C10H10N2", "core_mismatch",
         f"C10H10N2 cannot hold the core {OPEN!r}: it lacks 3 C, 1 O"),
        (Guide(require=("sulfonamide",)), "C8H9NO2", "no_candidate",
         "C8H9NO2 cannot hold the required 'sulfonamide': it lacks 1 S"),
        (Guide(require=("CCO", "[Fe]~[#7]NCl")), "C2H6NO", "no_candidate",
         "C2H6NO cannot hold the required '[Fe]~[#7]NCl': it lacks 1 N, 1 Cl, 1 Fe"),
    ],
)  # fmt: skip
def test_a_formula_without_the_atoms_that_are_required_is_refused(guide, formula, status, message):
    with pytest.raises(RefusedError) as refused:
        guide.require_room(Formula.parse(formula))

    assert (refused.value.failure.status, refused.value.failure.message) == (status, message)


def test_no_formula_is_refused_that_has_a_molecule_with_the_part():
    """Patterns with several elements for an atom, or with conditions on what is beside it."""
    asked = [(row["name"], row["example"]) for row in catalogue() if row["example"]]
    asked += [("[O,S]", "CS"), ("[!#7]", "CO"), ("[$([#7]),$([#8])]", "CO"), ("[#6;!R]", "CC")]

    for text, smiles in asked:
        Guide(require=(text,)).require_room(formula_of(Chem.MolFromSmiles(smiles)))


@pytest.mark.parametrize(
    "text", ["c1cc", "", "[Fe]", "*", "C~C", "[Na+].[Cl-]", "[H][H]", "C:C", "CC:C"]
)
def test_what_is_no_core_is_refused_by_name(text):
    with pytest.raises(UsageError, match="core"):
        read_core(text)


@pytest.mark.parametrize(
    ("guide", "smiles", "fault"),
    [
        (Guide(), "CCO", ""),
        (Guide(core="c1ccccc1"), "CCO", "without the core"),
        (Guide(core="c1ccccc1"), "OCc1ccccc1", ""),
        (Guide(core="*c1ccccc1"), "OCCc1ccccc1", ""),
        (Guide(core="*c1ccccc1"), "CCc1ccc(O)cc1", "without the core"),
        # As any of its tautomers, and in an aromatic form.
        (Guide(core="Oc1ccccn1"), "O=c1cccc[nH]1", ""),
        (Guide(core="Oc1ccccn1"), "O=c1ccccn1C", ""),
        (Guide(core="Oc1ccccn1"), "Oc1ccccc1", "without the core"),
        (Guide(core="C=CC=C"), "c1ccccc1", ""),
        (Guide(require=("indole",)), "c1ccc2[nH]ccc2c1", ""),
        (Guide(require=("indole",)), "Cn1ccc2ccccc12", ""),
        (Guide(require=("Hexose", "[#6]C(=O)[OX2H1]")), "OCC1OC(O)C(O)C(O)C1O",
         "without [#6]C(=O)[OX2H1]"),
        (Guide(forbid=("[N+](=O)[O-]",)), "Cc1ccccc1[N+](=O)[O-]", "with [N+](=O)[O-]"),
        (Guide(forbid=("[N+](=O)[O-]",)), "Cc1ccccc1N", ""),
    ],
)  # fmt: skip
def test_molecules_that_break_what_is_known_are_told_why(guide, smiles, fault):
    guide.check()

    assert guide.fault(Chem.MolFromSmiles(smiles)) == fault


# Whatever they are tried on, one of them is wanting.
CROWDED = "CC(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)CN"
HALF = "CCCCCCCCCCNNNNNNNNNNNN"
GRID = (
    "C1CC2CC3CC4CC5CCC6CC7CC8CC9CC%10CCC%11CC%12CC%13CC%14CCC1C1C2C2C3C3C4C4C5C6C5C7C6C8C7C9"
    "C%10C%11C8C%12C9C%13C%14C1C1C2C3C2C4C5C6C7C8C9C12"
)
BOMBS = {
    "parts apart": (".".join(["[c,C,O,o]"] * 8 + ["[Pt,N;H0]"]), HALF),
    "parts apart, each another": (".".join(f"[#{n},C]" for n in range(20, 31)), HALF),
    "wildcards in a row": ("~".join(["*"] * 40 + ["[Pt]"]), GRID),
    "wildcards in a ring": ("*1" + "~*" * 37 + "~[#7]~1", GRID),
    "branches": ("CC(C)(C)" + "C(C)(C)" * 9 + "C[Pt]", CROWDED),
    "one inside another": ("[$([#6]~[$(*.*.*.*.*.*.*.*.*.[Pt])])]", HALF),
    "not that": ("[!$(" + ".".join(["*"] * 12 + ["[Pt]"]) + ")]", HALF),
    "many fragments": ("CCC.CC.CO.CNC.CC.CCCC.CCO.CCC", CROWDED + "CCCCC"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_pattern_that_takes_for_ever_is_refused_in_time(name):
    smarts, smiles = BOMBS[name]
    mol, started = Chem.MolFromSmiles(smiles), time.process_time()

    for guide in (Guide(require=(smarts,)), Guide(forbid=(smarts,))):
        with pytest.raises(RefusedError, match=r"than 100,000 steps; .*fewer wildcards"):
            guide.fault(mol)  # what was cut short before leaves nothing behind

    assert time.process_time() - started < 60  # else hours


@pytest.mark.parametrize(
    ("smarts", "there", "not_there"),
    [
        (
            "[OX2H]." * 8 + "[OX2H]",
            "OCC(O)C(O)C(O)C(O)C(O)C(O)C(O)CO",
            "OCC(O)C(O)C(O)C(O)C(O)C(O)CO",
        ),
        ("[c,C,O,o]." * 10 + "[c,C,O,o]", "Cc1ccc(CC(=O)O)cc1", HALF),
        ("C(=O)O.C(=O)O", "OC(=O)CC(=O)O", "CC(=O)O"),
        ("CO.CO", "COCOC", "COC"),  # the two share an atom
        ("C" * 21, "C" * 21, CROWDED),
        ("[$(CO),$(CN)]", "CCO", "CCS"),
        ("[#6]1~[#6]~[#6]~[#6]~[#6]~[#6]~1", "C1CCCCC1", "CCCCCC"),
        ("indole", "c1ccc2[nH]ccc2c1", "c1ccccc1"),
    ],
)
def test_patterns_of_chemists_are_answered(smarts, there, not_there):
    faults = [Guide(require=(smarts,)).fault(Chem.MolFromSmiles(s)) for s in (there, not_there)]

    assert faults == ["", f"without {smarts}"]


@pytest.mark.parametrize("text", ["C" * 100_000, "[$(" * 900 + "C"])
def test_texts_of_absurd_length_are_refused_at_once(text):
    with pytest.raises(UsageError, match="characters; write at most 2,000"):
        Guide(require=(text,)).check()
    with pytest.raises(UsageError, match="is too long for one"):
        Guide(core=text).check()
    with pytest.raises(MoleculeError, match="of more than 2,000 characters"):
        parse_smiles(text)
    assert smiles_of_inchi("InChI=1S/" + text) == ""
