"""A small share of ``make fuzz`` in every test run."""

import pytest

from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.formulas import table_source
from duallgd_cli.spectra.reading import read
from examples.make_examples import SPECTRA
from tests.fuzz.commands import fuzz_command
from tests.fuzz.corpus import sound_files
from tests.fuzz.kills import kill_and_resume
from tests.fuzz.loop import bounded_memory
from tests.fuzz.reading import fuzz_archives, fuzz_reading
from tests.fuzz.settings import fuzz_settings
from tests.fuzz.tables import fuzz_tables, sound_tables
from tests.fuzz.weights import fuzz_weights


@pytest.mark.parametrize("name", sound_files())
def test_the_files_to_be_broken_are_sound(name, tmp_path):
    (tmp_path / name).write_bytes(sound_files()[name])

    spectra = list(read(str(tmp_path / name)))

    assert len(spectra) >= 2
    assert all(item.failure is None for item in spectra)


@pytest.mark.slow
def test_broken_files_give_rows_or_one_sentence(tmp_path):
    seen = fuzz_reading(400, "tests", tmp_path)

    assert seen["ok"] > 100
    assert seen["unreadable"] > 10


@pytest.mark.slow
def test_broken_files_never_break_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    codes = fuzz_command(40, "tests", tmp_path)

    assert codes["exit code 0"] > 10


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path):
    assert len(kill_and_resume(1, "tests", tmp_path)) == 1


@pytest.mark.slow
def test_broken_weights_give_one_sentence_or_candidates(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    codes = fuzz_weights(40, "tests", tmp_path)

    assert codes["verify 69"] > 10
    assert codes["predict 0"] > 3


@pytest.mark.parametrize(
    ("fuzz", "count", "sound"),
    [
        (fuzz_archives, 100, "spectra"),
        (fuzz_tables, 60, "hypotheses"),
        (fuzz_settings, 20, "predict settings"),
    ],
)
def test_broken_archives_tables_and_settings_give_one_sentence(tmp_path, fuzz, count, sound):
    with bounded_memory():
        seen = fuzz(count, "tests", tmp_path)

    assert seen[sound] > 0
    assert seen.total() >= count


@pytest.mark.parametrize("program", sound_tables())
def test_the_tables_to_be_broken_are_sound(tmp_path, program):
    (tmp_path / "plain.ms").write_bytes(sound_files()["plain.ms"])
    (tmp_path / "table").write_bytes(sound_tables()[program])
    source = table_source(str(tmp_path / "table"))

    with Inputs((str(tmp_path / "plain.ms"),)) as inputs:
        found = [source(feature) for feature in inputs.features("feature")]

    assert [str(hypotheses[0].formula) for hypotheses in found] == [
        made.formula for made in SPECTRA[:4]
    ]
