"""Structure files of every kind to a prepared folder, read back as written; nothing is lost."""

import bz2
import gzip
import lzma
import re
from collections import Counter

import numpy as np
import pytest
from rdkit import Chem

from duallgd_cli.chem.identity import fingerprint, inchikey_block, parse_smiles
from duallgd_cli.data import prepared as stored
from duallgd_cli.data.prepared import FOLDS, load_molecules
from duallgd_cli.data.structures import prepare_structures, read_holdout, read_rows
from duallgd_cli.errors import MissingInputError, UnreadableError
from tests.made_molecules import disassembled
from tests.made_prepared import SMILES, bond_class, structures_folder, verify
from tests.made_runs import rows_of

ETHANOL, ACETIC, GLYCINE, PYRROLE = GOOD = ("CCO", "CC(=O)O", "NCC(=O)O", "c1cc[nH]c1")
ALANINE = "CC(N)C(=O)O"


def key(smiles):
    return inchikey_block(parse_smiles(smiles))


def write(path, text):
    opener = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}.get(path.suffix.lower(), open)
    with opener(path, "wt", encoding="utf-8") as stream:
        stream.write(text)
    return path


def sdf(*smiles, end="$$$$\n"):
    blocks = [Chem.MolToMolBlock(Chem.MolFromSmiles(text)) for text in smiles]
    return "".join(f"{block}> <NAME>\nx\n\n$$$$\n" for block in blocks[:-1]) + blocks[-1] + end


def prepared(tmp_path, text, name="in.smi", **options):
    """Manifest, first blocks and folds, and the report of a file with this text."""
    manifest = prepare_structures([write(tmp_path / name, text)], tmp_path / "out", **options)
    verify(tmp_path / "out")
    molecules, report = load_molecules(tmp_path / "out"), rows_of(tmp_path / "out" / "report.tsv")
    folds = [FOLDS[index] for index in molecules.fold]
    return manifest, dict(zip(molecules.inchikey.astype(str), folds, strict=True)), report


FILES = {
    "in.smi": "".join(f"{s} name of it\n" for s in GOOD),
    "in.smiles": "\n\n".join(GOOD),
    "in.txt": "\r\n".join(GOOD),
    "in.csv": "Name,SMILES\n" + "".join(f'"a, b",{s}\n' for s in GOOD),
    "in.tsv": "smiles\tsource\n" + "".join(f"{s}\tx\n" for s in GOOD),
    "in.sdf": sdf(*GOOD),
    "IN.SDF": sdf(*GOOD),
    "no-end.sdf": sdf(*GOOD, end=""),
    "end-of-text.sdf": sdf(*GOOD, end="$$$$"),
    "blank-end.sdf": sdf(*GOOD, end="$$$$\n\n"),
    "SPREADSHEET.CSV": "\ufeffsmiles,name\n" + "".join(f"{s},x\n" for s in GOOD),
}


@pytest.mark.parametrize(
    "name", [*FILES, "in.smi.gz", "in.csv.xz", "in.sdf.bz2", "in.tsv.GZ", "in.sdf.XZ"]
)
def test_every_kind_of_file_holds_the_same_molecules(tmp_path, name):
    text = FILES.get(name) or FILES[name.rpartition(".")[0]]

    found = [key(row.smiles) for row in read_rows(write(tmp_path / name, text))]

    assert found == [key(smiles) for smiles in GOOD]


SIZE, ABOVE = "number of heavy atoms outside 2 to 100", "InChIKey block seen above"
ROWS = (  # the fold that is kept, or the reason why none is
    (ETHANOL, "val", "val"),
    ("not_smiles", "", "not a molecule"),
    ("C[Hg]C", "", "unsupported element"),
    ("C", "", SIZE),
    ("CCN.Cl", "", "train"),  # a salt
    ("CCN", "", ABOVE),
    ("Cc1ccccc1.NCCCCCC", "", "the molecule has 2 fragments; exactly one is needed"),
    ("OCC", "train", ABOVE),
    ("C" * 101, "", SIZE),
    (ALANINE, "Test", "test"),
    ("C[C@H](N)C(=O)O", "", ABOVE),  # stereo and explicit hydrogens are left out
    ("CC([H])([H])O", "", ABOVE),
    (ACETIC, "train", "on the hold-out list"),
    (PYRROLE, "validation", "unknown fold"),
    (GLYCINE, "", "train"),
)


