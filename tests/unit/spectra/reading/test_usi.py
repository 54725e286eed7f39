"""Lists of universal spectrum identifiers, looked up in files beside the list."""

import pytest

from duallgd_cli.spectra.reading import read
from tests.fuzz.corpus import sound_files


@pytest.fixture
def listed(tmp_path):
    """Read a list that lies beside two runs."""
    (tmp_path / "MSV1").mkdir()
    (tmp_path / "MSV1" / "run.7.mzML").write_bytes(sound_files()["plain.mzML"])
    (tmp_path / "other.MGF.gz").write_bytes(sound_files()["plain.mgf.gz"])

    def read_list(*usis, name="list.txt"):
        (tmp_path / name).write_text("\n".join(usis), "utf-8")
        return list(read(str(tmp_path / name)))

    return read_list


def test_spectra_come_in_the_order_of_the_list(listed):
    usis = [
        "mzspec:MSV1:run.7:scan:2",
        "mzspec:MSV1:run.7:scan:1:[M+H]+/1",
        "mzspec:MSV2:other:index:3",
    ]

    found = listed("usi", *usis)

    assert [one.spectrum_id for one in found] == usis
    assert [one.scans for one in found][:2] == ["2", "1"]
    assert found[2].adduct_text == "[M-H]-"
    assert [one.source.index for one in found] == [0, 1, 2]


def test_what_is_not_beside_the_list_is_a_row_that_says_so(listed):
    found = listed(
        "mzspec:MSV1:run.7:scan:1",
        "mzspec:MSV1:run.7:scan:99",
        "mzspec:MSV1:absent:scan:1",
        "mzspec:..:run.7:scan:1",
        "mzspec:MSV1:../MSV1/run.7:scan:1",
        "mzspec:no",
    )

    assert found[0].failure is None
    said = [one.failure.message for one in found[1:]]
    assert said[0] == "'run.7' holds no scan '99'"
    assert all("beside the list" in one for one in said[1:4])
    assert "is no USI such as" in said[4]


def test_a_list_does_not_name_lists(listed):
    (found,) = listed("mzspec:MSV2:again:scan:1", name="again.mgf")

    assert "is itself a list" in found.failure.message
