import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate import EvaluateSettings
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.evaluate.overlap import check_leakage, similarities
from duallgd_cli.evaluate.tables import Truth

ETHANOL, ETHER = "LFQSCWFLJHTTHZ", "LCGLNKUTAGEVQW"
TRUTHS = [Truth("a", "CCO", ETHANOL), Truth("b", "OCC", ETHANOL), Truth("c", "COC", ETHER)]
SEEN = {"the weights": TrainingHashes.of([ETHANOL])}
REFUSING, DROPPING = EvaluateSettings(), EvaluateSettings(drop_leaked=True)


def test_seen_molecules_are_refused_with_the_two_ways_out():
    with pytest.raises(UsageError, match=r"1 of the 2 .*--drop-leaked .*--allow-leakage"):
        check_leakage(TRUTHS, SEEN, REFUSING)


def test_seen_molecules_are_left_out_with_all_their_spectra():
    checked = check_leakage(TRUTHS, SEEN, DROPPING)

    assert [truth.spectrum_id for truth in checked.truths] == ["c"]
    assert checked.left_out == (ETHANOL,)
    assert "1 molecules that were trained on, with 2 spectra" in checked.remarks[-1]


def test_what_a_rival_has_seen_is_left_out_too():
    lists = {"the weights": TrainingHashes.of([]), "the rival x": TrainingHashes.of([ETHER])}

    checked = check_leakage(TRUTHS, lists, DROPPING)

    assert checked.left_out == (ETHER,)


def test_nobody_can_be_left_out_without_a_list():
    lists = {**SEEN, "the rival x": None}

    with pytest.raises(UsageError, match=r"molecules of the rival x; .*'duallgd weights hashes'"):
        check_leakage(TRUTHS, lists, DROPPING)


def test_nothing_left_is_an_error():
    everything = {"the weights": TrainingHashes.of([ETHANOL, ETHER])}

    with pytest.raises(UsageError, match="every test molecule was trained on"):
        check_leakage(TRUTHS, everything, DROPPING)


def test_weights_without_a_list_are_not_called_clean():
    checked = check_leakage(TRUTHS, {"the weights": None}, REFUSING)

    assert "was not checked" in checked.remarks[0]


def test_the_nearest_of_several_tables_counts_and_the_near_ones_are_counted(tmp_path):
    far, near = tmp_path / "far.tsv", tmp_path / "near.tsv"
    far.write_text("smiles\tfold\nc1ccccc1\ttrain\nCCO\ttest\n")
    near.write_text("smiles\nCOC\nno molecule\n")

    found = similarities(TRUTHS, [far, near])
    checked = check_leakage(TRUTHS, {}, EvaluateSettings(train_data=(far, near)))

    assert found["c"] == 1.0
    assert found["a"] == found["b"] < 0.7
    assert checked.remarks[-1].startswith("1 of the 2 test molecules have a training molecule")


def test_a_table_without_training_molecules_is_refused(tmp_path):
    (tmp_path / "t.tsv").write_text("smiles\tfold\nCCO\ttest\n")

    with pytest.raises(UsageError, match="holds no training molecules"):
        similarities(TRUTHS, [tmp_path / "t.tsv"])
