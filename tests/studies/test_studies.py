"""Each study runs on a few spectra, and puts together what it should."""

import json
from dataclasses import replace
from itertools import chain

import authors_protocol as protocol
import numpy as np
import pytest
import scores
import sources
import true_fingerprints
from rdkit import Chem

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.identity import fingerprint, inchikey_block, parse_smiles
from duallgd_cli.config import SamplingSettings
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.evaluate.run import evaluate
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Predicted, Truth
from duallgd_cli.predict import api
from duallgd_cli.predict.pipeline import merge
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.results import OK, FeatureResult, HypothesisResult, SpectrumReference
from duallgd_cli.sources import Proposal, Query
from duallgd_cli.spectra.types import Source
from plugins.authors_network.tests.made_reference import converted, fine_tuned_file, stirred_network
from tests import labelled_table
from tests.made_runs import rows_of
from tests.stub_model import StubNoise, stub_model
from tests.unit.evaluate.test_calibrate import synthetic

ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "COC(=O)c1ccccc1C(=O)O"
DRAWN, LISTED = ("CCCO", "CCOC", "CCCO", "CC(C)O"), ("CC(C)O", "CCOC")


def merged(*proposals):
    """The result of a spectrum's one hypothesis, with these proposals."""
    query = Query(None, np.zeros(FINGERPRINT_BITS, np.float32))
    result = HypothesisResult(OK, formula="C3H8O", n_heavy=4)
    return merge(result, proposals, query, ())


def proposed(source, smiles, log_likelihood=None):
    return [Proposal(source, Chem.MolFromSmiles(text), log_likelihood) for text in smiles]


def test_what_sources_gave_apart_is_what_they_give_together_and_is_found_or_not():
    parts = (
        [*proposed("noise", DRAWN, -3.0), *proposed("noise", ["CCCO"], -9.0)],
        [*proposed("analogues", DRAWN[:2], -1.0), Proposal("analogues", None)],
        proposed("enumerated", LISTED),
    )

    together = sources.joined([merged(*part) for part in parts])

    assert together.structures == merged(*chain.from_iterable(parts)).structures
    assert (together.sampled, together.distinct) == (10, 3)
    for smiles, is_found in (("CCCO", (1, 1, 1)), ("CCOC", (1, 0, 1)), ("C1CCC1", (0, 0, 0))):
        truth = Truth("S", smiles, inchikey_block(parse_smiles(smiles)))
        spectra = (SpectrumReference(Source("made.mgf", 0), "S"),)
        hypotheses = (merged(*proposed("noise", DRAWN)),)
        results = [FeatureResult(0, spectra, hypotheses=hypotheses)]
        assert (*sources.scored(results, [truth], RankingModel())[0, :3],) == is_found


def test_leaving_out_a_score_that_tells_costs_something_and_another_nothing(monkeypatch):
    groups = {"a score that tells": ("fingerprint_tanimoto",), "one that does not": ("contrast",)}
    monkeypatch.setattr(scores, "GROUPS", groups)

    *_, tells, says_nothing = scores.table(synthetic(60))

    assert tells.startswith("| a score that tells | -0.")
    assert says_nothing.count(" +0.0") == says_nothing.count("±") == 3


@pytest.mark.parametrize(
    ("truth", "candidates", "expected"),
    [
        # Canonical tautomers are compared, but whole InChIs.
        ("CC(=O)CC(C)=O", ["CC(=O)C=C(C)O"], {"accuracy@1": 0, "tanimoto@1": 1, "mces@1": 0}),
        # Invalid, repeated and split candidates are left out before ranks are counted.
        (ASPIRIN, ["xyz", "CC.O", ISOMER, ISOMER, ASPIRIN], {"accuracy@1": 0, "accuracy@2": 1}),
        # The distance starts from twice the bonds of the truth.
        ("CCO", [], {"mces@1": 4, "mces@2": 4, "tanimoto@1": 0}),
    ],
)
def test_scores_are_by_the_authors_rules(truth, candidates, expected):
    truths, predicted = [Truth("a", truth, "m")], [Predicted(tuple(candidates), ())]

    columns = protocol.reference_scores(truths, predicted, EvaluateSettings(top_k=(1, 2))).columns

    assert {name: columns[name][0] for name in expected} == expected


