"""Inputs as users name them: folders, patterns, and raw data that must be converted first."""

import logging

import pytest

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.reading import read, spectrum_files
from tests.made_spectra import ASPIRIN, block, mgf


@pytest.fixture
def folder(tmp_path):
    for name in ("b.mgf", "a.MGF", "c.msp.gz", "notes.txt", "out.csv"):
        mgf(tmp_path / name, block(ASPIRIN))
    (tmp_path / "deeper.mgf").mkdir()
    return tmp_path


def test_a_folder_gives_its_files_of_spectra_by_name(folder):
    found = spectrum_files([str(folder)])

    assert [name.rpartition("/")[2] for name in found] == ["a.MGF", "b.mgf", "c.msp.gz"]


def test_a_pattern_that_the_shell_left_gives_what_it_matches(folder):
    assert spectrum_files([f"{folder}/?.mgf"]) == (f"{folder}/b.mgf",)
    assert spectrum_files(["-", f"{folder}/notes.txt"]) == ("-", f"{folder}/notes.txt")
    absent = spectrum_files([f"{folder}/*.mzML"])
    with pytest.raises(MissingInputError, match="does not exist"), Inputs(absent):
        pass


def test_raw_data_beside_spectra_are_warned_of(folder, caplog):
    (folder / "run.d").mkdir()

    with caplog.at_level(logging.WARNING):
        assert len(spectrum_files([str(folder)])) == 3

    assert "run.d is left out: raw data of a Bruker" in caplog.text


@pytest.mark.parametrize(
    ("name", "said"),
    [("run.d", "Bruker or Agilent .* msconvert"), ("none", r"holds no file of spectra \(\.mgf")],
)
def test_a_folder_without_spectra_says_what_to_do(tmp_path, name, said):
    (tmp_path / name).mkdir()

    with pytest.raises(UnreadableError, match=said):
        spectrum_files([str(tmp_path / name)])


def test_a_folder_of_raw_data_alone_names_the_converter(tmp_path):
    (tmp_path / "run.raw").write_bytes(b"\x01\xa1F\x00" * 100)

    with pytest.raises(UnreadableError, match=r"run\.raw is raw data of a Thermo"):
        spectrum_files([str(tmp_path)])
    with pytest.raises(UnreadableError, match=r"run\.raw is raw data of a Thermo.*RawFileParser"):
        read(str(tmp_path / "run.raw"))
