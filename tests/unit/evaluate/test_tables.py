import math

import pytest

from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.evaluate.tables import choose, read_predictions, truths_of
from duallgd_cli.tables import table_rows

HEADER = "identifier\tmzs\tintensities\tsmiles\tfold\tadduct\n"
ROWS = (
    "a1\t50.1,60.2\t1,0.5\tCCO\ttest\t[M+H]+\n"
    "a2\t50.1\t1\tC(C)O\ttest\t[M+Na]+\n"
    "b1\t51.0\t1\tCC(=O)O\ttrain\t[M-H]-\n"
    "c1\t52.0\t1\tCCN\ttest\t[M+H]+\n"
)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def read_truth(path, fold=""):
    return truths_of(table_rows(path, required=("smiles",)), fold, str(path))


def test_spectra_of_one_molecule_share_its_name_however_it_is_written(tmp_path):
    truths = read_truth(write(tmp_path / "t.tsv", HEADER + ROWS))

    assert [truth.spectrum_id for truth in truths] == ["a1", "a2", "b1", "c1"]
    assert truths[0].molecule == truths[1].molecule == "LFQSCWFLJHTTHZ"
    assert truths[0].fields["adduct"] == "[M+H]+"
    assert "mzs" not in truths[0].fields


def test_a_fold_is_kept_and_an_unknown_one_refused(tmp_path):
    path = write(tmp_path / "t.tsv", HEADER + ROWS)

    assert [truth.spectrum_id for truth in read_truth(path, "test")] == ["a1", "a2", "c1"]
    with pytest.raises(UsageError, match=r"no fold 'dev'; its folds are test, train"):
        read_truth(path, "dev")


def test_the_panels_of_a_fold_are_halves_by_molecule(tmp_path):
    rows = "".join(
        f"{n}{k}\t50.1\t1\t{n * 'C'}O\tval\t[M+H]+\n" for n in range(1, 60) for k in "ab"
    )
    path = write(tmp_path / "t.tsv", HEADER + ROWS + rows)

    a, b = (read_truth(path, f"val:{panel}") for panel in "AB")
    assert {one.spectrum_id for one in a + b} == {t.spectrum_id for t in read_truth(path, "val")}
    assert not {one.molecule for one in a} & {one.molecule for one in b}
    assert 30 < len(a) < 88
    for wrong in ("val:C", "val:", "val:AB"):
        with pytest.raises(UsageError, match="has the panels A and B, as in val:A"):
            read_truth(path, wrong)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("identifier\tfold\nx\ttest\n", r"no column smiles; it has identifier, fold"),
        ("smiles\tfold\nCCO\ttest\n", r"none of the columns identifier, spectrum_id"),
        ("identifier\tsmiles\nx\tnope\n", r"'nope' as the structure of 'x'"),
        ("identifier\tsmiles\nx\tCCO\nx\tCC\n", r"holds 'x' twice"),
        ("identifier\tsmiles\n", r"holds no rows"),
        ("", r"no column smiles; it has no columns"),
    ],
)
def test_a_broken_truth_is_refused_with_its_reason(tmp_path, text, message):
    with pytest.raises(UnreadableError, match=message):
        read_truth(write(tmp_path / "t.tsv", text))


@pytest.fixture
def truths(tmp_path):
    return read_truth(write(tmp_path / "t.tsv", HEADER + ROWS))


def test_one_spectrum_a_molecule_is_a_fixed_choice(truths):
    chosen = choose(truths, "1", None)

    assert len(chosen) == 3
    assert {truth.molecule for truth in chosen} == {truth.molecule for truth in truths}
    again = choose(list(reversed(truths)), "1", None)
    assert {t.spectrum_id for t in again} == {t.spectrum_id for t in chosen}
    assert [t.spectrum_id for t in chosen] == sorted(t.spectrum_id for t in chosen)


def test_a_limit_keeps_part_of_the_same_choice(truths):
    two = {truth.spectrum_id for truth in choose(truths, "all", 2)}
    three = {truth.spectrum_id for truth in choose(truths, "all", 3)}

    assert len(two) == 2
    assert two < three


def test_predictions_are_ordered_by_rank_and_failures_kept(tmp_path):
    table = (
        "spectrum_id,file,index,rank,smiles,confidence,status\n"
        "a,f.mgf,0,2,CCO,0.25,ok\n"
        "a,f.mgf,0,1,COC,0.5,ok\n"
        "b,f.mgf,1,,,,no_formula\n"
    )

    found = read_predictions(write(tmp_path / "p.csv", table))

    assert found["a"].smiles == ("COC", "CCO")
    assert found["a"].confidence == (0.5, 0.25)
    assert (found["b"].smiles, found["b"].status) == ((), "no_formula")


def test_a_rival_s_table_without_ranks_is_read_in_its_order(tmp_path):
    found = read_predictions(write(tmp_path / "p.tsv", "identifier\tsmiles\na\tCCO\na\tCOC\n"))

    assert found["a"].smiles == ("CCO", "COC")
    assert all(math.isnan(value) for value in found["a"].confidence)
    assert found["a"].status == "ok"


FEATURE = "spectrum_id,file,index,feature_id,rank,smiles,status,indices\n"


@pytest.mark.parametrize(
    "rows",
    [
        "7,f,0,7,1,CCO,ok,0 1\n7,f,0,7,2,COC,ok,0 1\n",
        "7,f,0,7,1,CCO,ok,0 1\n7,f,0,7,2,COC,ok,0 1\n7,f,1,7,1,CCO,ok,0 1\n7,f,1,7,2,COC,ok,0 1\n",
        "7,f,0,7,,,no_peaks,0\n7,f,1,7,1,CCO,ok,1 2\n7,f,1,7,2,COC,ok,1 2\n",
    ],
    ids=["one block a feature", "one block a spectrum", "a spectrum of it was not used"],
)
def test_spectra_that_were_read_together_are_one_prediction(tmp_path, rows):
    found = read_predictions(write(tmp_path / "p.csv", FEATURE + rows))

    assert found["7"].smiles == ("CCO", "COC")
    assert found["7"].status == "ok"


@pytest.mark.parametrize(
    "rows",
    [
        "7,f,0,7,1,CCO,ok,0\n7,f,1,7,1,COC,ok,1\n",  # two ions of one feature
        "7,f,0,7,1,CCO,ok,0\n7,g,0,7,1,CCO,ok,0\n",  # of two files
        "7,f,0,,1,CCO,ok,0\n7,f,1,,,,no_peaks,1\n",  # two spectra of one title
    ],
)
def test_spectra_that_share_a_name_alone_are_refused(tmp_path, rows):
    with pytest.raises(UsageError, match=r"2 spectra named '7'; .*a different identifier"):
        read_predictions(write(tmp_path / "p.csv", FEATURE + rows))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,f,0,1,CCO\na,f,0,1,COC\n", "rank 1 twice for 'a'"),
        ("a,f,0,first,CCO\n", "rank 'first' for 'a'"),
    ],
)
def test_ambiguous_predictions_are_refused(tmp_path, rows, message):
    path = write(tmp_path / "p.csv", "spectrum_id,file,index,rank,smiles\n" + rows)

    with pytest.raises(UnreadableError, match=message):
        read_predictions(path)
