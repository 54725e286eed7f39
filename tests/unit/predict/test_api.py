import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import MissingInputError, UsageError
from duallgd_cli.predict.api import predict_spectra, with_own
from duallgd_cli.predict.journal import FinishedRun
from duallgd_cli.predict.run import predict, predictions
from duallgd_cli.spectra.reading import read
from duallgd_cli.writers.formats import COLUMNS
from tests.made_runs import SETTINGS, request
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model


@pytest.fixture
def spectra(tmp_path):
    return mgf(
        tmp_path / "in.mgf",
        block(ASPIRIN, feature_id="1"),
        block(CAFFEINE, formula=None),
        block(ALANINE, mslevel="1"),
        block(ASPIRIN, feature_id="1", scale=0.3),
    )


def untimed(predictions):
    return [
        replace(one, seconds=0, hypotheses=tuple(replace(h, seconds=0) for h in one.hypotheses))
        for one in predictions
    ]


def test_python_gives_what_the_command_line_writes_however_settings_are_given(spectra, tmp_path):
    predict(request(spectra, tmp_path / "out.csv"), stub_model())
    written = untimed(predictions(FinishedRun([tmp_path / "out.csv.journal.jsonl"])))

    assert untimed(stub_model().predict(spectra, SETTINGS)) == written
    assert untimed(stub_model().predict(spectra, samples=4, steps=1)) == written
    dotted = {"sampling.samples": 4, "sampling.steps": 1}
    assert untimed(stub_model().predict(spectra, **dotted)) == written
    in_order = predict_spectra(stub_model(), spectra, SETTINGS, top_k=1)
    assert [(one.source.index, len(one.candidates)) for one in in_order] == [(0, 1), (1, 1), (3, 1)]
    for changes, drawn in (({}, 30), ({"samples": 4}, 4)):
        fast = stub_model().predict(spectra, preset="fast", **changes)
        assert fast[0].hypotheses[0].sampled == drawn


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sample": 4}, r"unknown setting sample; did you mean samples\?"),
        ({"adducts": 4}, r"unknown setting adducts; did you mean adduct\?"),
        ({"presets": 4}, r"did you mean preset\?"),
        ({"gide": 4}, r"did you mean guide\?"),
        ({"zzz": 4}, "duallgd config lists all settings"),
        ({"preset": "quick"}, "preset must be one of"),
        ({"guide": "mine.smi"}, "guide must be GuideFiles"),
        ({"formula": "C2H6O", "formula_column": "F"}, "exclude each other"),
    ],
)
def test_what_cannot_be_set_is_refused(spectra, changes, said):
    with pytest.raises(UsageError, match=said):
        stub_model().predict(spectra, SETTINGS, **changes)


@pytest.mark.parametrize("wrong", [7, {"mz": [1.0]}, {"mz": [1.0], "intensity": []}])
def test_what_is_no_spectrum_or_no_file_is_refused(spectra, wrong):
    with pytest.raises(UsageError, match=r"item 0 .* is no spectrum; give matchms"):
        stub_model().predict([wrong])
    for absent in (Path("absent.mgf"), [Path(spectra), "absent.mgf"]):
        with pytest.raises(MissingInputError):
            stub_model().predict(absent)


def test_predictions_come_as_soon_as_they_are_there(spectra):
    drawn, model = [], stub_model()
    model = replace(model, encode=lambda peaks: drawn.append(1) or stub_model().encode(peaks))
    in_memory = [one for one in read(spectra) if one.ms_level == 2]

    found = model.predict(in_memory * 2, SETTINGS, group_by="none")

    assert next(iter(found)).status == "ok"
    assert len(drawn) == 1
    assert len(found) == len(list(found)) == len(drawn) == 6  # each is computed once
    assert found[0] is next(iter(found))


def test_spectra_of_matchms_and_dictionaries_are_taken_and_told_apart_by_order(spectra):
    ours = next(iter(read(spectra)))
    fields = {"precursor_mz": ours.precursor_mz, "formula": "C9H8O4", "adduct": "[M+H]+"}
    plain = fields | {"mz": ours.mz, "intensity": list(ours.intensity), "title": None}
    peaks = SimpleNamespace(mz=ours.mz, intensities=ours.intensity)
    theirs = SimpleNamespace(metadata=fields, peaks=peaks)

    found = predict_spectra(stub_model(), [ours, plain, theirs, ours], SETTINGS, group_by="none")

    assert [one.source.index for one in found] == [0, 3, 1, 2]  # by file
    assert found[0].status == "ok"
    assert [one.candidates for one in found] == [found[0].candidates] * 4


class LongestSmiles:
    """A score of the user's own: of molecules, with the spectrum at hand."""

    name = "longest"

    def __call__(self, query, molecules):
        assert query.annotated.hypothesis.feature.first.precursor_mz
        return [float(len(one.smiles)) for one in molecules]


def test_a_score_of_the_users_ranks_all_candidates_anew(spectra):
    settings = replace(SETTINGS, sampling=SamplingSettings(steps=1, samples=20))
    plain = stub_model().predict(spectra, settings, top_k=99)[0]
    before = {one.smiles: one.confidence for one in plain.candidates}

    found = with_own(stub_model(), scores=[LongestSmiles()]).predict(spectra, settings, top_k=2)
    best, second = found[0].candidates

    assert (best.rank, second.rank, len(best.smiles)) == (1, 2, max(map(len, before)))
    gained = [one.confidence / before[one.smiles] for one in (best, second)]
    difference = len(best.smiles) - len(second.smiles)
    assert gained[0] > 1
    assert gained[0] / gained[1] == pytest.approx(math.exp(difference))
    assert best.extra_scores["longest"] == len(best.smiles)
    assert best.score >= second.score
    assert best.confidence <= found[0].confidence_top10 <= sum(before.values())
    assert "scored by longest too: confidence is not calibrated" in found[0].warnings
    assert found.record["weights"]["own"] == ["longest"]
    assert "scored by" not in plain.warnings


def test_a_notebook_shows_the_first_candidates_drawn(spectra, tmp_path):
    bad = mgf(tmp_path / "bad.mgf", block(ASPIRIN, title="<b>x", pepmass="300.0"))

    shown = stub_model().predict([spectra, bad], SETTINGS)._repr_html_()
    many = stub_model().predict([one for one in read(bad)] * 22, SETTINGS, group_by="none")

    assert (shown.count("<svg"), shown.count("<p>")) == (3, 4)
    for said in ("C9H8O4", "m/z 181.0495", "&lt;b&gt;x", "formula_mismatch: C9H8O4"):
        assert said in shown
    assert stub_model().predict(spectra, SETTINGS).draw(1)._repr_html_().count("<svg") == 3
    assert many.draw().endswith("<p>and 2 more spectra</p>")


def test_a_table_has_the_columns_of_the_output_and_numbers(spectra):
    pytest.importorskip("pandas")
    frame = stub_model().predict(spectra, SETTINGS).to_dataframe()

    assert list(frame.columns) == list(COLUMNS)
    assert frame["confidence"].dtype == frame["precursor_mz"].dtype == "float64"
    assert (frame["rank"] == 1).sum() == 3
