"""What each source is worth: what is put together, figures, and a run on a stand-in."""

from dataclasses import replace
from itertools import chain
from math import log

import numpy as np
import pytest
import sources
from rdkit import Chem

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.evaluate.tables import Truth
from duallgd_cli.predict.pipeline import merge
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.results import OK, FeatureResult, HypothesisResult, SpectrumReference
from duallgd_cli.sources import Proposal, Query
from duallgd_cli.spectra.types import Source
from tests.stub_model import StubNoise, stub_model

DRAWN, LISTED = ("CCCO", "CCOC", "CCCO", "CC(C)O"), ("CC(C)O", "CCOC")


def merged(*proposals):
    """The result of a spectrum's one hypothesis, with these proposals."""
    query = Query(None, np.zeros(FINGERPRINT_BITS, np.float32))
    result = HypothesisResult(OK, formula="C3H8O", n_heavy=4)
    return merge(result, proposals, query, ())


def proposed(source, smiles, log_likelihood=None):
    return [Proposal(source, Chem.MolFromSmiles(text), log_likelihood) for text in smiles]


def test_what_sources_gave_apart_is_what_they_give_together():
    parts = (
        [*proposed("noise", DRAWN, -3.0), *proposed("noise", ["CCCO"], -9.0)],
        [*proposed("analogues", DRAWN[:2], -1.0), Proposal("analogues", None)],
        proposed("enumerated", LISTED),
    )

    together = sources.joined([merged(*part) for part in parts])

    assert together.structures == merged(*chain.from_iterable(parts)).structures
    assert (together.sampled, together.distinct) == (10, 3)


def test_the_truth_is_found_first_among_ten_or_not():
    spectra = (SpectrumReference(Source("made.mgf", 0), "S"),)
    hypotheses = (merged(*proposed("noise", DRAWN)),)
    results = [FeatureResult(0, spectra, hypotheses=hypotheses)]

    def row(smiles):
        truth = Truth("S", smiles, inchikey_block(parse_smiles(smiles)))
        return sources.scored(results, [truth], RankingModel(), [2.0])[0].tolist()

    assert row("CCCO") == [1, 1, 1, pytest.approx(-2, abs=2), 2.0]
    assert row("CCOC")[:3] == [1, 0, 1]
    assert row("C1CCC1") == [0, 0, 0, log(1e-4), 2.0]


def test_a_row_has_paired_differences_to_all_sources():
    values = {
        "all": np.array([[1, 1, 1, -1.0, 4], [1, 0, 1, -2.0, 6], [0, 0, 0, -9.0, 8]]),
        "noise alone": np.array([[1, 1, 1, -1.0, 1], [0, 0, 0, -9.0, 1], [0, 0, 0, -9.0, 1]]),
    }
    values["without noise"] = values["all"] + [0, 0, 0, 0, np.nan]

    _, _, base, alone, without = sources.lines(values, np.array([True, True, False]))

    assert base == "| all | 100.0 | 50.0 | 100.0 | -1.50 | 5.0 |"
    expected = "| noise alone | 50.0 (-50.0 ± 50.0) | 50.0 (+0.0 ± 0.0) | 50.0 (-50.0 ± 50.0)"
    assert alone == f"{expected} | -5.00 (-3.50 ± 3.50) | 1.0 |"
    assert without.endswith("|  |")


@pytest.mark.slow
def test_every_source_has_its_rows_and_a_second_run_predicts_nothing(
    study, table, tmp_path, monkeypatch
):
    asked = []

    class Counted(StubNoise):
        def propose(self, query, n, seed):
            asked.append(n)
            return super().propose(query, n, seed)

    named = tuple(Counted(name=name) for name in ("enumerated", "templates", "noise"))
    model = replace(stub_model(), sources=named)
    monkeypatch.setattr(sources.api, "load", lambda *_, **__: model)
    TrainingHashes.of(["AAAAAAAAAAAAAA"]).write(tmp_path / "none.train.hashes")
    options = "--fold test --molecules 3 -o out --train-hashes none.train.hashes"

    first = study(sources.main, table, *options.split())
    predicted = len(asked)
    again = study(sources.main, table, *options.split())

    assert (first.code, again.out) == (0, first.out), first.err
    assert len((tmp_path / "out/noise/cpu_s.txt").read_text().split()) == 3
    assert len(asked) == predicted == 3 * (3 + 3)
    whole = first.out.partition("at most 20 heavy atoms")[0].splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in whole[5:-1]] == [
        "all",
        *("enumerated alone", "templates alone", "noise alone"),
        *("without enumerated", "without templates", "without noise"),
    ]
    assert "all molecules: 3" in first.out
