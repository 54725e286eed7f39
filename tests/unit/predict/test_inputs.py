"""Inputs of a run that are no ordinary file, or that nobody may look at."""

import os
import sys
import threading

import pytest

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.predict.run import predict
from duallgd_cli.spectra.features import Inputs, count_spectra
from tests.made_runs import predicted, request, rows_of
from tests.made_spectra import ASPIRIN, CAFFEINE, block
from tests.stub_model import stub_model

TOO_LONG = "a" * 300 + ".mgf"  # stat refuses it, as it refuses what lies in a locked folder


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_an_input_like_any_other(tmp_path):
    from_file = predicted(tmp_path, block(ASPIRIN), block(CAFFEINE))
    pipe, output = tmp_path / "pipe", tmp_path / "piped.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=((tmp_path / "in.mgf").read_bytes(),))
    writer.start()

    assert count_spectra((str(pipe),), "none") is None  # counting would leave nothing for the run
    assert predict(request(str(pipe), output), stub_model()).n_spectra == 2
    writer.join()

    assert [row["smiles"] for row in rows_of(output)] == [row["smiles"] for row in from_file]


def test_an_input_that_cannot_be_looked_at_is_an_error_in_words(monkeypatch):
    with pytest.raises(UnreadableError, match=r"aaa\.\.\. cannot be read: File name too long"):
        Inputs((TOO_LONG,)).__enter__()
    assert count_spectra((TOO_LONG,), "run") is None
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(MissingInputError, match="standard input is closed"):
        Inputs(("-",)).__enter__()
