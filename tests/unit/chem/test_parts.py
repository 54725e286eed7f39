"""Parts: every pattern of the catalogue, ring systems and acyl chains as they are read."""

from collections import Counter

import pytest
from rdkit import Chem

from duallgd_cli.chem import parts

ROWS = parts.catalogue()
PATTERNS = [row for row in ROWS if row["kind"] != parts.RING_SYSTEM]
RINGS = [row for row in ROWS if row["kind"] == parts.RING_SYSTEM]


def names_in(smiles, kind=None):
    """Names of the parts of one molecule."""
    found, _ = parts.find([smiles])
    return {part.name for part in found if kind in (None, part.kind)}


def test_every_pattern_is_in_its_example_and_in_no_counterexample():
    molecules = [row["example"] for row in PATTERNS] + [row["counterexample"] for row in PATTERNS]

    found, present = parts.find(molecules)

    has = {(part.kind, part.name): row for part, row in zip(found, present, strict=True)}
    missed, wrong = [], []
    for number, row in enumerate(PATTERNS):
        molecules_with = has.get((row["kind"], row["name"]))
        if molecules_with is None or not molecules_with[number]:
            missed.append(row["name"])
        elif molecules_with[number + len(PATTERNS)]:
            wrong.append(row["name"])
    assert (missed, wrong) == ([], [])


def substituted(smiles):
    """A ring system with a methyl group at each atom that has a hydrogen, one at a time."""
    bare = Chem.MolFromSmiles(smiles)
    for atom in bare.GetAtoms():
        if atom.GetTotalNumHs() and atom.IsInRing():
            mol = Chem.RWMol(bare)
            mol.GetAtomWithIdx(atom.GetIdx()).SetNumExplicitHs(0)
            mol.AddBond(atom.GetIdx(), mol.AddAtom(Chem.Atom("C")), Chem.BondType.SINGLE)
            Chem.SanitizeMol(mol)
            yield mol


def test_a_ring_system_and_its_pattern_are_found_alone_and_with_a_substituent_anywhere():
    for row in RINGS:
        bare = Chem.MolFromSmiles(row["smarts"])
        pattern = Chem.MolFromSmarts(parts.ring_system(row["smarts"]).smarts)
        assert Chem.MolToSmiles(bare) == row["smarts"]
        molecules = [bare, *substituted(row["smarts"])]
        assert all(mol.HasSubstructMatch(pattern) for mol in molecules), row["name"]
        found, present = parts.find(list(map(Chem.MolToSmiles, molecules)))
        rings = [part.kind == parts.RING_SYSTEM for part in found]
        assert [part.name for part in found if part.kind == parts.RING_SYSTEM] == [row["name"]]
        assert present[rings].all()


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("CCCCCCCCC=CCCCCCCCC(=O)OC", {"C18:1"}),
        ("CCCCCC=CCC=CCCCCCCCC(=O)OCC(O)COC(=O)CCCCCCCCCCCCCCC", {"C18:2", "C16:0"}),
        ("CCCC(=O)NC", {"C4:0"}),
        ("CC(=O)OC", set()),  # acetyl is a group
        ("CCC(C)CCCC(=O)O", set()),  # branched
        ("OCCCCCCC(=O)O", set()),  # not plain to its end
        ("C1CCCCCCCCC(=O)O1", set()),  # a ring
    ],
)
def test_acyl_chains_are_counted(smiles, expected):
    assert names_in(smiles, parts.FATTY_ACYL) == expected


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("C1CCC2(CC1)CCCC2", {"C1CCC2(CC1)CCCC2"}),  # rings that share one atom are one system
        ("c1ccccc1-c1ccccn1", {"benzene", "pyridine"}),  # rings that share none are two
        ("Cn1cnc2c1c(=O)n(C)c(=O)n2C", {"xanthine"}),  # what is doubly bound belongs to it
        ("Cn1cnc2c1n(C)c(=O)n(C)c2=O", {"xanthine"}),  # wherever its hydrogens would be
        ("Nc1ncnc2c1ncn2C1CCCO1", {"purine", "tetrahydrofuran"}),  # 9H
        ("Cn1cnc2ncncc21", {"purine"}),  # 7H
        ("Cn1nc2ccccc2n1", {"benzotriazole"}),
        ("Cn1cnc(=O)cc1", {"pyrimidinone"}),
        ("Cn1ccc(=O)nc1", {"pyrimidinone"}),
        ("C[n+]1ccccc1", {"c1cc[nH+]cc1"}),
        ("CN(C)c1ccc(C=C2C=CC(=[N+](C)C)C=C2)cc1", {"benzene", "C=C1C=CC(=[NH2+])C=C1"}),
        ("CCOC(=O)C1=NC=NC1=[N+]=[N-]", {"[NH2+]=C1C=NC=N1"}),
        ("CCCC", set()),
    ],
)
def test_ring_systems_are_read_from_the_molecule_and_found_in_it(smiles, expected):
    found, _ = parts.find([smiles])
    rings = [part for part in found if part.kind == parts.RING_SYSTEM]

    assert {part.name for part in rings} == expected
    assert all(parts.matches(part.smarts, smiles) for part in rings)


def test_parts_of_a_molecule_do_not_depend_on_its_company():
    flavone = "O=c1cc(-c2ccccc2)oc2cc(O)cc(O)c12"
    molecules = ["COc1ccc(CCN)cc1", "not a molecule", flavone, "CCCCCCCCC(=O)OC"]

    found, present = parts.find(molecules)

    assert not present[:, 1].any()
    for number, smiles in enumerate(molecules):
        alone, _ = parts.find([smiles])
        assert [found[row] for row in present[:, number].nonzero()[0]] == alone


def test_equal_bonds_have_equal_environments():
    benzene, broken, butanol, ion = parts.bond_environments(
        ["c1ccccc1", "no molecule", "CCCCO", "[Na+]"]
    )

    assert len(set(benzene)) == 1
    assert len(set(butanol)) == len(butanol) == 4
    assert broken == ion == []


def test_a_name_and_a_pattern_stand_for_one_part():
    names = Counter(row["name"].lower() for row in ROWS)
    patterns = Counter(row["smarts"] for row in PATTERNS)
    patterns.update(parts.ring_system(row["smarts"]).smarts for row in RINGS)

    assert [name for name, count in names.items() if count > 1] == []
    assert [smarts for smarts, count in patterns.items() if count > 1] == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("c1ncc2[nH]cnc2n1", "c1ncc2nc[nH]c2n1"),
        ("c1ccc2[nH]ncc2c1", "c1ccc2n[nH]cc2c1"),
        ("O=c1nc[nH]c2[nH]cnc12", "O=c1[nH]cnc2nc[nH]c12"),
        ("O=c1[nH]cnc2nccnc12", "O=c1nc[nH]c2nccnc12"),
        ("c1nn[nH]n1", "c1nnn[nH]1"),
    ],
)
def test_tautomers_of_a_ring_system_are_one_part(first, second):
    assert names_in(first, parts.RING_SYSTEM) == names_in(second, parts.RING_SYSTEM)
    assert parts.ring_system(first) == parts.ring_system(second)
