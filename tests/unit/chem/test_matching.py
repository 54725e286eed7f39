"""Patterns that would be compared for ever, and those of chemists, which are not touched."""

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
from rdkit import Chem

from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.identity import parse_smiles, smiles_of_inchi
from duallgd_cli.errors import MoleculeError, RefusedError, UsageError

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
