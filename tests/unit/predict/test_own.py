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
    """Gives what it is told to give."""

    def __init__(self, *items, name="mine"):
        self.items, self.name = items, name

    def propose(self, query, n, seed):
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


class Score:
    """Gives the same number for all, or what a function makes of the molecules."""

    def __init__(self, give, name="liked"):
        self.give, self.name = give, name

    def __call__(self, query, molecules):
        return self.give(molecules)


@pytest.fixture
def spectra(tmp_path):
    return mgf(tmp_path / "in.mgf", block(ASPIRIN), block(CAFFEINE))


def predicted(spectra, *, given=(), scores=(), **changes):
    model = with_own(stub_model(), given, scores)
    return list(model.predict(spectra, SETTINGS, top_k=99, **changes))


@pytest.mark.parametrize(
    "item", [SMILES, parse_smiles(SMILES), Proposal("whatever", parse_smiles(SMILES), -3.0)]
)
def test_molecules_come_as_smiles_as_molecules_or_as_proposals(spectra, item):
    first, second = predicted(spectra, given=[Source(item)])

    (mine,) = (one for one in first.candidates if "mine" in one.sources)
    assert mine.smiles == SMILES
    assert not [one for one in second.candidates if "mine" in one.sources]  # another formula
    tallies = second.hypotheses[0]
    assert tallies.rejected["another formula"] == 1
    assert tallies.sampled == SETTINGS.sampling.samples + 1


def test_what_is_no_molecule_is_counted_and_a_source_that_raises_costs_the_rest_alone(spectra):
    plain = list(stub_model().predict(spectra, SETTINGS, top_k=99))
    mine = Source("nonsense", 7, None, SMILES, KeyError("x"), SMILES)

    found = predicted(spectra, given=[mine])

    assert all("source mine failed: KeyError: 'x'" in one.warnings for one in found)
    assert found[0].hypotheses[0].rejected["not a molecule"] == 3
    (own,) = (one for one in found[0].candidates if "mine" in one.sources)
    assert own.samples == 1 or "noise" in own.sources
    blocks = [{c.inchikey14 for c in each.candidates} for each in (plain[1], found[1])]
    assert blocks[0] == blocks[1]


def test_no_more_is_taken_than_the_setting_says(spectra):
    first, _ = predicted(
        spectra, given=[Source(*[SMILES] * 500)], samples=10, sources="mine=30 noise=70"
    )

    (mine,) = (one for one in first.candidates if "mine" in one.sources)
    assert first.hypotheses[0].sampled == 10
    assert mine.samples >= 3


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
    plain = list(stub_model().predict(spectra, SETTINGS, top_k=99))

    found = predicted(spectra, scores=[Score(give)])

    for before, after in zip(plain, found, strict=True):
        assert said in after.warnings
        assert [c.smiles for c in after.candidates] == [c.smiles for c in before.candidates]
        assert [c.confidence for c in after.candidates] == [c.confidence for c in before.candidates]


@pytest.mark.parametrize(
    ("sources", "scores", "said"),
    [
        ([object()], [], "object is no source: it needs a name"),
        ([Source(name="my own")], [], "Source is no source"),
        ([Source(name="noise")], [], "there are two sources of the name noise; rename one"),
        ([], [object()], "object is no score"),
        ([], [Score(list, name="familiarity")], "there are two scores of the name familiarity"),
        ([], [Score(list), Score(list)], "there are two scores of the name liked"),
    ],
)
def test_what_is_none_is_refused_in_a_sentence(sources, scores, said):
    with pytest.raises(UsageError, match=said):
        with_own(stub_model(), sources, scores)


def test_a_package_names_them_by_entry_points(spectra, tmp_path, monkeypatch):
    (tmp_path / "lab.py").write_text(
        "class Mine:\n"
        "    name = 'lab'\n"
        f"    def propose(self, query, n, seed): return iter(['{SMILES}'])\n"
        "class Long:\n"
        "    name = 'long'\n"
        "    def __call__(self, query, molecules): return [0.0 for _ in molecules]\n"
    )
    about = tmp_path / "lab-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n")
    points = "[duallgd.sources]\nmine = lab:Mine\n[duallgd.scores]\nlong = lab:Long\n"
    (about / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))

    model = with_own(stub_model())

    assert model.own == ["lab", "long"]
    first, _ = model.predict(spectra, SETTINGS, top_k=99)
    assert any("lab" in one.sources for one in first.candidates)
    (about / "entry_points.txt").write_text("[duallgd.sources]\nmine = lab:Missing\n")
    with pytest.raises(UsageError, match="lab:Missing, which a package names in duallgd"):
        with_own(stub_model())
    sys.modules.pop("lab", None)


def test_one_that_cannot_be_sent_to_processes_is_used_in_this_one(spectra, caplog):
    class Local(Source):
        """Of a function, which no other process finds."""

    model = with_own(replace(stub_model(), again=stub_model), [Local(SMILES)])

    assert model.again is None
    assert "cannot be sent to other processes" in caplog.text
