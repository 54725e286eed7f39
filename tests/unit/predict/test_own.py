"""Sources and scores of the user's own: what goes wrong in one is a sentence."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.errors import UsageError
from duallgd_cli.predict.api import with_own
from duallgd_cli.sources import Proposal
from tests.made_runs import SETTINGS
from tests.made_spectra import ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

SMILES = "CC(=O)Oc1ccccc1C(=O)O"


class Source:
    """Gives some items, or raises those that are errors."""

    def __init__(self, *items, name="mine"):
        self.items, self.name = items, name

    def propose(self, query, n, seed):
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


class Score:
    """Gives what a function makes of the molecules."""

    def __init__(self, give=list, name="liked"):
        self.give, self.name = give, name

    def __call__(self, query, molecules):
        return self.give(molecules)


@pytest.fixture
def spectra(tmp_path):
    return mgf(tmp_path / "in.mgf", block(ASPIRIN), block(CAFFEINE))


def predicted(spectra, given=(), scores=(), **changes):
    model = with_own(stub_model(), given, scores)
    return list(model.predict(spectra, SETTINGS, top_k=99, **changes))


def of(source, prediction):
    return [one for one in prediction.candidates if source in one.sources]


@pytest.mark.parametrize(
    "item", [SMILES, parse_smiles(SMILES), Proposal("whatever", parse_smiles(SMILES), -3.0)]
)
def test_molecules_come_as_smiles_as_molecules_or_as_proposals(spectra, item):
    first, second = predicted(spectra, [Source(item)])

    assert [one.smiles for one in of("mine", first)] == [SMILES]
    assert of("mine", second) == []
    (tried,) = second.hypotheses
    assert (tried.rejected["another formula"], tried.sampled) == (1, 4 + 1)


def test_what_is_no_molecule_is_counted_and_a_source_that_raises_costs_the_rest_alone(spectra):
    plain = predicted(spectra)

    found = predicted(spectra, [Source("nonsense", 7, None, SMILES, KeyError("x"), SMILES)])

    assert all("source mine failed: KeyError: 'x'" in one.warnings for one in found)
    assert found[0].hypotheses[0].rejected["not a molecule"] == 3
    (own,) = of("mine", found[0])
    assert own.samples == 1 or "noise" in own.sources
    blocks = [{c.inchikey14 for c in each.candidates} for each in (plain[1], found[1])]
    assert blocks[0] == blocks[1]


def test_no_more_is_taken_than_the_setting_says(spectra):
    first, _ = predicted(spectra, [Source(*[SMILES] * 500)], samples=10, sources="mine=30 noise=70")

    (mine,) = of("mine", first)
    assert (first.hypotheses[0].sampled, mine.samples >= 3) == (10, True)


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda molecules: [np.nan] * len(molecules), "score liked does not count: it must give"),
        (lambda molecules: [1.0], "score liked does not count: it must give"),
        (lambda molecules: "abc", "score liked failed and does not count: ValueError"),
        (lambda molecules: 1 / 0, "score liked failed and does not count: ZeroDivisionError"),
    ],
)
def test_a_score_that_is_wrong_does_not_count_and_is_said(spectra, give, said):
    plain, found = predicted(spectra), predicted(spectra, scores=[Score(give)])

    ranked = [
        [[(c.smiles, c.confidence) for c in one.candidates] for one in predictions]
        for predictions in (plain, found)
    ]
    assert ranked[0] == ranked[1]
    assert all(said in one.warnings for one in found)


@pytest.mark.parametrize(
    ("sources", "scores", "said"),
    [
        ([object()], [], "object is no source: it needs a name of letters and a propose"),
        ([Source(name="my own")], [], "Source is no source"),
        ([Source(name="noise")], [], "there are two sources of the name noise; rename one"),
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
    about = tmp_path / "lab-1.0.dist-info"
    about.mkdir()
    (tmp_path / "lab.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n")
    points = "[duallgd.sources]\nmine = lab:Mine\n[duallgd.scores]\nlong = lab:Long\n"
    (about / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert with_own(stub_model()).own == ["lab", "long"]
    assert of("lab", predicted(spectra)[0])
    (about / "entry_points.txt").write_text("[duallgd.sources]\nmine = lab:Missing\n")
    with pytest.raises(UsageError, match="lab:Missing, which a package names in duallgd"):
        with_own(stub_model())
    sys.modules.pop("lab", None)


def test_what_cannot_be_sent_to_processes_is_used_in_this_process(caplog):
    class Local(Source):
        """Of a function, which no other process finds."""

    model = with_own(replace(stub_model(), again=stub_model), [Local(SMILES)])

    assert model.again is None
    assert "cannot be sent to other processes" in caplog.text
