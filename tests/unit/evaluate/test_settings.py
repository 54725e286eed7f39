import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate import EvaluateSettings
from duallgd_cli.evaluate.settings import parse_rivals


def test_an_unknown_choice_is_refused():
    with pytest.raises(UsageError, match="--spectra-per-molecule is 1 or all, not 'some'"):
        EvaluateSettings(spectra_per_molecule="some")


def test_two_rivals_of_one_name_are_refused():
    with pytest.raises(UsageError, match="is not a new name with weights"):
        parse_rivals(["a=one.safetensors", "a=two.safetensors"])
