"""Features as files: what is said where nothing can be read."""

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

    with pytest.raises(UnreadableError, match=r"none of 1 record can be read; see .*out\.csv"):
        write_features((str(tmp_path / name),), output, "run", FeatureSettings())

    (row,) = rows_of(tmp_path / "out.csv")
    assert row["remarks"]


def test_one_that_can_be_read_is_enough(tmp_path):
    (tmp_path / "in.mgf").write_text(BROKEN + block(CAFFEINE))

    written, inputs = write_features(
        (str(tmp_path / "in.mgf"),), str(tmp_path / "out.mgf"), "run", FeatureSettings()
    )

    assert (written, inputs.n_features) == (1, 2)
