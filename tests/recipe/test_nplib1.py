"""NPLIB1 to a table of the common layout; the spectra are made here."""

import pytest
from typer import Typer
from typer.testing import CliRunner

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.tables import table_rows
from recipes.nplib1 import LABELS, SPLIT, main, spectra_of
from tests import labelled_table

MS = """>compound {name}
>formula {formula}
>parentmass {precursor}
>ionization [M+H]+

>collision 10
{first}

>collision 40
{second}
"""


@pytest.fixture
def folder(tmp_path):
    """Five molecules in the layout of the release."""
    rows = labelled_table.rows(1)
    labels = ["dataset\tspec\tname\tionization\tformula\tsmiles\tinchikey\tinstrument"]
    split = ["name\tsplit"]
    (tmp_path / "spec_files").mkdir()
    (tmp_path / "splits").mkdir()
    for row in rows:
        name = row["identifier"]
        labels.append(f"nplib1\t{name}\t\t[M+H]+\t{row['formula']}\t{row['smiles']}\t\tOrbitrap")
        split.append(f"{name}\t{row['fold']}")
        mz = row["mzs"].split(",")
        text = MS.format(
            name=name,
            formula=row["formula"],
            precursor=row["precursor_mz"],
            first=f"{mz[-1]} 50",
            second="\n".join(f"{value} {10 * i + 10}" for i, value in enumerate(mz[:-1])),
        )
        (tmp_path / "spec_files" / f"{name}.ms").write_text(text)
    (tmp_path / LABELS).write_text("\n".join(labels) + "\n")
    (tmp_path / SPLIT).write_text("\n".join(split) + "\n")
    return tmp_path


def converted(*arguments):
    app = Typer()
    app.command()(main)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_release_becomes_a_benchmark_in_the_common_layout(folder):
    out = folder / "nplib1.tsv"
    out.write_text("of an earlier day")
    refused, kept = converted(folder, "-o", out), out.read_text()
    done = converted(folder, "-o", out, "--force")

    assert (refused.exit_code != 0, kept) == (True, "of an earlier day")
    assert done.exit_code == 0, done.output
    rows, expected = list(table_rows(out)), labelled_table.rows(1)
    assert [row["identifier"] for row in rows] == [row["identifier"] for row in expected]
    assert [row["fold"] for row in rows] == [row["fold"] for row in expected]
    assert rows[0]["adduct"] == "[M+H]+"
    assert float(rows[0]["precursor_mz"]) == pytest.approx(float(expected[0]["precursor_mz"]))
    # Energies of one file become one spectrum, each relative to its base peak.
    mz = [float(value) for value in rows[0]["mzs"].split(",")]
    assert (len(mz), mz) == (3, sorted(mz))
    assert sorted(map(float, rows[0]["intensities"].split(","))) == [0.5, 1.0, 1.0]
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
