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

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
FIELDS = {
    "ACCESSION": "MSBNK-Made-A1",
    "LICENSE": "CC BY-SA",
    "CH$SMILES": ASPIRIN,
    "AC$INSTRUMENT": "Made Orbitrap",
    "AC$INSTRUMENT_TYPE": "LC-ESI-ITFT",
    "AC$MASS_SPECTROMETRY: MS_TYPE": "MS2",
    "AC$MASS_SPECTROMETRY: ION_MODE": "POSITIVE",
    "AC$MASS_SPECTROMETRY: COLLISION_ENERGY": "50(NCE)",
    "AC$MASS_SPECTROMETRY: RESOLUTION": "17500",
    "MS$FOCUSED_ION: PRECURSOR_M/Z": "181.0495",
    "MS$FOCUSED_ION: PRECURSOR_TYPE": "[M+H]+",
}
PEAKS = "  163.0390 500.0 250\n  121.0284 2000.0 999\n  100.0000 0 0\n"


def record(peaks=PEAKS, **changes):
    """Text of a record; keyword names are tags with the punctuation left out."""
    fields = dict(FIELDS)
    for name, value in changes.items():
        tag = next(tag for tag in FIELDS if tag.split()[-1].split("$")[-1].strip(":") == name)
        fields[tag] = value
    lines = [
        f"{tag} {value}" if ":" in tag else f"{tag}: {value}"
        for tag, value in fields.items()
        if value is not None
    ]
    header = "PK$ANNOTATION: m/z formula\n  1.0 2.0 3.0\nPK$NUM_PEAK: 3\n"
    return "\n".join(lines) + f"\n{header}PK$PEAK: m/z int. rel.int.\n{peaks}//\n"


def release(folder, *texts):
    (folder / "Made").mkdir(parents=True)
    (folder / "README.txt").write_text("Not a record.\n", encoding="utf-8")
    for index, text in enumerate(texts):
        path = folder / "Made" / f"MSBNK-Made-A{index}.txt"
        path.write_text(text, encoding="utf-8")
    return folder


def converted(*arguments):
    app = Typer()
    app.command()(massbank.main)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_release_becomes_a_table_in_the_published_layout_and_is_not_lost(tmp_path):
    source, out = release(tmp_path / "release", record()), tmp_path / "made" / "massbank.tsv.gz"
    with zipfile.ZipFile(tmp_path / "release.zip", "w") as archive:
        for path in sorted(source.rglob("*.txt")):
            archive.write(path, path.relative_to(source))

    first = converted(source, "-o", out)
    assert first.exit_code == 0, first.output
    whole = out.read_bytes()
    assert converted(source, "-o", out).exit_code
    assert out.read_bytes() == whole
    assert converted(tmp_path / "release.zip", "-o", out, "--force").exit_code == 0

    assert (out.parent / "massbank.tsv.gz.report.tsv").exists()
    with gzip.open(out, "rt", encoding="utf-8") as stream:
        (row,) = csv.DictReader(stream, delimiter="\t")
    assert row["mzs"] == "121.0284,163.039"
    assert row["intensities"] == "1,0.25"
    assert (row["inchikey"], row["formula"]) == ("BSYNRYMUTXBXSQ", "C9H8O4")
    assert (row["adduct"], row["instrument_type"], row["fold"]) == ("[M+H]+", "Orbitrap", "train")
    assert float(row["collision_energy"]) == pytest.approx(50 * 181.0495 / 500, abs=0.01)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"MS_TYPE": "MS3"}, "not an MS2 spectrum"),
        ({"INSTRUMENT_TYPE": "GC-EI-TOF"}, "not ESI or APCI on a TOF or FT analyser"),
        ({"INSTRUMENT_TYPE": "LC-ESI-QQ"}, "not ESI or APCI on a TOF or FT analyser"),
        ({"LICENSE": "CC BY-NC-SA"}, "licence not open"),
        ({"LICENSE": "CC BY-ND"}, "licence not open"),
        ({"LICENSE": None}, "licence not open"),
        ({"PRECURSOR_TYPE": "[2M+H]+"}, "unsupported adduct"),
        ({"SMILES": "N/A"}, "unusable structure"),
        ({"SMILES": "CC[Hg]CC"}, "unsupported element"),
        ({"SMILES": f"{ASPIRIN}.O"}, "unusable structure"),
        ({"SMILES": "[13CH3]C(=O)Oc1ccccc1C(=O)O"}, "unusable structure"),
        ({"SMILES": "CCO"}, "too few or too many atoms"),
        ({"SMILES": "CC(=O)Oc1ccccc1C(=O)[O-]"}, "adduct does not fit the molecule"),
        ({"PRECURSOR_M/Z": "181.1"}, "precursor m/z differs"),
        ({"PRECURSOR_M/Z": "N/A"}, "no precursor m/z"),
        ({"PRECURSOR_M/Z": "nan"}, "precursor m/z differs"),
        ({"peaks": ""}, "no usable peaks"),
        ({"peaks": "  100.0 0 0\n"}, "no usable peaks"),
    ],
)
def test_what_the_data_set_does_not_take_is_rejected_by_reason(tmp_path, changes, reason):
    (item,) = screen(release(tmp_path / "release", record(**changes)))

    assert (item.reason, item.number, item.spectrum_id) == (reason, 1, "MSBNK-Made-A1")


