"""`duallgd data cations`: a file of cations that `data structures` prepares."""

from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.data.prepared import load_molecules

NEUTRAL = "smiles\tfold\nCN(C)CCO\ttrain\nCCCCBr\ttrain\nCCO\ttrain\n"


def test_cations_are_made_held_out_and_prepared(duallgd, tmp_path):
    (tmp_path / "neutral.tsv").write_text(NEUTRAL)

    done = duallgd("data", "cations", "neutral.tsv", "-o", "cations.smi")

    assert (done.code, done.out) == (0, "")
    assert done.err == "1 ammonium, 1 phosphonium in cations.smi\n"
    kept, held_out = (tmp_path / "cations.smi").read_text().splitlines()
    key = inchikey_block(parse_smiles(held_out.split()[0]))
    (tmp_path / "keys.txt").write_text(key + "\n")
    told = ["cations.smi", "-o", "cations", "--holdout", "keys.txt", "--workers", "1"]
    assert duallgd("data", "structures", *told).code == 0
    molecules = load_molecules(tmp_path / "cations")
    assert molecules.charge.tolist() == [1]
    assert molecules.inchikey.tolist() == [inchikey_block(parse_smiles(kept.split()[0])).encode()]


def test_nothing_to_make_cations_of_is_said(duallgd, tmp_path):
    (tmp_path / "neutral.smi").write_text("CCO\n")
    (tmp_path / "amine.smi").write_text("CN(C)CCO\n")

    for arguments, code, message in (
        (["neutral.smi", "-o", "cations.smi"], 65, "no structure that a cation could be made of"),
        (["none.smi", "-o", "cations.smi"], 66, "none.smi does not exist"),
        (["neutral.smi", "-o", "./neutral.smi"], 2, "give another output"),
        (["amine.smi", "-o", "none/cations.smi"], 2, "cannot write none/cations.smi"),
    ):
        done = duallgd("data", "cations", *arguments)

        assert done.code == code
        assert message in done.err
        assert "Traceback" not in done.err
    assert (tmp_path / "neutral.smi").read_text() == "CCO\n"
    # Nothing half made is left behind.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["amine.smi", "neutral.smi"]
