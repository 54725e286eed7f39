"""Features as files: what is said where nothing can be read."""

import gzip

import pytest

from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.run import FeatureSettings
from duallgd_cli.writers.features import write_features
from tests.made_runs import rows_of
from tests.made_spectra import CAFFEINE, block

BROKEN = "BEGIN IONS\nPEPMASS=abc\n100.0 x\nEND IONS\n"


def written(folder, content, name="in.mgf"):
    """How many features were written and not, and why; and the remarks of the table."""
    (folder / name).write_bytes(content)
    try:
        result = write_features(
            (str(folder / name),), str(folder / "out.mgf"), "run", FeatureSettings()
        )
    except UnreadableError as error:
        result = str(error)
    return result, [row["remarks"] for row in rows_of(folder / "out.csv")]


@pytest.mark.parametrize(
    ("name", "text"),
    [("in.mgf", BROKEN.encode()), ("in.mzML", b"<mzML><run><spectrum id='scan=1' ")],
)
def test_where_no_record_can_be_read_it_is_an_error_and_the_table_says_why(tmp_path, name, text):
    said, (remarks,) = written(tmp_path, text, name)

    assert said == f"none of 1 record can be read: {remarks}; see {tmp_path / 'out.csv'}"
    assert said.count(";") > 1


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_read_is_written_and_what_is_not_is_said(tmp_path, packed):
    content = (BROKEN + block(CAFFEINE) * 50).encode()

    (n_written, n_left_out, why), rows = written(
        tmp_path, gzip.compress(content)[:-40] if packed else content
    )

    assert n_written + n_left_out == len(rows)
    assert n_written > 0
    assert (n_left_out, "the file ends early after" in why) == (1 + packed, packed)
