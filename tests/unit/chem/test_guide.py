"""What a chemist knows of an unknown, and patterns that would be compared for ever."""

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
from rdkit import Chem

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide, read_core
from duallgd_cli.chem.identity import parse_smiles, smiles_of_inchi
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.chem.parts import catalogue
from duallgd_cli.errors import MoleculeError, RefusedError, UsageError

FLAVONE = "O=c1cc(-c2ccccc2)oc2ccccc12"


def test_cores_that_are_too_large_together_are_a_row_that_says_so():
    both = Guide("C" * 60).and_also(Guide("N" * 60))

    with pytest.raises(RefusedError, match=r"has 120 heavy atoms, .* at most 100") as refused:
        both.require_room(Formula.parse("C80H162"))

    assert refused.value.failure.status == "core_mismatch"


@pytest.mark.parametrize(
    ("formula", "missing"),
    [
        ("C15H10O2", ""), ("C14H10O2", "1 C"), ("C10H10N2", "5 C, 2 O"),
        ("C17H23NO3", "unsaturation (11 rings and double bonds, where it has 7 at most)"),
    ],
)  # fmt: skip
def test_what_a_formula_lacks_for_a_core(formula, missing):
    assert read_core(FLAVONE).missing(Formula.parse(formula)) == missing


@pytest.mark.parametrize(
    ("guide", "formula", "status", "message"),
    [
        (Guide(core=FLAVONE), "C14H10O2", "core_mismatch",
         f"C14H10O2 cannot hold the core {FLAVONE!r}: it lacks 1 C"),
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


@pytest.mark.parametrize("smiles", [
    FLAVONE, "FS(F)(F)(F)(F)c1ccccc1", "CS(=O)(=O)c1ccc([N+](=O)[O-])cc1", "O=[Se]=O",
    "F[B-]1(F)n2cccc2C=C2C=CC=[N+]21", "N1=P(F)(F)N=P(F)(F)N=P1(F)F", "C[N+](C)(C)CC(=O)[O-]",
    "Oc1cc2ccc(O)cc2[o+]c1", "CC(=O)OI(OC(C)=O)c1ccccc1", "C[S+](C)[O-]", "[N-]=[N+]=NCC#N",
    "FP(F)(F)(F)F", "c1ccc([n+]2ccccc2)cc1", "OB(O)c1ccccc1",
])  # fmt: skip
def test_no_formula_is_refused_that_has_a_molecule_which_is_the_core(smiles):
    assert not read_core(smiles).missing(formula_of(Chem.MolFromSmiles(smiles)))


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
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("kind", ["require", "forbid"])
def test_a_pattern_that_takes_for_ever_is_refused_in_a_second(name, kind):
    smarts, smiles = BOMBS[name]
    mol, started = Chem.MolFromSmiles(smiles), time.process_time()
    guide = Guide(**{kind: (smarts,)})

    with pytest.raises(RefusedError, match=r"than 100,000 steps; .*fewer wildcards") as no:
        guide.fault(mol)
    with pytest.raises(RefusedError, match="100,000 steps"):
        guide.fault(mol)  # what was cut short leaves nothing behind

    assert time.process_time() - started < 3
    assert pickle.loads(pickle.dumps(no.value)).failure == no.value.failure


def test_a_core_in_many_fragments_is_refused_in_a_second_too():
    started = time.process_time()

    with pytest.raises(RefusedError, match="100,000 steps"):
        Guide(core="CCC.CC.CO.CNC.CC.CCCC.CCO.CCC").fault(Chem.MolFromSmiles(CROWDED + "CCCCC"))

    assert time.process_time() - started < 3


def guided(smarts, smiles):
    return Guide(require=(smarts,)).fault(Chem.MolFromSmiles(smiles)) == ""


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
    assert guided(smarts, there)
    assert not guided(smarts, not_there)


@pytest.mark.parametrize(
    "text", ["C" * 100_000, "C." * 60_000, "[C" + ",C" * 50_000 + "]", "[$(" * 900 + "C"]
)
def test_texts_of_absurd_length_are_refused_at_once(text):
    started = time.process_time()

    for kind in ("require", "forbid"):
        with pytest.raises(UsageError, match="characters; write at most 2,000"):
            Guide(**{kind: (text,)}).check()
    with pytest.raises(UsageError, match="is too long for one"):
        Guide(core=text).check()
    with pytest.raises(MoleculeError, match="of more than 2,000 characters"):
        parse_smiles(text)
    assert smiles_of_inchi("InChI=1S/" + text) == ""

    assert time.process_time() - started < 0.5


INTERRUPTED = """
import sys
from duallgd_cli import __main__

def main():  # loads what it needs, as commands do: threads of libraries heed no signal then
    from rdkit import Chem
    from duallgd_cli.chem import guide
    guide._MOST_STEPS = 10**12
    pattern = guide.Pattern(Chem.MolFromSmarts(sys.argv[1]), "a bomb")
    print("at work", flush=True)
    pattern.is_in(Chem.MolFromSmiles(sys.argv[2]))

__main__.main = main
__main__.run()
"""


@pytest.mark.skipif(not hasattr(signal, "sigwait"), reason="Windows")
def test_ctrl_c_is_heard_while_molecules_are_compared():
    command = [sys.executable, "-c", INTERRUPTED, *BOMBS["parts apart"]]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run.stdout.readline()
    time.sleep(0.5)

    os.kill(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=8)

    assert "KeyboardInterrupt" in err
