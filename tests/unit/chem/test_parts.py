"""Parts that molecules have, and what a chemist demands of them."""

from collections import Counter

import pytest
from rdkit import Chem

from duallgd_cli.chem import parts
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide, read_core
from duallgd_cli.chem.identity import parse_smiles, smiles_of_inchi
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.chem.parts import FATTY_ACYL, RING_SYSTEM, catalogue
from duallgd_cli.errors import MoleculeError, RefusedError, UsageError

ROWS = parts.catalogue()
PATTERNS = [row for row in ROWS if row["kind"] != RING_SYSTEM]
RINGS = [row["smarts"] for row in ROWS if row["kind"] == RING_SYSTEM]


def parts_in(smiles, kind):
    return [part for part in parts.find([smiles])[0] if part.kind == kind]


def test_every_pattern_is_in_its_example_and_in_no_counterexample():
    molecules = [row[which] for which in ("example", "counterexample") for row in PATTERNS]

    found, present = parts.find(molecules)

    has = {(part.kind, part.name): row.tolist() for part, row in zip(found, present, strict=True)}
    for number, row in enumerate(PATTERNS):
        with_part = has[row["kind"], row["name"]]
        assert (with_part[number], with_part[number + len(PATTERNS)]) == (True, False), row["name"]


def substituted(smiles):
    """A ring system with a methyl group at each atom that has a hydrogen, one at a time."""
    bare = Chem.MolFromSmiles(smiles)
    for atom in bare.GetAtoms():
        if atom.GetTotalNumHs() and atom.IsInRing():
            mol = Chem.RWMol(bare)
            mol.GetAtomWithIdx(atom.GetIdx()).SetNumExplicitHs(0)
            mol.AddBond(atom.GetIdx(), mol.AddAtom(Chem.Atom("C")), Chem.BondType.SINGLE)
            Chem.SanitizeMol(mol)
            yield Chem.MolToSmiles(mol)


@pytest.mark.slow
def test_a_ring_system_and_its_pattern_are_found_alone_and_with_a_substituent_anywhere():
    for smiles in RINGS:
        part = parts.ring_system(smiles)
        assert Chem.CanonSmiles(smiles) == smiles
        for molecule in (smiles, *substituted(smiles)):
            assert parts_in(molecule, RING_SYSTEM) == [part], molecule
            assert parts.matches(part.smarts, molecule), molecule


@pytest.mark.parametrize(
    ("smiles", "kind", "names"),
    [
        ("CCCCCCCCC=CCCCCCCCC(=O)OC", FATTY_ACYL, "C18:1"),
        ("CCCCCC=CCC=CCCCCCCCC(=O)OCC(O)COC(=O)CCCCCCCCCCCCCCC", FATTY_ACYL, "C16:0 C18:2"),
        ("CCCC(=O)NC", FATTY_ACYL, "C4:0"),
        ("CC(=O)OC", FATTY_ACYL, ""),  # acetyl is a group
        ("CCC(C)CCCC(=O)O", FATTY_ACYL, ""),  # branched
        ("OCCCCCCC(=O)O", FATTY_ACYL, ""),  # not plain to its end
        ("C1CCCCCCCCC(=O)O1", FATTY_ACYL, ""),  # a ring
        ("C1CCC2(CC1)CCCC2", RING_SYSTEM, "C1CCC2(CC1)CCCC2"),  # rings that share one atom are one
        ("c1ccccc1-c1ccccn1", RING_SYSTEM, "benzene pyridine"),  # rings that share none are two
        ("Cn1cnc2c1c(=O)n(C)c(=O)n2C", RING_SYSTEM, "xanthine"),  # with what is doubly bound
        ("Cn1cnc2c1n(C)c(=O)n(C)c2=O", RING_SYSTEM, "xanthine"),  # wherever its hydrogens would be
        ("Nc1ncnc2c1ncn2C1CCCO1", RING_SYSTEM, "purine tetrahydrofuran"),  # 9H
        ("Cn1cnc2ncncc21", RING_SYSTEM, "purine"),  # 7H
        ("Cn1nc2ccccc2n1", RING_SYSTEM, "benzotriazole"),
        ("Cn1cnc(=O)cc1", RING_SYSTEM, "pyrimidinone"),
        ("Cn1ccc(=O)nc1", RING_SYSTEM, "pyrimidinone"),
        ("C[n+]1ccccc1", RING_SYSTEM, "c1cc[nH+]cc1"),
        ("CN(C)c1ccc(C=C2C=CC(=[N+](C)C)C=C2)cc1", RING_SYSTEM, "C=C1C=CC(=[NH2+])C=C1 benzene"),
        ("CCOC(=O)C1=NC=NC1=[N+]=[N-]", RING_SYSTEM, "[NH2+]=C1C=NC=N1"),
        ("CCCC", RING_SYSTEM, ""),
    ],
)
def test_acyl_chains_and_ring_systems_are_read_from_the_molecule_and_found_in_it(
    smiles, kind, names
):
    found = parts_in(smiles, kind)

    assert [part.name for part in found] == names.split()
    assert all(parts.matches(part.smarts, smiles) for part in found)