def test_rows_become_molecules_or_are_listed_with_line_and_reason(tmp_path, caplog):
    told, holdout = [], frozenset({key(ACETIC), "A" * 14})
    text = "smiles\tfold\n" + "".join(f"{smiles}\t{fold}\n" for smiles, fold, _ in ROWS)

    manifest, molecules, report = prepared(
        tmp_path, text, "in.tsv", holdout=holdout, advance=told.append
    )

    rejected = [
        (str(n), smiles, end) for n, (smiles, _, end) in enumerate(ROWS, 2) if end not in FOLDS
    ]
    kept = {smiles.removesuffix(".Cl"): end for smiles, _, end in ROWS if end in FOLDS}
    assert molecules == {key(smiles): end for smiles, end in kept.items()}
    assert "in.tsv: 1 salt is read as its parent molecule" in caplog.text
    assert [(row["line"], row["smiles"], row["reason"]) for row in report] == rejected
    assert manifest["rejected"] == Counter(reason for *_, reason in rejected)
    figures = ("kind", "molecules", "holdout_keys", "holdout_removed")
    assert [manifest[name] for name in figures] == ["structures", 4, 2, 1]
    assert (manifest["source"]["file"], sum(told)) == ("in.tsv", len(ROWS))


def test_a_broken_record_of_an_sdf_is_reported_where_it_starts(tmp_path):
    text = sdf(ETHANOL) + "nonsense\n$$$$\n" + sdf(ACETIC)

    _, molecules, report = prepared(tmp_path, text, "in.sdf")

    assert [*molecules] == [key(ETHANOL), key(ACETIC)]
    assert [row["line"] for row in report] == [str(sdf(ETHANOL).count("\n") + 1)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("in.mol2", "CCO", r"is not \.tsv, \.csv, \.smi or \.sdf; convert it first"),
        ("in.csv", "structure,name\nCCO,x\n", "no column smiles or inchi; it has structure, name"),
        ("in.smi", "", "holds no structure that can be used"),
        ("in.smi", "bad\nworse\n", "holds no structure that can be used"),
    ],
)
def test_a_file_without_structures_is_refused(tmp_path, name, text, message):
    with pytest.raises(UnreadableError, match=message):
        prepare_structures([write(tmp_path / name, text)], tmp_path / "out")


@pytest.fixture
def folder(tmp_path):
    return structures_folder(tmp_path / "prepared")


def test_molecules_read_back_as_they_were(folder):
    molecules = load_molecules(folder)

    assert len(molecules) == len(SMILES)
    for row, smiles in enumerate(SMILES):
        mol = parse_smiles(smiles)
        parts, formula = disassembled(mol), molecules.formula(row)
        assert formula == parts.formula
        assert formula.atom_class.tolist() == parts.atom_class.tolist()
        assert bond_class(molecules, row).tolist() == parts.bond_class.tolist()
        assert molecules.n_heavy[row] == len(parts.atom_class)
        assert molecules.bits_of(np.array([row]))[1].tolist() == sorted(fingerprint(mol))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("bits.npy", None, r"bits\.npy is missing; prepare the dat"),
        ("manifest.json", lambda raw: raw.replace(b'version": 1', b'version": 99'),
         "version 99, this version reads 1"),
        ("bond_pair.npy", lambda raw: raw[:-7], r"bond_pair\.npy is broken .*prepare t"),
        # An element less.
        ("atom_counts.npy", lambda raw: raw.replace(b"(12, 13)", b"(13, 12)"),
         r"count \(12,\) elements, expected 13"),
        *(("manifest.json", lambda _, text=text: text, "prepare the data again")
          for text in (b"", b'{"format_version": 1, "arr', b"[1, 2]", b"\x00\x01")),
    ],
)  # fmt: skip
def test_broken_and_foreign_folders_are_refused_in_a_sentence(folder, name, change, said):
    raw = (folder / name).read_bytes()
    (folder / name).unlink()
    if change is not None:
        (folder / name).write_bytes(change(raw))

    with pytest.raises(UnreadableError, match=said):
        load_molecules(folder)
    with pytest.raises(MissingInputError, match=r"holds no prepared data \(manifest\.json"):
        load_molecules(folder / "nothing")


