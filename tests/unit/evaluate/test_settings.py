import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate import EvaluateSettings
from duallgd_cli.evaluate.settings import parse_rivals, parse_sweep


def test_an_unknown_choice_is_refused():
    with pytest.raises(UsageError, match="--spectra-per-molecule is 1 or all, not 'some'"):
        EvaluateSettings(spectra_per_molecule="some")


def test_values_are_read_ascending_and_once():
    assert parse_sweep("steps=10, 1,10") == ("steps", (1, 10))


@pytest.mark.parametrize("text", ["steps", "steps=", "steps=0", "seed=1", "samples=1.5"])
def test_what_is_no_sweep_is_refused(text):
    with pytest.raises(UsageError, match="is not like steps=1,2,5"):
        parse_sweep(text)


def test_two_rivals_of_one_name_are_refused():
    with pytest.raises(UsageError, match="is not a new name with weights"):
        parse_rivals(["a=one.safetensors", "a=two.safetensors"])
