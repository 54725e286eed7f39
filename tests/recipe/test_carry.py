"""Prepared structures that travel come back as they were, InChIKeys apart."""

import numpy as np
import pytest
from typer.testing import CliRunner

from duallgd_cli.data.prepared import load_molecules
from duallgd_cli.data.structures import prepare_structures
from duallgd_cli.errors import UnreadableError
from recipes.carry import app, unpack
from tests.made_prepared import bits_of, bond_class

SMILES = "CCO C[N+](C)(C)CC(=O)[O-] Cn1c(=O)c2c(ncn2C)n(C)c1=O CC(=O)Oc1ccccc1C(=O)O FC(F)(F)Cl"


@pytest.fixture
def prepared(tmp_path):
    table = tmp_path / "in.smi"
    table.write_text(SMILES.replace(" ", "\n"))
    prepare_structures([table], tmp_path / "prepared")
    return tmp_path / "prepared"


def test_what_is_packed_comes_back(prepared, tmp_path):
    for command in (["pack", prepared, tmp_path / "p"], ["unpack", tmp_path / "p", tmp_path / "q"]):
        assert CliRunner().invoke(app, [str(word) for word in command]).exit_code == 0

    before, after = load_molecules(prepared), load_molecules(tmp_path / "q")
    order = np.lexsort(before.atom_counts.T)
    for row, old in enumerate(order.tolist()):
        assert after.formula(row) == before.formula(old)
        assert bond_class(after, row).tolist() == bond_class(before, old).tolist()
        assert bits_of(after, row).tolist() == bits_of(before, old).tolist()
    assert (after.fold == before.fold[order]).all()


@pytest.mark.parametrize("spoilt", [b"", b"\x05\0\0\0{bad}", None])
def test_a_damaged_pack_is_refused(prepared, tmp_path, spoilt):
    CliRunner().invoke(app, ["pack", str(prepared), str(tmp_path / "p")])
    whole = (tmp_path / "p").read_bytes()
    (tmp_path / "p").write_bytes(whole[:-60] if spoilt is None else spoilt)

    with pytest.raises(UnreadableError, match="is damaged"):
        unpack(tmp_path / "p", tmp_path / "q")