def test_parts_of_a_molecule_do_not_depend_on_its_company():
    flavone = "O=c1cc(-c2ccccc2)oc2cc(O)cc(O)c12"
    molecules = ["COc1ccc(CCN)cc1", "not a molecule", flavone, "CCCCCCCCC(=O)OC"]

    found, present = parts.find(molecules)

    assert not present[:, 1].any()
    for smiles, with_part in zip(molecules, present.T, strict=True):
        assert [found[row] for row in with_part.nonzero()[0]] == parts.find([smiles])[0]


def test_equal_bonds_have_equal_environments():
    benzene, broken, butanol, ion = parts.bond_environments(
        ["c1ccccc1", "no molecule", "CCCCO", "[Na+]"]
    )

    assert (len(set(benzene)), len(set(butanol)), len(butanol)) == (1, 4, 4)
    assert broken == ion == []


def test_a_name_and_a_pattern_stand_for_one_part():
    names = Counter(row["name"].lower() for row in ROWS)
    patterns = Counter(row["smarts"] for row in PATTERNS)
    patterns.update(parts.ring_system(smiles).smarts for smiles in RINGS)

    assert [text for text, count in (names + patterns).items() if count > 1] == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("c1ncc2[nH]cnc2n1", "c1ncc2nc[nH]c2n1"), ("c1ccc2[nH]ncc2c1", "c1ccc2n[nH]cc2c1"),
        ("O=c1nc[nH]c2[nH]cnc12", "O=c1[nH]cnc2nc[nH]c12"),
        ("O=c1[nH]cnc2nccnc12", "O=c1nc[nH]c2nccnc12"), ("c1nn[nH]n1", "c1nnn[nH]1"),
    ],
)  # fmt: skip
def test_tautomers_of_a_ring_system_are_one_part(first, second):
    alike = [parts.ring_system(first)]

    assert parts_in(first, RING_SYSTEM) == parts_in(second, RING_SYSTEM) == alike
    assert parts.ring_system(second) == alike[0]


FLAVONE, OPEN = "O=c1cc(-c2ccccc2)oc2ccccc12", "*c1ccc(-c2ccccc2)cc1OC"


@pytest.mark.parametrize(
    ("guide", "formula", "status", "message"),
    [
        (Guide(FLAVONE), "C14H10O2", "core_mismatch", f"the core {FLAVONE!r}: it lacks 1 C"),
        (Guide(OPEN), "C10H10N2", "core_mismatch", f"the core {OPEN!r}: it lacks 3 C, 1 O"),
        (Guide(require=("sulfonamide",)), "C8H9NO2", "no_candidate",
         "the required 'sulfonamide': it lacks 1 S"),
        (Guide(require=("[H]O", "[H]N([H])C")), "C2H6O", "no_candidate",
         "the required '[H]N([H])C': it lacks 1 N"),
        (Guide(require=("CCO", "[Fe]~[#7]NCl")), "C2H6NO", "no_candidate",
         "the required '[Fe]~[#7]NCl': it lacks 1 N, 1 Cl, 1 Fe"),
        # Each could be read alone.
        (Guide("C" * 60).and_also(Guide("N" * 60)), "C80H162", "core_mismatch",
         "has 120 heavy atoms, and molecules here at most 100; give a part of it"),
    ],
)  # fmt: skip
def test_a_formula_without_the_atoms_that_are_required_is_refused(guide, formula, status, message):
    with pytest.raises(RefusedError) as refused:
        guide.require_room(Formula.parse(formula))

    failure, cannot = refused.value.failure, f"{formula} cannot hold "
    assert failure.status == status
    assert failure.message.endswith(message)
    assert failure.message.startswith("core 'CCC" if "120" in message else cannot + message[:8])


