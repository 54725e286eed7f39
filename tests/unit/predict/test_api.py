import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import MissingInputError, UsageError
from duallgd_cli.predict.api import predict_spectra, to_dataframe, with_own
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


def test_python_gives_what_the_command_line_writes(spectra, tmp_path):
    predict(request(spectra, tmp_path / "out.csv"), stub_model())
    written = list(predictions(FinishedRun([tmp_path / "out.csv.journal.jsonl"])))

    found = stub_model().predict(spectra, SETTINGS)

    assert [untimed(one) for one in found] == [untimed(one) for one in written]
    in_order = predict_spectra(stub_model(), spectra, SETTINGS)
    assert [one.source.index for one in in_order] == [0, 1, 3]


def untimed(prediction):
    hypotheses = tuple(replace(outcome, seconds=0.0) for outcome in prediction.hypotheses)
    return replace(prediction, seconds=0.0, hypotheses=hypotheses)


def test_spectra_that_say_the_same_place_are_told_apart(spectra):
    first = next(iter(read(spectra)))

    found = predict_spectra(stub_model(), [first, first, first], replace(SETTINGS, group_by="none"))

    assert [one.source.index for one in found] == [0, 1, 2]
    assert found[0].candidates == found[1].candidates == found[2].candidates


def test_the_callers_mistakes_are_errors(spectra, tmp_path):
    for absent in (tmp_path / "absent.mgf", [Path(spectra), tmp_path / "absent.mgf"]):
        with pytest.raises(MissingInputError):
            predict_spectra(stub_model(), absent)
    wrong = replace(SETTINGS, formula="C2H6O", formula_column="F")
    with pytest.raises(UsageError, match="exclude each other"):
        predict_spectra(stub_model(), spectra, wrong)


def test_settings_may_be_given_by_name(spectra):
    named = predict_spectra(stub_model(), spectra, samples=4, steps=1)

    assert [untimed(one) for one in named] == [
        untimed(one) for one in predict_spectra(stub_model(), spectra, SETTINGS)
    ]
    assert predict_spectra(stub_model(), spectra, SETTINGS, top_k=1)[0].candidates[1:] == ()
    dotted = {"sampling.samples": 4, "sampling.steps": 1}
    assert [untimed(one) for one in named] == [
        untimed(one) for one in predict_spectra(stub_model(), spectra, **dotted)
    ]
    for changes, drawn in (({}, 30), ({"samples": 4}, 4)):
        found = predict_spectra(stub_model(), spectra, preset="fast", **changes)
        assert found[0].hypotheses[0].sampled == drawn
    with pytest.raises(UsageError, match="preset must be one of"):
        predict_spectra(stub_model(), spectra, preset="quick")


@pytest.mark.parametrize(
    ("keyword", "hint"),
    [
        ("sample", r"did you mean samples\?"),
        ("sampels", r"did you mean samples\?"),
        ("adducts", r"did you mean adduct\?"),
        ("presets", r"did you mean preset\?"),
        ("gide", r"did you mean guide\?"),
        ("zzz", "duallgd config lists all settings"),
    ],
)
def test_a_misspelt_keyword_is_answered_with_the_nearest(spectra, keyword, hint):
    with pytest.raises(UsageError, match=f"unknown setting {keyword}; {hint}"):
        predict_spectra(stub_model(), spectra, **{keyword: 4})


def test_predictions_come_as_soon_as_they_are_there(spectra):
    drawn = []
    model = stub_model()
    encode = model.encode
    model = replace(model, encode=lambda peaks: (drawn.append(1), encode(peaks))[1])
    in_memory = [one for one in read(spectra) if one.ms_level == 2]

    found = model.predict(in_memory * 2, SETTINGS, group_by="none")

    assert next(iter(found)).status == "ok"
    assert len(drawn) == 1
    assert len(found) == len(list(found)) == len(drawn) == 6  # each is computed once
    assert found[0] is next(iter(found))


def plain(spectrum):
    return {
        "mz": spectrum.mz,
        "intensity": list(spectrum.intensity),
        "precursor_mz": spectrum.precursor_mz,
        "formula": spectrum.formula_text,
        "adduct": "[M+H]+",
    }


def test_dictionaries_and_spectra_of_matchms_are_taken(spectra):
    ours = next(iter(read(spectra)))
    metadata = {name: value for name, value in plain(ours).items() if name != "mz"}
    theirs = SimpleNamespace(
        metadata=metadata, peaks=SimpleNamespace(mz=ours.mz, intensities=ours.intensity)
    )

    expected, *found = predict_spectra(stub_model(), [ours, plain(ours), theirs], SETTINGS)

    assert expected.status == "ok"
    assert [one.candidates for one in found] == [expected.candidates] * 2


class LongestSmiles:
    """A score of one's own: of molecules, with the spectrum at hand."""

    name = "longest"

    def __call__(self, query, molecules):
        assert query.annotated.hypothesis.feature.first.precursor_mz
        return [float(len(one.smiles)) for one in molecules]


def test_a_score_of_ones_own_ranks_all_candidates_anew(spectra):
    settings = replace(SETTINGS, sampling=SamplingSettings(steps=1, samples=20))
    plain, several = (stub_model().predict(spectra, settings, top_k=n)[0] for n in (2, 99))
    model = with_own(stub_model(), scores=[LongestSmiles()])

    found = model.predict(spectra, settings, top_k=2)
    (best, second), before = found[0].candidates, {one.smiles: one for one in several.candidates}

    assert len(best.smiles) == max(map(len, before))
    assert (best.rank, second.rank) == (1, 2)
    assert best.extra_scores["longest"] == len(best.smiles)
    assert best.confidence > before[best.smiles].confidence
    assert best.score >= second.score
    ratio = before[best.smiles].confidence / before[second.smiles].confidence
    gained = best.extra_scores["longest"] - second.extra_scores["longest"]
    assert best.confidence / second.confidence == pytest.approx(ratio * math.exp(gained))
    assert (
        best.confidence <= found[0].confidence_top10 <= sum(c.confidence for c in before.values())
    )
    assert "scored by longest too: confidence is not calibrated" in found[0].warnings
    assert found.record["weights"]["own"] == ["longest"]
    assert "scored by" not in plain.warnings


def test_a_notebook_shows_the_first_candidates_drawn(spectra, tmp_path):
    bad = mgf(tmp_path / "bad.mgf", block(ASPIRIN, title="<b>x", pepmass="300.0"))

    shown = stub_model().predict([spectra, bad], SETTINGS)._repr_html_()

    assert shown.count("<svg") == 3
    assert "C9H8O4" in shown
    assert "&lt;b&gt;x" in shown
    assert "formula_mismatch" in shown
    assert stub_model().predict(spectra, SETTINGS).draw(1)._repr_html_().count("<svg") == 3


@pytest.mark.parametrize("wrong", [7, {"mz": [1.0]}, {"mz": [1.0], "intensity": []}])
def test_what_is_no_spectrum_is_a_usage_error(wrong):
    with pytest.raises(UsageError, match=r"item 0 .* is no spectrum; give matchms"):
        predict_spectra(stub_model(), [wrong], SETTINGS)


def test_a_table_has_the_columns_of_the_output_and_numbers(spectra):
    pytest.importorskip("pandas")
    frame = stub_model().predict(spectra, SETTINGS).to_dataframe()

    assert list(frame.columns) == list(COLUMNS)
    assert frame["confidence"].dtype == frame["precursor_mz"].dtype == "float64"
    assert frame["smiles"].iloc[0]
    assert len(frame) == len(to_dataframe(predict_spectra(stub_model(), spectra, SETTINGS)))
