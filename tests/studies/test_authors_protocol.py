"""The authors' molecules, their scores and their atom order."""

import importlib
import json
import sys

import authors_protocol as protocol
import numpy as np
import pytest

from duallgd_authors_network.settings import ReferenceSettings
from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.chem.elements import SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import RefusedError, UsageError
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import EvaluationInputs, Predicted, Truth
from duallgd_cli.spectra.types import Feature, Hypothesis, Source, Spectrum
from plugins.authors_network.tests.made_reference import converted, fine_tuned_file, stirred_network
from tests.made_runs import rows_of
from tests.stub_model import stub_model

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
ISOMER = "COC(=O)c1ccccc1C(=O)O"


def test_the_network_is_shown_the_true_sequence_of_the_formula_s_atoms():
    elements = protocol.elements_in_smiles_order(ASPIRIN)
    spectrum = Spectrum(Source("made.tsv", 0), "S1", np.array([50.0]), np.ones(1))

    def shown(formula):
        hypothesis = Hypothesis(Feature((spectrum,)), Formula.parse(formula), BY_NAME["[M+H]+"])
        return protocol.TrueOrder({"S1": elements})(hypothesis)

    order, listed = shown("C9H8O4"), Formula.parse("C9H8O4").atom_class
    assert (
        protocol.elements_in_smiles_order("OC(=O)c1ccccc1OC(C)=O")
        == elements
        == (*"CCOOCCCCCCCOO",)
    )
    assert tuple(SYMBOLS[element] for element in listed[order]) == elements
    for symbol in "CO":  # atoms of one element stay in their order
        own = [place for place, element in zip(order, elements, strict=True) if element == symbol]
        assert own == sorted(set(own))
    with pytest.raises(RefusedError, match="not those of C9H9NO3") as refused:
        shown("C9H9NO3")
    assert refused.value.failure.status == "formula_mismatch"


def test_bonds_come_back_in_the_order_of_the_formula_whatever_was_shown():
    shown = np.array([4, 0, 3, 1, 5, 2])  # which atom of the formula stands at each place
    upper = np.triu_indices(6, 1)
    square, back = np.zeros((6, 6), dtype=int), np.zeros((6, 6), dtype=int)
    square[upper] = np.arange(15)
    square += square.T

    back[upper] = square[upper][protocol.pairs_of_order(shown)]

    np.testing.assert_array_equal((back + back.T)[np.ix_(shown, shown)], square)


def test_molecules_of_other_elements_are_left_out_and_counted_and_other_weights_refused(tmp_path):
    truths = [Truth(s, s, s) for s in ("CCO", "CCBr", "CC[N+](C)(C)C")]
    inputs = EvaluationInputs(source=tmp_path, truths=truths, predictions=tmp_path)

    protocol.keep_elements(inputs, ReferenceSettings().atom_symbols)

    assert [kept.smiles for kept in inputs.truths] == ["CCO", "CC[N+](C)(C)C"]
    assert "1 of 3 spectra are left out" in inputs.remarks[0]
    with pytest.raises(UsageError, match="all 2 molecules hold elements other than"):
        protocol.keep_elements(inputs, ["F"])
    with pytest.raises(UsageError, match="for the authors' weights, and stub holds others"):
        protocol.authors(stub_model())


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


@pytest.mark.slow
def test_the_true_order_changes_what_is_drawn_and_is_said_everywhere(study, table, tmp_path):
    weights = converted(tmp_path, fine_tuned_file(stirred_network()), "ref")
    first = table.read_text().splitlines()[1]
    bromine = first.replace(ASPIRIN, "Brc1ccccc1").replace("S00", "S99")
    table.write_text(f"{table.read_text()}{bromine}\n")
    given = ("--benchmark", table, "--fold", "test", "--weights", weights, "--no-mces")
    few = ("--samples", "4", "--steps", "5", "--device", "cpu", "--workers", "1")

    def drawn(order):
        done = study(protocol.main, *given, *few, "--atom-order", order, "-o", order)
        assert done.code == 0, done.err
        return done.out, rows_of((tmp_path / order / "predictions.csv").read_text())

    (plain_said, plain), (said, told) = drawn("formula"), drawn("truth")

    assert [row["smiles"] for row in told] != [row["smiles"] for row in plain]
    assert all(protocol.TRUE_ORDER in row["warnings"] for row in told)
    assert "TRUE ATOM" not in plain_said + str(plain)
    assert "TRUE ATOM ORDER" in said
    assert "1 of 7 spectra are left out, as the" in said
    assert (
        protocol.TRUE_ORDER in json.loads((tmp_path / "truth/results.json").read_text())["remarks"]
    )
    record = json.loads((tmp_path / "truth/predictions.csv.run.json").read_text())
    assert record["weights"]["name"] == "ref.safetensors, told the true atom order"
    assert record["notes"] == {protocol.TRUE_ORDER: 6}
    assert (tmp_path / "truth/reference.tsv").read_text().startswith("metric\tmean\tlow\thigh")
    resumed = study(
        protocol.main, *given, *few, "--atom-order", "formula", "-o", "truth", "--resume"
    )
    assert (resumed.code, "TRUE ATOM ORDER" in resumed.err) == (2, True)


def test_without_the_plug_in_a_study_of_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "duallgd_authors_network", None)
    monkeypatch.delitem(sys.modules, "authors_protocol")

    with pytest.raises(SystemExit, match=r"^error: .*'pip install \./plugins/authors_network'$"):
        importlib.import_module("authors_protocol")