@pytest.fixture
def hashes(tmp_path):
    """Training molecules of which none is in the table."""
    TrainingHashes.of(["AAAAAAAAAAAAAA"]).write(tmp_path / "none.train.hashes")
    return tmp_path / "none.train.hashes"


@pytest.mark.slow
def test_every_source_has_its_rows_and_a_second_run_predicts_nothing(
    study, table, hashes, monkeypatch
):
    named = tuple(StubNoise(name=name) for name in ("enumerated", "templates", "noise"))
    monkeypatch.setattr(sources.api, "load", lambda *_, **__: replace(stub_model(), sources=named))
    options = "--fold test --molecules 3 -o out"
    given = (table, *options.split(), "--train-hashes", hashes)

    first = study(sources.main, *given)
    monkeypatch.delattr(StubNoise, "propose")
    again = study(sources.main, *given)

    assert (first.code, again.out) == (0, first.out), first.err
    whole = first.out.partition("at most 20 heavy atoms")[0].splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in whole[5:-1]] == [
        "all",
        *("enumerated alone", "templates alone", "noise alone"),
        *("without enumerated", "without templates", "without noise"),
    ]


@pytest.mark.slow
def test_an_evaluation_is_predicted_from_the_true_fingerprints(
    study, table, hashes, tmp_path, monkeypatch
):
    monkeypatch.setattr(api, "load", lambda *_, **__: stub_model())
    few = {"fold": "test", "mces": False, "workers": 1, "train_hashes": hashes}
    prediction = PredictSettings(sampling=SamplingSettings(samples=4, steps=2))
    evaluate(EvaluateSettings(benchmark=table, out=tmp_path / "val", prediction=prediction, **few))
    seen, told = [], true_fingerprints.TrueFingerprints.__call__
    monkeypatch.setattr(
        true_fingerprints.TrueFingerprints,
        "__call__",
        lambda *given: seen.append(told(*given)) or seen[-1],
    )

    done = study(true_fingerprints.main, tmp_path / "val")

    assert done.code == 0, done.err
    assert "true fingerprint, first candidate" in done.out
    expected = {tuple(np.sort(fingerprint(parse_smiles(s)))) for s, *_ in labelled_table.MOLECULES}
    assert {tuple(np.flatnonzero(dense)) for dense, _ in seen} <= expected
    assert len({dense.tobytes() for dense, _ in seen}) == 3


def test_a_perfect_matrix_is_worth_the_molecule_wherever_it_can_express_it():
    recovers = true_fingerprints.assembly_recovers

    assert list(map(recovers, (ASPIRIN, "CCO.CC", "[Fe]"))) == [True, False, False]


@pytest.mark.slow
def test_the_true_order_changes_what_is_drawn_and_is_said_everywhere(study, table, tmp_path):
    weights = converted(tmp_path, fine_tuned_file(stirred_network()), "ref")
    first = table.read_text().splitlines()[1]
    bromine = first.replace(ASPIRIN, "Brc1ccccc1").replace("S00", "S99")
    table.write_text(f"{table.read_text()}{bromine}\n")
    options = "--fold test --no-mces --samples 4 --steps 5 --device cpu --workers 1 --atom-order"
    given = ("--benchmark", table, "--weights", weights, *options.split())

    def drawn(order):
        done = study(protocol.main, *given, order, "-o", order)
        assert done.code == 0, done.err
        return done.out, rows_of((tmp_path / order / "predictions.csv").read_text())

    (plain_said, plain), (said, told) = drawn("formula"), drawn("truth")

    assert [row["smiles"] for row in told] != [row["smiles"] for row in plain]
    assert all(protocol.TRUE_ORDER in row["warnings"] for row in told)
    assert "TRUE ATOM" not in plain_said + str(plain)
    assert "TRUE ATOM ORDER" in said
    assert "1 of 7 spectra are left out, as the" in said
    record = json.loads((tmp_path / "truth/predictions.csv.run.json").read_text())
    assert record["weights"]["name"] == "ref.safetensors, told the true atom order"
    assert (tmp_path / "truth/reference.tsv").read_text().startswith("metric\tmean\tlow\thigh")
