"""Runs with a stand-in for the model, and what was written."""

import csv
import io
import json
import zlib
from dataclasses import replace

from duallgd_cli import __version__, config
from duallgd_cli.chem.identity import canonical_smiles, parse_smiles
from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.journal import Journal
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import ENDING, PredictRequest, PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.results import (
    ExplainedPeak,
    FeatureResult,
    Header,
    HypothesisResult,
    MeasuredPeaks,
    SpectrumReference,
    Structure,
)
from duallgd_cli.scores import Molecule
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.types import Source
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, NICOTINE, block, mgf
from tests.stub_model import StubNoise, stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=4))


def request(inputs, output, **values):
    inputs = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    return PredictRequest(inputs, str(output), **({"settings": SETTINGS} | values))


def model_with(*sources, **changes):
    """A stand-in whose molecules come from these sources, if there are any."""
    return replace(stub_model(), **{"sources": sources} if sources else {}, **changes)


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


# Twelve spectra of ten features and an MS1 spectrum, among them every kind of trouble.
TWELVE = (
    block(ASPIRIN, feature_id="1", title="a"),
    block(CAFFEINE, feature_id="2", title="b"),
    block(ASPIRIN, mslevel="1"),
    block(ASPIRIN, scale=0.5, feature_id="1", title="a"),
    block(ALANINE, title="b"),
    block(NICOTINE, formula=None),
    block(NICOTINE, pepmass="200.0"),
    block(CAFFEINE, adduct="[M+Na]+"),
    block(CAFFEINE, scale=2.0, ADDUCT="[2M+3K]+"),
    block(CAFFEINE, FORMULA="C8H10N4O2U"),
    "BEGIN IONS\nPEPMASS=195.0877\nFORMULA=C8H10N4O2\nADDUCT=[M+H]+\nEND IONS\n",
    block(NICOTINE, title=""),
    block(ALANINE, scale=3.0),
)


class Given:
    """A source of these items, of which errors are raised."""

    def __init__(self, *items, name="mine"):
        self.items, self.name = items, name

    def propose(self, query, n, seed):
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


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


def structure_of(smiles, samples, *sources):
    """A molecule that sources proposed, with its names, family and scaffold."""
    mol = parse_smiles(smiles)
    named = Molecule.of(mol, canonical_smiles(mol))
    about = named.smiles, named.inchi, named.inchikey, samples, 0, -10.0, tuple(sorted(sources))
    return Structure(*about, named.family, named.scaffold)


def written_run(folder, *results, **settings):
    """Output of a finished run whose journal holds these results, each of a feature of its own."""
    made = mgf(folder / "made.mgf", *[block(ASPIRIN)] * len(results))
    about = config.dump(replace(SETTINGS, **settings))
    model = {"name": "made", "sha256": "0" * 64, "engine": "torch"}
    model["ranking"] = config.dump(RankingModel())
    with Inputs((str(made),)) as inputs:
        header = Header(__version__, about, model, inputs.identity())
        with Journal.opened(folder / f"out.csv{ENDING}", header) as journal:
            for number, result in enumerate(results):
                source = Source(str(made), number)
                spectrum = SpectrumReference(source, f"F{number}", precursor_mz=181.05)
                peaks = dict.fromkeys(peak[:2] for peak in result.peaks)
                measured = MeasuredPeaks("20 eV", *zip(*sorted(peaks), strict=True))
                journal.append(
                    FeatureResult(number, (spectrum,), (measured,), hypotheses=(result,))
                )
            journal.finish({"cases": len(results), "ms1": 0})
    return folder / "out.csv"


ASPIRIN_KEY = "BSYNRYMUTXBXSQ-UHFFFAOYSA-N"
MATCH = {
    "name": "Aspirin <b>", "library": "mine.msp", "score": 0.931, "matched_peaks": 7,
    "smiles": "CC(=O)Oc1ccccc1C(=O)O", "inchikey": ASPIRIN_KEY, "formula": "C9H8O4",
    "offered": True, "probability": 0.4,
}  # fmt: skip


def aspirin_result(**values):
    """Isomers of aspirin: three of one family, and two that are alone."""
    structures = (
        structure_of("CC(=O)Oc1ccccc1C(=O)O", 5, "library", "noise"),
        structure_of("OC(=O)C=Cc1ccc(O)c(O)c1", 6, "templates", "database"),
        structure_of("CC(=O)Oc1cccc(C(=O)O)c1", 4, "enumerated"),
        structure_of("CC(=O)Oc1ccc(C(=O)O)cc1", 3, "analogues", "<i>mine"),
        structure_of("OC(=O)C(O)C(=O)c1ccccc1", 1, "noise"),
    )
    peaks = (
        ExplainedPeak(139.039, 1.0, "C7H7O3", 0.5),
        ExplainedPeak(121.0284, 0.5, "C7H5O2", 1.0),
    )
    shared = {
        "formula": "C9H8O4", "adduct": "[M+H]+", "n_heavy": 13, "structures": structures,
        "sampled": 20, "assembled": 20, "n_peaks": 3, "n_explained": 2,
        "explained_intensity": 0.8, "peaks": peaks, "known": {"library_match": MATCH},
    }  # fmt: skip
    return HypothesisResult("ok", **(shared | values))
