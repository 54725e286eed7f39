"""Permanent cations are made from neutral structures, each at its own site."""

from collections import Counter

import pytest
from rdkit import Chem

from duallgd_cli.chem.identity import canonical_smiles, inchikey_block, parse_smiles
from duallgd_cli.data.structures import read_rows
from duallgd_cli.errors import UnreadableError
from recipes.cations import CATION_TYPES, cations, main
from tests.made_molecules import disassembled

CYANIDIN_GLUCOSIDE = "OCC1OC(Oc2cc3c(O)cc(O)cc3[o+]c2-c2ccc(O)c(O)c2)C(O)C(O)C1O"
ISOQUERCITRIN = "OCC1OC(Oc2c(-c3ccc(O)c(O)c3)oc3cc(O)cc(O)c3c2=O)C(O)C(O)C1O"
AMINES = [f"CN(C){'C' * n}O" for n in range(1, 9)]


def made(tmp_path, *smiles, limit=100, seed=1, fold="train"):
    """Pairs of SMILES and type, in order."""
    source = tmp_path / "neutral.tsv"
    source.write_text("smiles\tfold\n" + "".join(f"{text}\t{fold}\n" for text in smiles))
    return cations(source, limit, seed)


def test_a_flavonol_glycoside_becomes_the_anthocyanin(tmp_path):
    expected = canonical_smiles(parse_smiles(CYANIDIN_GLUCOSIDE))

    assert made(tmp_path, ISOQUERCITRIN) == [(expected, "flavylium")]


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
        ((text, named),) = made(tmp_path, smiles, seed=seed)

        mol = parse_smiles(text)
        assert (named, disassembled(mol).formula.charge) == (kind, 1)  # bonds can express it
        assert mol.HasSubstructMatch(Chem.MolFromSmarts(charged))
        assert sum(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms()) == 0
        assert mol.GetNumAtoms() > parse_smiles(smiles.replace("Br", "")).GetNumAtoms()


@pytest.mark.parametrize(
    "smiles",
    ["CCO", "CC(=O)N(C)C", "CN(C)c1ccccc1", "c1ccoc1", "CC=CCl", "CS(=O)(=O)N(C)C", "N#CN(C)C"],
)
def test_what_has_no_such_site_is_left_alone(tmp_path, smiles):
    with pytest.raises(UnreadableError, match="no structure that a cation could be made of"):
        made(tmp_path, smiles)


def test_no_kind_is_more_than_its_share_and_the_seed_chooses(tmp_path):
    smiles = ("CN(C", *AMINES, ISOQUERCITRIN)  # the first is no molecule

    one, again, other = (
        made(tmp_path, *smiles, limit=3 * len(CATION_TYPES), seed=seed) for seed in (1, 1, 5)
    )

    assert Counter(kind for _, kind in one) == {"ammonium": 3, "flavylium": 1}
    assert len({inchikey_block(parse_smiles(text)) for text, _ in one}) == 4
    assert one == again != other
    with pytest.raises(UnreadableError):  # of what is held out there are none
        made(tmp_path, *AMINES, fold="dev")


def test_the_table_is_read_as_structures(tmp_path):
    (tmp_path / "neutral.smi").write_text("\n".join([*AMINES, ISOQUERCITRIN]))

    main(tmp_path / "neutral.smi", tmp_path / "cations.tsv", limit=5)

    rows = [(row.smiles, row.name) for row in read_rows(tmp_path / "cations.tsv")]
    assert rows == cations(tmp_path / "neutral.smi", 5)
    assert rows
