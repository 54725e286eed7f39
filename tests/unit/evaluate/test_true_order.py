"""The true order of the atoms, which the authors' network is told in evaluation alone."""

from pathlib import Path

import numpy as np
import pytest

from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.chem.elements import SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate import EvaluateSettings
from duallgd_cli.evaluate.molecules import elements_in_smiles_order
from duallgd_cli.evaluate.suites import EvaluationInputs, Suite
from duallgd_cli.evaluate.tables import Truth
from duallgd_cli.evaluate.true_order import (
    RELEASED_ELEMENTS,
    TRUE_ORDER,
    TrueOrder,
    by_authors_rules,
    tells_true_order,
    with_elements,
)
from duallgd_cli.predict.generation import RefusedError
from duallgd_cli.reference.settings import ReferenceSettings
from duallgd_cli.spectra.types import Feature, Hypothesis, Source, Spectrum
from tests.stub_model import stub_model

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


def hypothesis(formula):
    spectrum = Spectrum(Source("made.tsv", 0), "S1", np.array([50.0]), np.ones(1))
    return Hypothesis(Feature((spectrum,)), Formula.parse(formula), BY_NAME["[M+H]+"])


def truth(smiles, name="S1"):
    return Truth(name, smiles, name)


def inputs(*truths, remarks=()):
    suite = Suite("made", (), lambda: iter(()))
    return EvaluationInputs(suite=suite, truths=truths, predictions=Path("p.csv"), remarks=remarks)


def test_elements_stand_as_in_the_canonical_smiles_whatever_was_written():
    expected = tuple("CCOOCCCCCCCOO")

    assert elements_in_smiles_order(ASPIRIN) == expected
    assert elements_in_smiles_order("OC(=O)c1ccccc1OC(C)=O") == expected
    assert elements_in_smiles_order("C[C@H](N)C(=O)O") == tuple("CCNCOO")


def test_the_network_is_shown_the_true_sequence_of_the_formula_s_atoms():
    true = elements_in_smiles_order(ASPIRIN)

    shown = TrueOrder({"S1": true})(hypothesis("C9H8O4"))

    listed = Formula.parse("C9H8O4").atom_class
    assert sorted(shown) == list(range(13))
    assert tuple(SYMBOLS[element] for element in listed[shown]) == true


def test_atoms_of_one_element_keep_the_order_of_the_smiles():
    """So that bonds drawn on the true order come back as those of the true molecule."""
    shown = TrueOrder({"S1": elements_in_smiles_order(ASPIRIN)})(hypothesis("C9H8O4"))
    element = [atom.GetSymbol() for atom in parse_smiles(ASPIRIN).GetAtoms()]

    for symbol in set(element):
        places = [row for row, name in zip(shown, element, strict=True) if name == symbol]
        assert places == sorted(places)


def test_another_formula_than_the_truth_s_is_refused_for_that_spectrum():
    with pytest.raises(RefusedError, match="not those of C9H9NO3") as refused:
        TrueOrder({"S1": elements_in_smiles_order(ASPIRIN)})(hypothesis("C9H9NO3"))

    assert refused.value.failure.status == "formula_mismatch"


def test_our_own_rules_change_nothing():
    model, given = stub_model(), inputs(truth("CBr"), remarks=("a remark",))

    assert by_authors_rules(EvaluateSettings(), model, given) == (model, given)


@pytest.mark.parametrize(
    ("rules", "option"),
    [({"preset": "reference"}, "--preset reference"), ({"atom_order": "truth"}, "--atom-order")],
)
def test_other_weights_than_the_authors_are_refused(rules, option):
    with pytest.raises(UsageError, match=f"{option}.* is for the authors' weights"):
        by_authors_rules(EvaluateSettings(**rules), stub_model(), inputs(truth("CC")))


def test_molecules_of_other_elements_are_left_out_and_counted():
    truths = (truth("CCO", "a"), truth("CCBr", "b"), truth("CC[N+](C)(C)C", "c"))

    found = with_elements(inputs(*truths, remarks=("x",)), RELEASED_ELEMENTS)

    assert [kept.spectrum_id for kept in found.truths] == ["a", "c"]
    assert found.remarks[0] == "x"
    assert "1 of 3 spectra are left out" in found.remarks[1]
    with pytest.raises(UsageError, match="all 1 molecules hold elements other than"):
        with_elements(inputs(truth("CCBr")), RELEASED_ELEMENTS)


def test_the_released_elements_are_those_of_the_reference_s_settings():
    assert {*RELEASED_ELEMENTS, "H"} == set(ReferenceSettings().atom_symbols)


def test_the_stamp_is_set_once_and_read_back_from_a_table(tmp_path):
    table = tmp_path / "p.csv"
    table.write_text(f'identifier,smiles,message\na,CC,\nb,CO,"x; {TRUE_ORDER}"\n')
    once = inputs(truth("CC")).noted(TRUE_ORDER)

    assert once.remarks == once.noted(TRUE_ORDER).remarks == (TRUE_ORDER,)
    assert tells_true_order(table)
    table.write_text("identifier,smiles\na,CC\n")
    assert not tells_true_order(table)
