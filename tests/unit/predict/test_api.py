"""From Python: results of the command, spectra of any kind, sources and scores of a user."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.errors import MissingInputError, UsageError
from duallgd_cli.predict.api import predict_spectra, with_own
from duallgd_cli.predict.journal import read as read_journals
from duallgd_cli.predict.run import predict, predictions
from duallgd_cli.sources import Proposal
from duallgd_cli.spectra.reading import read
from duallgd_cli.writers.formats import COLUMNS
from tests import made_plugins
from tests.made_runs import SETTINGS, Given, Stopping, model_with, request
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

SMILES = "CC(=O)Oc1ccccc1C(=O)O"


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
    written = untimed(predictions(read_journals([tmp_path / "out.csv.journal.jsonl"])))

    for settings, changes in (
        (SETTINGS, {}),
        (None, {"samples": 4, "steps": 1}),
        (None, {"sampling.samples": 4, "sampling.steps": 1}),
    ):
        assert untimed(stub_model().predict(spectra, settings, **changes)) == written
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
        ({"spectra": 7}, r"item 0 \(int\) is no spectrum; give matchms"),
        ({"spectra": {"mz": [1.0]}}, "item 0 .* is no spectrum"),
        ({"spectra": [7]}, r"item 0 \(int\) is no spectrum; give matchms"),
        ({"spectra": [{"mz": [1.0]}]}, "item 0 .* is no spectrum"),
        ({"spectra": [{"mz": [1.0], "intensity": []}]}, "item 0 .* is no spectrum"),
        ({"spectra": Path("absent.mgf")}, "absent.mgf"),
        ({"spectra": [Path(__file__), "absent.mgf"]}, "absent.mgf"),
    ],
)
def test_what_cannot_be_is_refused(spectra, changes, said):
    asked = {"spectra": spectra, "settings": SETTINGS} | changes
    with pytest.raises((UsageError, MissingInputError), match=said):
        stub_model().predict(**asked)


def test_predictions_come_as_soon_as_they_are_there(spectra):
    drawn, model = [], stub_model()
    model = replace(model, encode=lambda peaks: drawn.append(1) or stub_model().encode(peaks))
    in_memory = [one for one in read(spectra) if one.ms_level == 2]

    found = model.predict(in_memory * 2, SETTINGS, group_by="none")

    assert (next(iter(found)).status, len(drawn)) == ("ok", 1)
    assert len(found) == len(list(found)) == len(drawn) == 6  # each is computed once
    assert found[0] is next(iter(found))


def test_what_broke_off_is_not_taken_for_the_whole(spectra):
    found = model_with(Stopping(1, KeyboardInterrupt())).predict(spectra, SETTINGS)
    known = []

    with pytest.raises(KeyboardInterrupt):
        len(found)

    with pytest.raises(UsageError, match="broke off after 2 predictions; predict again"):
        len(found)
    with pytest.raises(UsageError, match="broke off"):
        known.extend(iter(found))
    assert [one.spectrum_id for one in known] == ["1", "1"]


def test_spectra_of_matchms_and_dictionaries_are_taken_and_told_apart_by_order(spectra):
    ours = next(iter(read(spectra)))
    fields = {"precursor_mz": ours.precursor_mz, "formula": "C9H8O4", "adduct": "[M+H]+"}
    plain = fields | {"mz": ours.mz, "intensity": list(ours.intensity), "title": None}
    peaks = SimpleNamespace(mz=ours.mz, intensities=ours.intensity)
    given = [ours, plain, SimpleNamespace(metadata=fields, peaks=peaks), ours]

    found = stub_model().predict(given, SETTINGS, group_by="none")

    assert [one.source.index for one in found] == [0, 1, 2, 3]
    assert found[0].status == "ok"
    assert [one.candidates for one in found] == [found[0].candidates] * 4
    for alone in given[:3]:
        (one,) = stub_model().predict(alone, SETTINGS)
        assert one.candidates == found[0].candidates


def test_a_notebook_shows_the_first_candidates_drawn_and_a_table_the_columns(spectra, tmp_path):
    bad = mgf(tmp_path / "bad.mgf", block(ASPIRIN, title="<b>x", pepmass="300.0"))

    shown = stub_model().predict([spectra, bad], SETTINGS)
    many = stub_model().predict([*read(bad)] * 22, SETTINGS, group_by="none")

    page = shown._repr_html_()
    assert (page.count("<svg"), page.count("<p>")) == (3, 4)
    for said in ("C9H8O4", "m/z 181.0495", "&lt;b&gt;x", "formula_mismatch: C9H8O4"):
        assert said in page
    assert shown.draw(1)._repr_html_().count("<svg") == 3
    assert many.draw().endswith("<p>and 2 more spectra</p>")
    pytest.importorskip("pandas")
    frame = shown.to_dataframe()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["confidence"].dtype == frame["precursor_mz"].dtype == "float64"
    assert (frame["rank"] == 1).sum() == 3


class Score:
    """Gives what a function makes of the molecules, and looks at the spectrum."""

    def __init__(self, give=list, name="liked"):
        self.give, self.name = give, name

    def __call__(self, query, molecules):
        assert query.annotated.hypothesis.feature.first.precursor_mz
        return self.give(molecules)


def of_aspirin_and_caffeine(given=(), scores=(), **changes):
    """Predictions with sources and scores of a user."""
    spectra = [
        {"mz": [121.0284], "intensity": [1.0], "precursor_mz": mz, "formula": formula}
        for mz, formula in ((181.04954, "C9H8O4"), (195.08765, "C8H10N4O2"))
    ]
    model = with_own(stub_model(), given, scores)
    return list(model.predict(spectra, SETTINGS, **{"top_k": 99} | changes))


def of(source, prediction):
    return [one for one in prediction.candidates if source in one.sources]


@pytest.mark.parametrize(
    "item", [SMILES, parse_smiles(SMILES), Proposal("whatever", parse_smiles(SMILES), -3.0)]
)
def test_molecules_come_as_smiles_as_molecules_or_as_proposals(item):
    first, second = of_aspirin_and_caffeine([Given(item)])

    assert [one.smiles for one in of("mine", first)] == [SMILES]
    assert of("mine", second) == []
    (tried,) = second.hypotheses
    assert (tried.rejected["another formula"], tried.sampled) == (1, 4 + 1)


def test_what_a_source_gives_too_much_or_wrong_costs_that_alone():
    wrong = Given("nonsense", 7, None, SMILES, KeyError("x"), SMILES)

    plain, found = of_aspirin_and_caffeine(), of_aspirin_and_caffeine([wrong])
    many = [Given(*[SMILES] * 500)]
    limited, _ = of_aspirin_and_caffeine(many, samples=10, sources="mine=30 noise=70")

    assert all("source mine failed: KeyError: 'x'" in one.warnings for one in found)
    assert found[0].hypotheses[0].rejected["not a molecule"] == 3
    (own,) = of("mine", found[0])
    assert own.samples == 1 or "noise" in own.sources
    blocks = [{c.inchikey14 for c in each.candidates} for each in (plain[1], found[1])]
    assert blocks[0] == blocks[1]
    (mine,) = of("mine", limited)
    assert (limited.hypotheses[0].sampled, mine.samples >= 3) == (10, True)


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda molecules: [np.nan] * len(molecules), "score liked does not count: it must give"),
        (lambda molecules: [1.0], "score liked does not count: it must give"),
        (lambda molecules: "abc", "score liked failed and does not count: ValueError"),
        (lambda molecules: 1 / 0, "score liked failed and does not count: ZeroDivisionError"),
    ],
)
def test_a_score_that_is_wrong_does_not_count_and_is_said(give, said):
    plain, found = of_aspirin_and_caffeine(), of_aspirin_and_caffeine(scores=[Score(give)])

    ranked = [
        [[(c.smiles, c.confidence) for c in one.candidates] for one in predictions]
        for predictions in (plain, found)
    ]
    assert ranked[0] == ranked[1]
    assert all(said in one.warnings for one in found)


def test_a_score_of_the_users_ranks_all_candidates_anew():
    longest = Score(lambda molecules: [float(len(one.smiles)) for one in molecules], "longest")

    plain = of_aspirin_and_caffeine(samples=20)[0]
    found = of_aspirin_and_caffeine(scores=[longest], samples=20, top_k=2)[0]

    before = {one.smiles: one.confidence for one in plain.candidates}
    best, second = found.candidates
    assert (best.rank, second.rank, len(best.smiles)) == (1, 2, max(map(len, before)))
    gained = [one.confidence / before[one.smiles] for one in (best, second)]
    difference = len(best.smiles) - len(second.smiles)
    assert gained[0] / gained[1] == pytest.approx(math.exp(difference))
    assert best.extra_scores["longest"] == len(best.smiles)
    assert (gained[0] > 1, best.score >= second.score) == (True, True)
    assert best.confidence <= found.confidence_top10 <= sum(before.values())
    assert "scored by longest too: confidence is not calibrated" in found.warnings
    assert "scored by" not in plain.warnings


@pytest.mark.parametrize(
    ("sources", "scores", "said"),
    [
        ([object()], [], "object is no source: it needs a name of letters and a propose"),
        ([Given(name="my own")], [], "Given is no source"),
        ([Given(name="noise")], [], "there are two sources of the name noise; rename one"),
        ([], [object()], "object is no score"),
        ([], [Score(name="familiarity")], "there are two scores of the name familiarity"),
        ([], [Score(), Score()], "there are two scores of the name liked"),
    ],
)
def test_what_is_none_is_refused_in_a_sentence(sources, scores, said):
    with pytest.raises(UsageError, match=said):
        with_own(stub_model(), sources, scores)


PACKAGE = f"""
class Mine:
    name = 'lab'
    def propose(self, query, n, seed): return iter(['{SMILES}'])
class Long:
    name = 'long'
    def __call__(self, query, molecules): return [0.0 for _ in molecules]
"""


def test_a_package_names_them_by_entry_points(spectra, tmp_path, monkeypatch):
    points = "[duallgd.sources]\nmine = {0}:Mine\n[duallgd.scores]\nlong = {0}:Long\n"
    made_plugins.install(tmp_path / "installed", monkeypatch, "lab", PACKAGE, points)

    found = with_own(stub_model()).predict(spectra, SETTINGS, top_k=99)
    assert found.record["weights"]["own"] == ["lab", "long"]
    assert of("lab", found[0])
    wrong = "[duallgd.sources]\nwrong = {}:Missing\n"
    made_plugins.install(tmp_path / "wrong", monkeypatch, "lab", PACKAGE, wrong)
    with pytest.raises(UsageError, match="lab:Missing, which a package names in duallgd"):
        with_own(stub_model())
    sys.modules.pop("lab", None)


def test_what_cannot_be_sent_to_processes_is_used_in_this_process(caplog):
    class Local(Given):
        """Of a function, which no other process finds."""

    model = with_own(replace(stub_model(), again=stub_model), [Local(SMILES)])

    assert model.again is None
    assert "cannot be sent to other processes" in caplog.text
