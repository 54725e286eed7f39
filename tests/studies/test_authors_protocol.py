"""The authors' molecules, their scores and their atom order."""

import importlib
import json
import sys

import numpy as np
import pytest
from authors_protocol import (
    TRUE_ORDER,
    TrueOrder,
    authors,
    elements_in_smiles_order,
    keep_elements,
    main,
    pairs_of_order,
    reference_scores,
)

from duallgd_authors_network.settings import ReferenceSettings
from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.chem.elements import SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.errors import RefusedError, UsageError
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import EvaluationInputs, Predicted, Truth
from duallgd_cli.spectra.types import Feature, Hypothesis, Source, Spectrum
from plugins.authors_network.tests.made_reference import converted, fine_tuned_file, stirred_network
from tests.made_runs import rows_of
from tests.stub_model import stub_model

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
ISOMER = "COC(=O)c1ccccc1C(=O)O"
ORDERS = ("formula", "truth")
ELEMENTS = elements_in_smiles_order(ASPIRIN)


def hypothesis(formula):
    spectrum = Spectrum(Source("made.tsv", 0), "S1", np.array([50.0]), np.ones(1))
    return Hypothesis(Feature((spectrum,)), Formula.parse(formula), BY_NAME["[M+H]+"])


def test_the_network_is_shown_the_true_sequence_of_the_formula_s_atoms():
    """Atoms of one element in the order of the SMILES: bonds come back as the true molecule's."""
    shown = TrueOrder({"S1": ELEMENTS})(hypothesis("C9H8O4"))

    listed = Formula.parse("C9H8O4").atom_class
    assert elements_in_smiles_order("OC(=O)c1ccccc1OC(C)=O") == ELEMENTS  # whatever was written
    assert sorted(shown) == list(range(13))
    assert tuple(SYMBOLS[element] for element in listed[shown]) == ELEMENTS == (*"CCOOCCCCCCCOO",)
    element = np.array([atom.GetSymbol() for atom in parse_smiles(ASPIRIN).GetAtoms()])
    assert all((np.diff(shown[element == symbol]) > 0).all() for symbol in set(ELEMENTS))
    with pytest.raises(RefusedError, match="not those of C9H9NO3") as refused:
        TrueOrder({"S1": ELEMENTS})(hypothesis("C9H9NO3"))
    assert refused.value.failure.status == "formula_mismatch"


def test_bonds_come_back_in_the_order_of_the_formula_whatever_was_shown():
    shown = np.array([4, 0, 3, 1, 5, 2])  # which atom of the formula stands at each place
    bonds = np.arange(15)
    square = np.zeros((6, 6), dtype=int)
    square[np.triu_indices(6, 1)] = bonds

    back = bonds[pairs_of_order(shown)]

    square += square.T
    again = np.zeros((6, 6), dtype=int)
    again[np.ix_(shown, shown)] = square
    np.testing.assert_array_equal(back, again[np.triu_indices(6, 1)])
    np.testing.assert_array_equal(pairs_of_order(np.arange(6)), bonds)


def test_molecules_of_other_elements_are_left_out_and_counted(tmp_path):
    truths = [Truth(s, s, s) for s in ("CCO", "CCBr", "CC[N+](C)(C)C")]
    inputs = EvaluationInputs(source=tmp_path, truths=truths, predictions=tmp_path)

    keep_elements(inputs, ReferenceSettings().atom_symbols)

    assert [kept.smiles for kept in inputs.truths] == ["CCO", "CC[N+](C)(C)C"]
    assert "1 of 3 spectra are left out" in inputs.remarks[0]
    with pytest.raises(UsageError, match="all 2 molecules hold elements other than"):
        keep_elements(inputs, ["F"])


def test_other_weights_than_the_authors_are_refused():
    with pytest.raises(UsageError, match="for the authors' weights, and stub holds others"):
        authors(stub_model())


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
    settings = EvaluateSettings(top_k=(1, 2))

    found = reference_scores([Truth("a", truth, "m")], [Predicted(tuple(candidates), ())], settings)

    assert {name: found.columns[name][0] for name in expected} == expected


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Their checkpoint, converted."""
    content = fine_tuned_file(stirred_network())
    return converted(tmp_path_factory.mktemp("authors"), content, "ref")


@pytest.mark.slow
def test_the_true_order_changes_what_is_drawn_and_is_said_everywhere(
    study, weights, table, tmp_path
):
    first = table.read_text().splitlines()[1]
    bromine = first.replace(ASPIRIN, "Brc1ccccc1").replace("S00", "S99")
    table.write_text(f"{table.read_text()}{bromine}\n")
    given = ("--benchmark", table, "--fold", "test", "--weights", weights, "--no-mces")
    few = ("--samples", "4", "--steps", "5", "--device", "cpu", "--workers", "1")

    honest, told = (
        study(main, *given, *few, "--atom-order", order, "-o", order)
        for order in ("formula", "truth")
    )

    results = {n: json.loads((tmp_path / n / "results.json").read_text()) for n in ORDERS}
    text = {n: (tmp_path / n / "predictions.csv").read_text() for n in ORDERS}
    rows = {n: rows_of(text[n]) for n in ORDERS}
    assert (honest.code, told.code) == (0, 0), told.err
    assert [row["smiles"] for row in rows["truth"]] != [row["smiles"] for row in rows["formula"]]
    assert all(TRUE_ORDER in row["warnings"] for row in rows["truth"])
    assert "TRUE ATOM" not in text["formula"] + honest.out
    assert TRUE_ORDER in results["truth"]["remarks"]
    assert "TRUE ATOM ORDER" in told.out
    assert "1 of 7 spectra are left out, as the" in told.out
    record = json.loads((tmp_path / "truth" / "predictions.csv.run.json").read_text())
    assert record["weights"]["name"] == "ref.safetensors, told the true atom order"
    assert record["notes"] == {TRUE_ORDER: 6}
    assert (tmp_path / "truth" / "reference.tsv").read_text().startswith("metric\tmean\tlow\thigh")
    resumed = study(main, *given, *few, "--atom-order", "formula", "-o", "truth", "--resume")
    assert (resumed.code, "TRUE ATOM ORDER" in resumed.err) == (2, True)


def test_without_the_plug_in_a_study_of_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "duallgd_authors_network", None)
    monkeypatch.delitem(sys.modules, "authors_protocol")

    with pytest.raises(SystemExit, match=r"^error: .*'pip install \./plugins/authors_network'$"):
        importlib.import_module("authors_protocol")
