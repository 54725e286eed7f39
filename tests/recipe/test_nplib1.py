"""NPLIB1 to a table of the common layout; the spectra are made here."""

import pytest
from typer import Typer
from typer.testing import CliRunner

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.tables import table_rows
from recipes.nplib1 import LABELS, SPLIT, main, spectra_of
from tests import labelled_table

ROWS = labelled_table.rows(1)


@pytest.fixture
def folder(tmp_path):
    """Five molecules in the layout of the release."""
    labels = ["dataset\tspec\tname\tionization\tformula\tsmiles\tinchikey\tinstrument"]
    (tmp_path / "spec_files").mkdir()
    (tmp_path / "splits").mkdir()
    for row in ROWS:
        name, formula, (*others, last) = row["identifier"], row["formula"], row["mzs"].split(",")
        labels.append(f"nplib1\t{name}\t\t[M+H]+\t{formula}\t{row['smiles']}\t\tOrbitrap")
        second = "\n".join(f"{mz} {10 * i + 10}" for i, mz in enumerate(others))
        (tmp_path / "spec_files" / f"{name}.ms").write_text(
            f">compound {name}\n>formula {formula}\n>parentmass {row['precursor_mz']}\n"
            f">ionization [M+H]+\n\n>collision 10\n{last} 50\n\n>collision 40\n{second}\n"
        )
    (tmp_path / LABELS).write_text("\n".join([*labels, ""]))
    split = (f"{row['identifier']}\t{row['fold']}\n" for row in ROWS)
    (tmp_path / SPLIT).write_text("".join(["name\tsplit\n", *split]))
    return tmp_path


def converted(*arguments):
    app = Typer()
    app.command()(main)
    return CliRunner().invoke(app, [str(argument) for argument in arguments]).exit_code


def test_the_release_becomes_a_benchmark_in_the_common_layout(folder):
    out = folder / "nplib1.tsv"
    out.write_text("of an earlier day")
    assert converted(folder, "-o", out) != 0
    assert out.read_text() == "of an earlier day"

    assert converted(folder, "-o", out, "--force") == 0

    rows = list(table_rows(out))
    for name in ("identifier", "fold", "adduct", "smiles", "formula"):
        assert [row[name] for row in rows] == [row[name] for row in ROWS]
    assert float(rows[0]["precursor_mz"]) == pytest.approx(float(ROWS[0]["precursor_mz"]))
    # Energies of one file become one spectrum, each relative to its base peak.
    mz, intensities = ([float(x) for x in rows[0][n].split(",")] for n in ("mzs", "intensities"))
    assert (len(mz), mz, sorted(intensities)) == (3, sorted(mz), [0.5, 1.0, 1.0])
    (folder / SPLIT).write_text("name\tsplit\nS00\ttest\n")  # others are left out
    assert [row["identifier"] for row in spectra_of(folder, folder / SPLIT)] == ["S00"]


@pytest.mark.parametrize(
    ("name", "text", "error", "words"),
    [
        ("spec_files/S00.ms", None, MissingInputError, "S00.ms does not exist, though labels.tsv"),
        ("spec_files/S00.ms", ">compound S00\n", UnreadableError, "S00.ms"),
        ("splits/canopus_hplus_100_0.tsv", None, MissingInputError, "canopus_hplus_100_0.tsv"),
        (LABELS, "name\tsmiles\nS00\tCCO\n", UnreadableError, "no column spec"),
    ],
)
def test_a_part_that_is_missing_is_said(folder, name, text, error, words):
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)

    with pytest.raises(error, match=words):
        list(spectra_of(folder, folder / SPLIT))