@pytest.mark.parametrize("license_name", ["CC0", "CC BY", "CC BY-SA", "CC BY 4.0", "dl-de/by-2-0"])
def test_open_licences_are_taken(tmp_path, license_name):
    (cells,) = screen(release(tmp_path / "release", record(LICENSE=license_name)))

    assert cells["license"] == license_name


def test_equal_peaks_of_the_same_ion_are_kept_once(tmp_path):
    twice = release(tmp_path / "release", record(), record(COLLISION_ENERGY="20(NCE)"))

    kept, duplicate = screen(twice)

    assert kept["identifier"] == "MSBNK-Made-A1"
    assert duplicate.reason == "duplicate"


def test_folds_and_holdouts_are_honoured_and_counted(tmp_path):
    folder = release(tmp_path / "release", record(), record(SMILES="CC(=O)Oc1cccc(C(=O)O)c1"))
    lines = ("smiles\tInChIKey\tfold", "", "x\tBSYNRYMUTXBXSQ-UHFFFAOYSA-N\tTest", "", "")
    (tmp_path / "folds.tsv").write_text("\n".join(lines), encoding="utf-8")
    folds = read_folds(tmp_path / "folds.tsv")

    meta = inchikey_block(parse_smiles("CC(=O)Oc1cccc(C(=O)O)c1"))
    totals = rebuild_massbank(folder, tmp_path / "b.tsv", folds, holdout=frozenset({meta}))

    (row,) = rows_of(tmp_path / "b.tsv")
    assert (row["inchikey"], row["fold"]) == ("BSYNRYMUTXBXSQ", "test")
    assert (totals["spectra_before_holdout"], totals["spectra"]) == (2, 1)
    assert (totals["molecules_before_holdout"], totals["molecules"]) == (2, 1)
    assert totals["holdout_removed"] == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("AAA\ttrain\nAAA\ttest\n", "puts AAA into fold 'test' and elsewhere"),
        ("AAA\n", "puts AAA into fold ''"),
    ],
)
def test_a_molecule_in_two_folds_or_none_is_refused(tmp_path, rows, message):
    path = tmp_path / "folds.tsv"
    path.write_text(f"inchikey\tfold\n{rows}", encoding="utf-8")

    with pytest.raises(UnreadableError, match=message):
        read_folds(path)


def test_a_release_without_a_usable_record_is_refused(tmp_path):
    folder = release(tmp_path / "release", record(MS_TYPE="MS"))

    with pytest.raises(UnreadableError, match="no record"):
        rebuild_massbank(folder, tmp_path / "out.tsv")
