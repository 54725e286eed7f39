import pytest

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.evaluate.suites import nplib1
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
    (tmp_path / nplib1.LABELS).write_text("\n".join(labels) + "\n")
    (tmp_path / nplib1.SPLIT).write_text("\n".join(split) + "\n")
    return tmp_path


def test_the_release_is_read_as_rows_of_the_common_layout(folder):
    rows = list(nplib1.suite(folder).rows())

    expected = labelled_table.rows(1)
    assert [row["identifier"] for row in rows] == [row["identifier"] for row in expected]
    assert [row["fold"] for row in rows] == [row["fold"] for row in expected]
    assert rows[0]["adduct"] == "[M+H]+"
    assert float(rows[0]["precursor_mz"]) == pytest.approx(float(expected[0]["precursor_mz"]))


def test_energies_of_one_file_become_one_spectrum_each_relative_to_its_base_peak(folder):
    row = next(iter(nplib1.suite(folder).rows()))

    mz = [float(value) for value in row["mzs"].split(",")]
    intensity = [float(value) for value in row["intensities"].split(",")]
    assert mz == sorted(mz)
    assert len(mz) == 3
    assert sorted(intensity) == [0.5, 1.0, 1.0]


def test_spectra_outside_the_split_are_left_out(folder):
    (folder / nplib1.SPLIT).write_text("name\tsplit\nS00\ttest\n")

    assert [row["identifier"] for row in nplib1.suite(folder).rows()] == ["S00"]


@pytest.mark.parametrize("part", ["labels.tsv", "splits/canopus_hplus_100_0.tsv"])
def test_a_missing_part_is_named(folder, part):
    (folder / part).unlink()

    with pytest.raises(MissingInputError, match=part):
        nplib1.suite(folder)


def test_a_missing_or_empty_spectrum_is_named(folder):
    (folder / "spec_files" / "S00.ms").write_text(">compound S00\n>parentmass 181.05\n>ms2\n")

    with pytest.raises(UnreadableError, match=r"S00.ms"):
        list(nplib1.suite(folder).rows())

    (folder / "spec_files" / "S00.ms").unlink()
    with pytest.raises(MissingInputError, match=r"S00.ms does not exist"):
        list(nplib1.suite(folder).rows())


def test_without_a_folder_the_message_says_what_it_holds():
    with pytest.raises(MissingInputError, match=r"labels.tsv, splits, spec_files"):
        nplib1.suite(None)
