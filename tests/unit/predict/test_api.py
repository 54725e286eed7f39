import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import duallgd_cli
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import MissingInputError, UsageError
from duallgd_cli.predict.api import iter_predictions, predict_spectra, to_dataframe
from duallgd_cli.predict.journal import FinishedRun
from duallgd_cli.predict.output import predictions
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.predict.writers import COLUMNS
from duallgd_cli.spectra.reading import read
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=4))


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
    request = PredictRequest((spectra,), str(tmp_path / "out.csv"), settings=SETTINGS)
    predict(request, stub_model())
    written = list(predictions(FinishedRun([tmp_path / "out.csv.journal.jsonl"])))

    found = predict_spectra(stub_model(), spectra, SETTINGS)

    assert [untimed(one) for one in found] == [untimed(one) for one in written]


def untimed(prediction):
    hypotheses = tuple(replace(outcome, seconds=0.0) for outcome in prediction.hypotheses)
    return replace(prediction, seconds=0.0, hypotheses=hypotheses)


def test_spectra_in_memory_are_predicted_in_order(spectra):
    in_memory = predict_spectra(stub_model(), list(read(spectra)), SETTINGS)

    assert [one.source.index for one in in_memory] == [0, 1, 3]
    assert [one.status for one in in_memory] == ["ok", "ok", "ok"]


def test_spectra_that_say_the_same_place_are_told_apart(spectra):
    first = next(iter(read(spectra)))

    found = predict_spectra(stub_model(), [first, first, first], replace(SETTINGS, group_by="none"))

    assert [one.source.index for one in found] == [0, 1, 2]
    assert found[0].candidates == found[1].candidates == found[2].candidates


def test_the_callers_mistakes_are_errors(spectra, tmp_path):
    with pytest.raises(MissingInputError):
        predict_spectra(stub_model(), tmp_path / "absent.mgf")
    wrong = replace(SETTINGS, formula="C2H6O", formula_column="F")
    with pytest.raises(UsageError, match="exclude each other"):
        predict_spectra(stub_model(), spectra, wrong)


def test_no_spectra_give_no_predictions():
    assert predict_spectra(stub_model(), []) == []


def test_settings_may_be_given_by_name(spectra):
    named = predict_spectra(stub_model(), spectra, samples=4, steps=1)

    assert [untimed(one) for one in named] == [
        untimed(one) for one in predict_spectra(stub_model(), spectra, SETTINGS)
    ]
    assert predict_spectra(stub_model(), spectra, SETTINGS, top_k=1)[0].candidates[1:] == ()
    with pytest.raises(UsageError, match="unknown setting sample; did you mean sampl"):
        predict_spectra(stub_model(), spectra, sample=4)


def test_predictions_come_as_soon_as_they_are_there(spectra):
    drawn = []
    model = stub_model()
    generate = model.generator.generate
    model.generator.generate = lambda *given: (drawn.append(1), generate(*given))[1]
    in_memory = [one for one in read(spectra) if one.ms_level == 2]

    coming = iter_predictions(model, in_memory * 2, SETTINGS, group_by="none")

    assert next(coming).status == "ok"
    assert len(drawn) == 1


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


@pytest.mark.slow
def test_a_real_spectrum_of_matchms_is_taken(spectra):
    matchms = pytest.importorskip("matchms")
    ours = next(iter(read(spectra)))
    metadata = {name: value for name, value in plain(ours).items() if name[:2] not in ("mz", "in")}

    theirs = matchms.Spectrum(ours.mz, ours.intensity, metadata)
    found = predict_spectra(stub_model(), [ours, theirs], SETTINGS)

    assert found[0].candidates == found[1].candidates


@pytest.mark.parametrize("wrong", [7, {"mz": [1.0]}, {"mz": [1.0], "intensity": []}])
def test_what_is_no_spectrum_is_a_usage_error(wrong):
    with pytest.raises(UsageError, match=r"item 0 .* is no spectrum; give matchms"):
        predict_spectra(stub_model(), [wrong], SETTINGS)


def test_a_table_has_the_columns_of_the_output_and_numbers(spectra):
    pytest.importorskip("pandas")
    frame = to_dataframe(predict_spectra(stub_model(), spectra, SETTINGS))

    assert list(frame.columns) == list(COLUMNS)
    assert frame["confidence"].dtype == frame["precursor_mz"].dtype == "float64"
    assert frame["smiles"].iloc[0]


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, duallgd_cli; "
        "print([m for m in ('torch', 'rdkit', 'matchms', 'numpy') if m in sys.modules])"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


def test_the_package_offers_load_and_predict_spectra():
    assert duallgd_cli.predict_spectra is predict_spectra
    assert callable(duallgd_cli.load)
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        duallgd_cli.absent  # noqa: B018
