from dataclasses import replace

import pytest

from duallgd_cli.evaluate.intervals import wilson
from duallgd_cli.evaluate.metrics import formula_accuracy
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Truth
from tests.scored_entries import scored

ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "COC(=O)c1ccccc1C(=O)O"
PLAIN = EvaluateSettings(mces=False, workers=1)


@pytest.mark.parametrize(
    ("truth", "candidates", "expected"),
    [
        (ASPIRIN, [ISOMER, ASPIRIN], {"accuracy@1": 0, "accuracy@2": 1, "tanimoto@2": 1}),
        (ASPIRIN, ["CCC"] * 30 + [ASPIRIN], {"accuracy@10": 0, "oracle_accuracy": 1}),
        # Ethanol and dimethyl ether share one of their nine environments: the methyl carbon alone.
        ("CCO", ["COC"], {"accuracy@1": 0, "tanimoto@1": 1 / 9, "oracle_tanimoto": 1 / 9}),
        (ASPIRIN, [], {"accuracy@10": 0, "tanimoto@10": 0, "mces@10": 100, "candidates": 0}),
        # What is no molecule, or stands there twice, keeps its rank.
        (
            ASPIRIN,
            ["no molecule", "C(C)(C)(C)(C)C", ASPIRIN],
            {"accuracy@2": 0, "accuracy@3": 1, "mces@2": 100, "mces@3": 0, "valid": 1},
        ),
        (ASPIRIN, [ISOMER, ISOMER, ASPIRIN], {"accuracy@2": 0, "accuracy@3": 1, "candidates": 3}),
        # Stereochemistry and writing do not matter.
        ("C[C@H](N)C(=O)O", ["C[C@@H](N)C(O)=O"], {"accuracy@1": 1, "tanimoto@1": 1, "mces@1": 0}),
    ],
)
def test_a_spectrum_is_scored_by_its_ranked_candidates(truth, candidates, expected):
    settings = replace(PLAIN, top_k=(1, 2, 3, 10), mces="mces" in " ".join(expected))

    columns = scored([("s", "m", truth, candidates)], settings).columns

    assert {name: columns[name][0] for name in expected} == pytest.approx(expected)


def test_molecules_without_an_inchi_are_never_the_same(monkeypatch):
    monkeypatch.setattr("duallgd_cli.evaluate.tables.identity.inchikey_block", lambda _: "")

    assert scored([("s", "m", "CCCCCCCO", ["CCCCCCCN"])], PLAIN).columns["accuracy@1"] == [0]


def test_a_molecule_s_spectra_are_one_cluster_and_of_many_it_is_said_how_far_they_are(caplog):
    caplog.set_level("INFO")
    entries = [("1", "a", "CCO", ["CCO"]), ("2", "a", "CCO", ["CCO"]), ("3", "b", "CC", [])]

    estimate = scored(entries, PLAIN).summary()["accuracy@1"]
    scored([(str(number), "m", ASPIRIN, []) for number in range(50)], PLAIN)

    assert [*estimate.values()] == pytest.approx([2 / 3, *wilson(2 / 3, 2.25)])
    assert caplog.messages == [f"{done} of 50 spectra scored" for done in range(5, 51, 5)]


def test_pairs_that_were_solved_are_counted():
    entries = [(str(i), "m", ASPIRIN, [ISOMER, "CCO"]) for i in range(4)]

    scores = scored(entries, replace(PLAIN, mces=True))

    assert scores.columns["mces@1"].tolist() == [4.0] * 4
    assert scores.mces_work["mces"] == {"pairs": 4, "timeouts": 0}


def test_a_formula_counts_from_its_rank_on_and_none_is_wrong():
    smiles = ("CCO", "COC", "C[N+](C)(C)CCO", "C[Fe]C")  # the last is outside the vocabulary
    truths = [Truth(name, text, name) for name, text in zip("abcd", smiles, strict=True)]
    others = [f"C{n}H4" for n in range(1, 6)]
    ranked = {"b": [*others, "C2H6O"], "c": [*others[:4], "C5H14NO+"], "d": [""]}

    found = formula_accuracy(truths, ranked | {"a": ["C2H6O"]})

    assert found["formula_accuracy@1"].tolist() == [1, 0, 0, 0]
    assert found["formula_accuracy@5"].tolist() == [1, 0, 1, 0]
