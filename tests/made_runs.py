"""Runs with a stand-in for the model, and what was written."""

import csv
import io
import json
import zlib
from dataclasses import replace

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from tests.made_spectra import mgf
from tests.stub_model import StubNoise, stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=4))


def request(inputs, output, **values):
    inputs = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    return PredictRequest(inputs, str(output), **({"settings": SETTINGS} | values))


def model_with(*sources, **changes):
    """A stand-in whose molecules come from these sources."""
    return replace(stub_model(), sources=sources, **changes)


def rewrite(journal, change):
    """Write a journal anew, its lines changed as plain values and its checksums right."""
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    checksum, written = 0, []
    for values in change(lines):
        values.pop("crc32", None)
        body = json.dumps(values, separators=(",", ":")).encode().removesuffix(b"}")
        checksum = zlib.crc32(body, checksum)
        written.append(body + b',"crc32":"%08x"}\n' % checksum)
    journal.write_bytes(b"".join(written))


class Stopping:
    """Is interrupted, or breaks, when it comes to the given case."""

    def __init__(self, after, error):
        self.left, self.error = after, error

    name = "noise"

    def propose(self, query, n, seed):
        if self.left == 0:
            raise self.error
        self.left -= 1
        return StubNoise().propose(query, n, seed)


def predicted(folder, *blocks, model=None, **values):
    """Rows of a run over spectra of an MGF file, ``in.mgf`` of a folder."""
    made = mgf(folder / "in.mgf", *blocks)
    predict(request(made, folder / "out.csv", **values), model or stub_model())
    return rows_of(folder / "out.csv")


def rows_of(written):
    """Rows of a table: a text, or a file whose name says how it is written."""
    text = written if isinstance(written, str) else written.read_text("utf-8")
    delimiter = "\t" if getattr(written, "suffix", "") == ".tsv" else ","
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


def first_rows(rows):
    """The first row of each spectrum, by its index in the file."""
    return {row["index"]: row for row in reversed(rows)}


def lines_of(path):
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
