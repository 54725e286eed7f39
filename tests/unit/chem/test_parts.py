"""Parts: every pattern of the catalogue, ring systems and acyl chains as they are read."""

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
        for mol in (bare, *substituted(row["smarts"])):
            assert names_in(Chem.MolToSmiles(mol), parts.RING_SYSTEM) == {row["name"]}
            assert mol.HasSubstructMatch(pattern), row["name"]


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
        ("C[n+]1ccccc1", {"c1cc[nH+]cc1"}),
        ("CCCC", set()),
    ],
)
def test_ring_systems_are_read_from_the_molecule(smiles, expected):
    assert names_in(smiles, parts.RING_SYSTEM) == expected


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


def test_names_are_given_once_for_each_kind():
    named = [(row["kind"], row["name"]) for row in ROWS]

    assert len(set(named)) == len(named)