def test_no_formula_is_refused_that_has_a_molecule_with_the_part():
    """Patterns with several elements for an atom, or with conditions on what is beside it."""
    asked = [(row["name"], row["example"]) for row in catalogue() if row["example"]]
    asked += [("[O,S]", "CS"), ("[!#7]", "CO"), ("[$([#7]),$([#8])]", "CO"), ("[#6;!R]", "CC")]

    asked += [("[H]O", "CO"), ("[H]N([H])C", "CN"), ("[C,H0]", "CO"), ("[!H0]", "CO")]

    for text, smiles in asked:
        Guide(require=(text,)).require_room(formula_of(Chem.MolFromSmiles(smiles)))


@pytest.mark.parametrize(
    "text", ["c1cc", "", "[Fe]", "*", "C~C", "[Na+].[Cl-]", "[H][H]", "C:C", "CC:C"]
)
def test_what_is_no_core_is_refused_by_name(text):
    with pytest.raises(UsageError, match="core"):
        read_core(text)


@pytest.mark.parametrize(
    ("core", "taken"),
    [
        (None, ""), ("CC(=O)O", ""), ("C[N+](C)(C)CC(=O)[O-]", ""), ("C[N+](=O)[O-]", ""),
        ("[O-]C(=O)C", "CC(=O)O"), ("*C(=O)[O-].C[NH3+]", "*C(=O)O.CN"),
        # What a bracket lacks is no radical: the core has its hydrogens, or further bonds.
        ("[CH3]", "C"), ("*[NH2+]CC", "*NCC"), ("[CH2]c1c[nH]c2ccccc12", "Cc1c[nH]c2ccccc12"),
    ],
)  # fmt: skip
def test_a_core_that_is_taken_without_its_charges_is_said_to_be(core, taken):
    assert Guide(core).remark == f"the core is taken as {taken}" * bool(taken)


@pytest.mark.parametrize("text", ["[H]", "[H][H]", "[#1,#6]O", "C(=O)[$([H]),$(C)]", "[2H]C"])
def test_hydrogens_that_no_molecule_could_match_are_refused(text):
    """They would forbid nothing and, required, refuse every molecule."""
    with pytest.raises(UsageError, match=r"write hydrogens at the atom that has them"):
        Guide(forbid=(text,)).check()


# Whatever patterns are tried on, one of them is wanting.
CROWDED = "CC(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)C(C)(C)CN"
HALF = "CCCCCCCCCCNNNNNNNNNNNN"
GRID = (
    "C1CC2CC3CC4CC5CCC6CC7CC8CC9CC%10CCC%11CC%12CC%13CC%14CCC1C1C2C2C3C3C4C4C5C6C5C7C6C8C7C9"
    "C%10C%11C8C%12C9C%13C%14C1C1C2C3C2C4C5C6C7C8C9C12"
)


