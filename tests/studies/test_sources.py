"""What each source is worth: what is put together, figures, and a run on a stand-in."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
import sources
from rdkit import Chem

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.evaluate.tables import Truth
from duallgd_cli.predict.pipeline import merge
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.results import OK, HypothesisResult, SpectrumReference
from duallgd_cli.sources import Proposal, Query
from duallgd_cli.spectra.types import Source
from tests.stub_model import StubNoise, stub_model

pytest.importorskip("scipy", reason="needs the evaluate extra")
DRAWN = ("CCCO", "CCOC", "CCCO", "CC(C)O")
LISTED = ("CC(C)O", "CCOC")


def merged(*proposals):
    """The result of a spectrum S with these proposals."""
    query = Query(None, np.zeros(FINGERPRINT_BITS, np.float32))
    spectra = (SpectrumReference(Source("made.mgf", 0), "S"),)
    result = HypothesisResult(OK, formula="C3H8O", n_heavy=4, spectra=spectra)
    return merge(result, proposals, query, ())


def proposed(source, smiles, log_likelihood=None):
    return [Proposal(source, Chem.MolFromSmiles(text), log_likelihood) for text in smiles]


def test_what_sources_gave_apart_is_what_they_give_together():
    noise = [*proposed("noise", DRAWN, -3.0), *proposed("noise", ["CCCO"], -9.0)]
    analogues = [*proposed("analogues", DRAWN[:2], -1.0), Proposal("analogues", None)]
    listed = proposed("enumerated", LISTED)

    together = sources.joined([merged(*noise), merged(*analogues), merged(*listed)])

    expected = merged(*noise, *analogues, *listed)
    assert together.structures == expected.structures
    assert (together.sampled, together.distinct) == (expected.sampled, expected.distinct) == (10, 3)


def test_the_truth_is_found_first_among_ten_or_not():
    results = [[merged(*proposed("noise", DRAWN))]]
    neutral = RankingModel()

    def of(smiles):
        truth = Truth("S", smiles, inchikey_block(parse_smiles(smiles)))
        return sources.scored(results, [truth], neutral, [2.0])[0]

    found, first, ten, log_p, seconds = of("CCCO")
    assert (found, first, ten, seconds) == (1, 1, 1, 2.0)
    assert log(1e-4) < log_p < 0
    assert of("CCOC")[:3].tolist() == [1, 0, 1]
    assert of("C1CCC1").tolist() == [0, 0, 0, log(1e-4), 2.0]


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
    study, table, hashes, tmp_path, monkeypatch
):
    own = stub_model()
    asked = []

    class Counted(StubNoise):
        def propose(self, query, n, seed):
            asked.append(n)
            return super().propose(query, n, seed)

    named = tuple(Counted(name=name) for name in ("enumerated", "templates", "noise"))
    model = replace(own, sources=named)
    monkeypatch.setattr(sources.api, "load", lambda *_, **__: model)
    options = "--fold test --molecules 3 -o out --train-hashes"

    first = study(sources.main, table, *options.split(), hashes)
    assert first.code == 0, first.err
    predicted = len(asked)
    again = study(sources.main, table, *options.split(), hashes)

    assert again.out == first.out
    times = (tmp_path / "out" / "noise" / "cpu_s.txt").read_text().split()
    assert len(times) == 3
    assert len(asked) == predicted == 3 * (3 + 3)
    whole = first.out.partition("at most 20 heavy atoms")[0].splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in whole[5:-1]] == [
        "all",
        *("enumerated alone", "templates alone", "noise alone"),
        *("without enumerated", "without templates", "without noise"),
    ]
    assert "all molecules: 3" in first.out
