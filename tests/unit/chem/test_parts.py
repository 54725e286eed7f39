"""Parts: every pattern of the catalogue, ring systems and acyl chains as they are read."""

from collections import Counter

import pytest
from rdkit import Chem

from duallgd_cli.chem import parts
from duallgd_cli.chem.parts import FATTY_ACYL, RING_SYSTEM

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