@pytest.mark.parametrize(
    ("text", "there", "not_there"),
    [
        ("core c1ccccc1", "OCc1ccccc1", "CCO"),
        ("core *c1ccccc1", "OCc1ccccc1", "CCc1ccc(O)cc1"),
        # As any of its tautomers, and in an aromatic form.
        ("core Oc1ccccn1", "O=c1cccc[nH]1", "Oc1ccccc1"), ("core Oc1ccccn1", "O=c1ccccn1C", "CC"),
        ("core C=CC=C", "c1ccccc1", "CCCC"),
        # Acids and amines as at pH 7, but not what no proton can make neutral.
        ("core [O-]C(=O)C", "CCC(=O)O", "CCC=O"), ("core *C(=O)[O-]", "CC(=O)O", "CC(=O)OC"),
        ("core [NH3+]CC(=O)[O-]", "NC(C)C(=O)O", "CC(=O)O"), ("core [S-]C", "CCS", "CO"),
        ("core C[N+](C)(C)CC(=O)[O-]", "CC(C(=O)[O-])[N+](C)(C)C", "CN(C)CC(=O)O"),
        ("core C[N+](=O)[O-]", "CC[N+](=O)[O-]", "CCN=O"), ("core [13CH3]", "CCO", "O"),
        ("core C[n+]1ccccc1", "CC[n+]1ccccc1", "c1ccncc1"),
        ("indole", "c1ccc2[nH]ccc2c1", "c1ccccc1"), ("indole", "Cn1ccc2ccccc12", "CC"),
        ("Hexose", "OCC1OC(O)C(O)C(O)C1O", "CCO"),
        ("[#6]C(=O)[OX2H1]", "CC(=O)O", "OCC1OC(O)C(O)C(O)C1O"),
        ("[N+](=O)[O-]", "Cc1ccccc1[N+](=O)[O-]", "Cc1ccccc1N"),
        # Hydrogens as atoms of their own.
        ("[H]O", "CC(=O)O", "COC"), ("[#1]N([H])C", "CN", "CNC"), ("C(=O)[H]", "CC=O", "CC(C)=O"),
        ("[H][O].[H][O]", "OCCO", "COCCO"), ("[$([H]O)]", "CO", "COC"),
        ("[OX2H]." * 8 + "[OX2H]", "OCC(O)C(O)C(O)C(O)C(O)C(O)C(O)CO",
         "OCC(O)C(O)C(O)C(O)C(O)C(O)CO"),
        ("[c,C,O,o]." * 10 + "[c,C,O,o]", "Cc1ccc(CC(=O)O)cc1", HALF),
        ("C(=O)O.C(=O)O", "OC(=O)CC(=O)O", "CC(=O)O"),
        ("CO.CO", "COCOC", "COC"),  # the two share an atom
        ("C" * 21, "C" * 21, CROWDED), ("[$(CO),$(CN)]", "CCO", "CCS"),
        ("[#6]1~[#6]~[#6]~[#6]~[#6]~[#6]~1", "C1CCCCC1", "CCCCCC"),
    ],
)  # fmt: skip
def test_molecules_without_a_core_or_part_or_with_one_that_is_forbidden_are_told_so(
    text, there, not_there
):
    core = text.removeprefix("core ")
    guides = [Guide(core)] if core != text else [Guide(require=(text,)), Guide(forbid=(text,))]

    faults = []
    for guide in (Guide(), *guides):
        guide.check()
        faults.append([guide.fault(Chem.MolFromSmiles(smiles)) for smiles in (there, not_there)])

    without = "without the core" if core != text else f"without {text}"
    assert faults == [["", ""], ["", without], [f"with {text}", ""]][: len(faults)]


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


@pytest.mark.parametrize(("smarts", "smiles"), BOMBS.values(), ids=BOMBS.keys())
def test_a_pattern_that_takes_for_ever_is_refused_in_time(smarts, smiles):
    """Else hours: the time limit of the run would end it."""
    for guide in (Guide(require=(smarts,)), Guide(forbid=(smarts,))):
        with pytest.raises(RefusedError, match=r"than 100,000 steps; .*fewer wildcards"):
            guide.fault(Chem.MolFromSmiles(smiles))  # what was cut short before leaves nothing


@pytest.mark.parametrize("text", ["C" * 100_000, "[$(" * 900 + "C"])
def test_texts_of_absurd_length_are_refused_at_once(text):
    for guide, message in (
        (Guide(require=(text,)), "characters; write at most 2,000"),
        (Guide(core=text), "is too long for one"),
    ):
        with pytest.raises(UsageError, match=message):
            guide.check()
    with pytest.raises(MoleculeError, match="of more than 2,000 characters"):
        parse_smiles(text)
    assert smiles_of_inchi("InChI=1S/" + text) == ""
