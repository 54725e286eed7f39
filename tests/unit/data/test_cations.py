"""Permanent cations are made from neutral structures, each at its own site."""

from collections import Counter

import pytest
from rdkit import Chem

from duallgd_cli.chem.identity import canonical_smiles, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.data.cations import CATION_TYPES, cations
from duallgd_cli.errors import MissingInputError, UnreadableError

CYANIDIN_GLUCOSIDE = "OCC1OC(Oc2cc3c(O)cc(O)cc3[o+]c2-c2ccc(O)c(O)c2)C(O)C(O)C1O"
ISOQUERCITRIN = "OCC1OC(Oc2c(-c3ccc(O)c(O)c3)oc3cc(O)cc(O)c3c2=O)C(O)C(O)C1O"


def made(tmp_path, *smiles, limit=100, seed=1, fold="train"):
    """Pairs of SMILES and type, in order, and the counts."""
    source = tmp_path / "neutral.tsv"
    rows = "".join(f"{text}\t{fold}\n" for text in smiles)
    source.write_text("smiles\tfold\n" + rows)
    found = cations(source, limit, seed)
    return found, Counter(kind for _, kind in found)


def test_a_flavonol_glycoside_becomes_the_anthocyanin(tmp_path):
    rows, counts = made(tmp_path, ISOQUERCITRIN)

    assert rows == [(canonical_smiles(parse_smiles(CYANIDIN_GLUCOSIDE)), "flavylium")]
    assert counts == {"flavylium": 1}


@pytest.mark.parametrize(
    ("smiles", "kind", "charged"),
    [
        ("CCCCBr", "phosphonium", "[P+](c1ccccc1)(c1ccccc1)c1ccccc1"),
        ("CN(C)CCc1ccccc1", "ammonium", "[N+]"),
        ("CCCCn1ccnc1", "imidazolium", "[n+]"),
        ("NC(=O)c1cccnc1", "pyridinium", "[n+]"),
    ],
)
def test_each_kind_is_made_at_its_own_site(tmp_path, smiles, kind, charged):
    """Whatever alkylates it; every atom of the structure but a halogen stays."""
    for seed in range(12):
        ((text, named),), _ = made(tmp_path, smiles, seed=seed)

        mol, before = parse_smiles(text), parse_smiles(smiles)
        assert named == kind
        assert Chem.GetFormalCharge(mol) == 1
        assert mol.HasSubstructMatch(Chem.MolFromSmarts(charged))
        assert sum(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms()) == 0
        rings = [Chem.GetSSSR(one) for one in (mol, before)]
        assert len(rings[0]) - len(rings[1]) in {0, 1, 3}  # benzyl, triphenylphosphine
        assert disassemble(mol).formula.charge == 1  # a bond matrix can express it
        kept = sum(atom.GetSymbol() != "Br" for atom in before.GetAtoms())
        assert mol.GetNumAtoms() > kept


@pytest.mark.parametrize(
    "smiles",
    ["CCO", "CC(=O)N(C)C", "CN(C)c1ccccc1", "c1ccoc1", "CC=CCl", "CS(=O)(=O)N(C)C", "N#CN(C)C"],
)
def test_what_has_no_such_site_is_left_alone(tmp_path, smiles):
    with pytest.raises(UnreadableError, match="no structure that a cation could be made of"):
        made(tmp_path, smiles)


def test_no_kind_is_more_than_its_share(tmp_path):
    amines = [f"CN(C){'C' * n}O" for n in range(1, 9)]

    _, counts = made(tmp_path, *amines, ISOQUERCITRIN, limit=3 * len(CATION_TYPES))

    assert counts == {"ammonium": 3, "flavylium": 1}


def test_held_out_folds_and_what_is_no_molecule_give_nothing(tmp_path):
    with pytest.raises(UnreadableError):
        made(tmp_path, "CN(C)CCO", fold="dev")
    rows, _ = made(tmp_path, "CN(C", "CN(C)CCO", "C1=")

    assert len(rows) == 1


def test_the_same_seed_makes_the_same_cations(tmp_path):
    amines = [f"CN(C){'C' * n}O" for n in range(1, 9)]

    one, other = (made(tmp_path, *amines, seed=4)[0] for _ in range(2))
    third = made(tmp_path, *amines, seed=5)[0]

    assert one == other != third
    assert len({inchikey_block(parse_smiles(text)) for text, _ in one}) == len(one)


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(MissingInputError, match=r"none\.smi does not exist"):
        cations(tmp_path / "none.smi", 10)