def test_preparing_again_leaves_no_manifest_of_the_old_data_behind(folder):
    before = load_molecules(folder)

    structures_folder(folder, "CCCC", "CCN")

    verify(folder)
    assert (len(load_molecules(folder)), len(before)) == (2, len(SMILES)), "what is mapped stays"
    assert before.bits_of(np.array([0]))[1].tolist() == sorted(fingerprint(parse_smiles(SMILES[0])))
    assert not list(folder.glob(".*"))


INCHIS = ("InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3", "InChI=1S/C2H4O2/c1-2(3)4/h1H3,(H,3,4)")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "LFQSCWFLJHTTHZ # ethanol\n\nQTBSBXVTEAMEQO-UHFFFAOYSA-N\n"),
        ("a.keys", "inchikey\nLFQSCWFLJHTTHZ\nQTBSBXVTEAMEQO\n"),
        ("a.smi", "CCO ethanol\nCC(=O)O\n"),
        ("a.smi", "CCO.O ethanol\n[Na+].CC(=O)[O-]\n"),
        ("a.mol", sdf(ETHANOL, end="")),
        ("a.sdf", sdf(ETHANOL, ACETIC)),
        ("A.TSV.GZ", f"inchi\tname\n{INCHIS[0]}\ta\n{INCHIS[1]}\tb\n"),
        ("a.csv", "name,SMILES\nethanol,CCO\nacetic acid,CC(=O)O\n"),
        ("a.tsv", f"inchi\tname\n{INCHIS[0]}\ta\n{INCHIS[1]}\tb\n"),
    ],
)
def test_hold_out_lists_of_several_formats_name_the_same_molecules(tmp_path, name, text):
    expected = {key(ETHANOL)} if name == "a.mol" else {key(ETHANOL), key(ACETIC)}
    assert read_holdout([write(tmp_path / name, text)]) == expected


def test_all_molecules_of_a_mixture_are_held_out(tmp_path):
    toluene, hexylamine = "Cc1ccccc1", "NCCCCCC"

    held_out = read_holdout([write(tmp_path / "a.smi", f"{toluene}.{hexylamine}\n")])

    assert held_out == {inchikey_block(parse_smiles(one)) for one in (toluene, hexylamine)}


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.txt", "LFQSCWFLJHTTHZ\nCCO\n", "a.txt:2 is neither an InChIKey nor a molecule: 'CCO'"),
        ("a.smi", "CCO\nC1CC\n", "a.smi:2 is neither an InChIKey nor a molecule: 'C1CC'"),
        ("a.csv", "smiles\nCCO\n\nnone\n", "a.csv:4 is neither an InChIKey nor a molecule: 'none'"),
        ("a.keys", "inchikey\nshort\n", "a.keys:2 is neither an InChIKey nor a molecule: 'short'"),
        ("a.mol", "none\nM  END\n", "a.mol:1 is neither an InChIKey nor a molecule: ''"),
        ("a.csv", "name\nx\n", "no column smiles or inchi"),
    ],
)
def test_a_line_of_a_hold_out_list_that_names_no_molecule_is_never_passed_over(
    tmp_path, name, text, place
):
    with pytest.raises(UnreadableError, match=re.escape(place)):
        read_holdout([write(tmp_path / name, text)])


def test_structures_are_written_in_blocks_to_the_same_folder(tmp_path, monkeypatch):
    """And what was there stays until the last block is read."""
    made = write(tmp_path / "in.smi", "".join(f"{text}\n" for text in (*SMILES, "no", ETHANOL)))
    whole = prepare_structures([made], tmp_path / "whole")
    monkeypatch.setattr(stored, "BLOCK", 5)

    assert prepare_structures([made], tmp_path / "blocks") == whole
    with pytest.raises(UnreadableError, match="holds no structure that can be used"):
        prepare_structures([write(tmp_path / "none.smi", "no\n")], tmp_path / "whole")
    for folder in ("blocks", "whole"):
        verify(tmp_path / folder)
