"""Features as files: what is said where nothing can be read."""

import gzip

import pytest

from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.run import FeatureSettings
from duallgd_cli.writers.features import write_features
from tests.made_runs import rows_of
from tests.made_spectra import CAFFEINE, block

BROKEN = "BEGIN IONS\nPEPMASS=abc\n100.0 x\nEND IONS\n"


@pytest.mark.parametrize(
    ("name", "text"), [("in.mgf", BROKEN), ("in.mzML", "<mzML><run><spectrum id='scan=1' ")]
)
def test_where_no_record_can_be_read_it_is_an_error_and_the_table_says_why(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    output = str(tmp_path / "out.mgf")

    with pytest.raises(UnreadableError) as refused:
        write_features((str(tmp_path / name),), output, "run", FeatureSettings())

    (row,) = rows_of(tmp_path / "out.csv")
    said = f"none of 1 record can be read: {row['remarks']}; see {tmp_path / 'out.csv'}"
    assert str(refused.value) == said
    assert said.count(";") > 1


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_read_is_written_and_what_is_not_is_said(tmp_path, packed):
    content = (BROKEN + block(CAFFEINE) * 50).encode()
    (tmp_path / "in.mgf").write_bytes(gzip.compress(content)[:-40] if packed else content)

    n_written, n_left_out, why = write_features(
        (str(tmp_path / "in.mgf"),), str(tmp_path / "out.mgf"), "run", FeatureSettings()
    )

    assert n_written + n_left_out == len(rows_of(tmp_path / "out.csv"))
    assert n_written > 0
    assert n_left_out == 1 + packed
    assert ("the file ends early after" in why) == packed
