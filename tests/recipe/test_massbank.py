"""The MassBank data set from a release; the records are made here and belong to nobody."""

import csv
import gzip
import zipfile

import pytest
from typer import Typer
from typer.testing import CliRunner

from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.errors import UnreadableError
from recipes import massbank
from recipes.massbank import read_folds, rebuild_massbank, screen
from tests.made_runs import rows_of

ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "CC(=O)Oc1cccc(C(=O)O)c1"
MS = "AC$MASS_SPECTROMETRY: "
FIELDS = {
    "ACCESSION:": "MSBNK-Made-A1",
    "LICENSE:": "CC BY-SA",
    "CH$SMILES:": ASPIRIN,
    "AC$INSTRUMENT:": "Made Orbitrap",
    "AC$INSTRUMENT_TYPE:": "LC-ESI-ITFT",
    f"{MS}MS_TYPE": "MS2",
    f"{MS}ION_MODE": "POSITIVE",
    f"{MS}COLLISION_ENERGY": "50(NCE)",
    f"{MS}RESOLUTION": "17500",
    "MS$FOCUSED_ION: PRECURSOR_M/Z": "181.0495",
    "MS$FOCUSED_ION: PRECURSOR_TYPE": "[M+H]+",
}
PEAKS = "  163.0390 500.0 250\n  121.0284 2000.0 999\n  100.0000 0 0\n"


def record(peaks=PEAKS, **changes):
    """Text of a record; changes are named by how tags end, and None leaves a line out."""
    fields = {
        tag: next((value for end, value in changes.items() if tag.strip(":").endswith(end)), text)
        for tag, text in FIELDS.items()
    }
    lines = [f"{tag} {text}" for tag, text in fields.items() if text is not None]
    lines += ["PK$ANNOTATION: m/z formula", "  1.0 2.0 3.0", "PK$NUM_PEAK: 3"]
    return "\n".join([*lines, f"PK$PEAK: m/z int. rel.int.\n{peaks}//\n"])


def release(folder, *texts):
    (folder / "Made").mkdir(parents=True)
    (folder / "README.txt").write_text("Not a record.\n", encoding="utf-8")
    for index, text in enumerate(texts):
        (folder / "Made" / f"MSBNK-Made-A{index}.txt").write_text(text, encoding="utf-8")
    return folder


def converted(*arguments):
    app = Typer()
    app.command()(massbank.main)
    return CliRunner().invoke(app, [str(argument) for argument in arguments]).exit_code


def test_a_release_becomes_a_table_in_the_published_layout_and_is_not_lost(tmp_path):
    source, out = release(tmp_path / "release", record()), tmp_path / "made" / "massbank.tsv.gz"
    with zipfile.ZipFile(tmp_path / "release.zip", "w") as archive:
        for path in sorted(source.rglob("*.txt")):
            archive.write(path, path.relative_to(source))

    assert converted(source, "-o", out) == 0
    whole = out.read_bytes()
    assert converted(source, "-o", out) != 0
    assert out.read_bytes() == whole
    assert converted(tmp_path / "release.zip", "-o", out, "--force") == 0

    assert (out.parent / "massbank.tsv.gz.report.tsv").exists()
    with gzip.open(out, "rt", encoding="utf-8") as stream:
        (row,) = csv.DictReader(stream, delimiter="\t")
    assert row.items() >= {
        "mzs": "121.0284,163.039", "intensities": "1,0.25", "inchikey": "BSYNRYMUTXBXSQ",
        "formula": "C9H8O4", "adduct": "[M+H]+", "instrument_type": "Orbitrap", "fold": "train",
    }.items()  # fmt: skip
    assert float(row["collision_energy"]) == pytest.approx(50 * 181.0495 / 500, abs=0.01)


@pytest.mark.parametrize(
    ("reason", "name", "values"),
    [
        ("", "LICENSE", ["CC0", "CC BY", "CC BY-SA", "CC BY 4.0", "dl-de/by-2-0"]),
        ("licence not open", "LICENSE", ["CC BY-NC-SA", "CC BY-ND", None]),
        ("not an MS2 spectrum", "MS_TYPE", ["MS3"]),
        ("not ESI or APCI on a TOF or FT analyser", "INSTRUMENT_TYPE", ["GC-EI-TOF", "LC-ESI-QQ"]),
        ("unsupported adduct", "PRECURSOR_TYPE", ["[2M+H]+"]),
        ("not a molecule", "SMILES", ["N/A"]),
        ("the molecule has 2 fragments; exactly one is needed", "SMILES", [f"{ASPIRIN}.O"]),
        (
            "the molecule holds isotope labels; remove them first",
            "SMILES",
            [f"[13CH3]{ASPIRIN[1:]}"],
        ),
        ("unsupported element", "SMILES", ["CC[Hg]CC"]),
        ("too few or too many atoms", "SMILES", ["CCO"]),
        ("adduct does not fit the molecule", "SMILES", [f"{ASPIRIN[:-1]}[O-]"]),
        ("precursor m/z differs", "PRECURSOR_M/Z", ["181.1", "nan"]),
        ("no precursor m/z", "PRECURSOR_M/Z", ["N/A"]),
        ("no usable peaks", "peaks", ["", "  100.0 0 0\n"]),
    ],
)
def test_what_the_data_set_does_not_take_is_rejected_by_reason(tmp_path, reason, name, values):
    for number, value in enumerate(values):
        (item,) = screen(release(tmp_path / str(number), record(**{name: value})))

        if reason:
            assert item[:3] == (1, "MSBNK-Made-A1", reason)
        else:
            assert item["license"] == value


def test_folds_and_holdouts_are_honoured_and_counted(tmp_path):
    twice = record(), record(COLLISION_ENERGY="20(NCE)")  # equal peaks of the same ion
    folder = release(tmp_path / "release", *twice, record(SMILES=ISOMER))
    lines = ("smiles\tInChIKey\tfold", "", "x\tBSYNRYMUTXBXSQ-UHFFFAOYSA-N\tTest", "", "")
    (tmp_path / "folds.tsv").write_text("\n".join(lines), encoding="utf-8")
    folds, held = read_folds(tmp_path / "folds.tsv"), inchikey_block(parse_smiles(ISOMER))

    totals = rebuild_massbank(folder, tmp_path / "b.tsv", folds, holdout=frozenset({held}))

    (row,) = rows_of(tmp_path / "b.tsv")
    assert (row["inchikey"], row["fold"]) == ("BSYNRYMUTXBXSQ", "test")
    assert totals == {
        "spectra_before_holdout": 2, "molecules_before_holdout": 2, "spectra": 1, "molecules": 1,
        "holdout_keys": 1, "holdout_removed": 1, "rejected": {"duplicate": 1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("AAA\ttrain\nAAA\ttest\n", "puts AAA into fold 'test' and elsewhere"),
        ("AAA\n", "puts AAA into fold ''"),
    ],
)
def test_a_molecule_in_two_folds_or_none_is_refused(tmp_path, rows, message):
    (tmp_path / "folds.tsv").write_text(f"inchikey\tfold\n{rows}", encoding="utf-8")

    with pytest.raises(UnreadableError, match=message):
        read_folds(tmp_path / "folds.tsv")


def test_a_release_without_a_usable_record_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match="no record"):
        rebuild_massbank(release(tmp_path / "r", record(MS_TYPE="MS")), tmp_path / "out.tsv")
