import math

import pytest

from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.evaluate.tables import choose, read_predictions, truths_of, write_unlabelled
from duallgd_cli.tables import table_rows

HEADER = "identifier\tmzs\tintensities\tsmiles\tfold\tadduct\n"
ROWS = (
    "a1\t50.1,60.2\t1,0.5\tCCO\ttest\t[M+H]+\n"
    "a2\t50.1\t1\tC(C)O\ttest\t[M+Na]+\n"
    "b1\t51.0\t1\tCC(=O)O\ttrain\t[M-H]-\n"
    "c1\t52.0\t1\tCCN\ttest\t[M+H]+\n"
)


@pytest.fixture
def write(tmp_path):
    def written(text, name="t.tsv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return written


@pytest.fixture
def read_truth(write):
    def read(text=HEADER + ROWS, fold=""):
        return truths_of(table_rows(write(text), required=("smiles",)), fold, "t.tsv")

    return read


def ids(truths):
    return [truth.spectrum_id for truth in truths]


def test_spectra_of_one_molecule_share_its_name_however_it_is_written(read_truth):
    truths = read_truth()

    assert ids(truths) == ["a1", "a2", "b1", "c1"]
    assert truths[0].molecule == truths[1].molecule == "LFQSCWFLJHTTHZ"
    assert truths[0].fields["adduct"] == "[M+H]+"
    assert "mzs" not in truths[0].fields


def test_the_panels_of_a_fold_are_halves_by_molecule(read_truth):
    rows = "".join(
        f"{n}{k}\t50.1\t1\t{n * 'C'}O\tval\t[M+H]+\n" for n in range(1, 60) for k in "ab"
    )
    text = HEADER + ROWS + rows

    a, b = (read_truth(text, f"val:{panel}") for panel in "AB")

    assert {*ids(a + b)} == {*ids(read_truth(text, "val"))}
    assert not {one.molecule for one in a} & {one.molecule for one in b}
    assert 30 < len(a) < 88
    assert ids(a)[:8:2] == ["1a", "2a", "3a", "7a"]  # which half is which never changes


@pytest.mark.parametrize(
    ("text", "fold", "error", "message"),
    [
        (HEADER + ROWS, "dev", UsageError, r"no fold 'dev'; its folds are test, train"),
        *(
            (HEADER + ROWS, fold, UsageError, "has the panels A and B, as in val:A")
            for fold in ("val:C", "val:", "val:AB")
        ),
        ("identifier\tfold\nx\ttest\n", "", UnreadableError, r"no column smiles; it has ident"),
        ("smiles\tfold\nCCO\ttest\n", "", UnreadableError, r"none of the columns identifier, sp"),
        ("identifier\tsmiles\nx\tnope\n", "", UnreadableError, r"'nope' as the structure of 'x'"),
        ("identifier\tsmiles\nx\tCCO\nx\tCC\n", "", UnreadableError, r"holds 'x' twice"),
        ("identifier\tsmiles\n", "", UnreadableError, r"holds no rows"),
        ("", "", UnreadableError, r"no column smiles; it has no columns"),
    ],
)
def test_a_truth_that_cannot_be_read_is_refused_with_its_reason(
    read_truth, text, fold, error, message
):
    with pytest.raises(error, match=message):
        read_truth(text, fold)


def test_a_choice_of_spectra_depends_on_nothing_but_the_identifiers(read_truth):
    truths = read_truth()

    one_each, two, three = choose(truths, "1", None), *(choose(truths, "all", n) for n in (2, 3))

    assert len(one_each) == len({truth.molecule for truth in truths}) == 3
    assert ids(one_each) == sorted(ids(one_each))
    assert {*ids(choose(truths[::-1], "1", None))} == {*ids(one_each)}
    assert (len(two), len(three)) == (2, 3)
    assert {*ids(two)} < {*ids(three)}


def test_what_is_predicted_from_has_no_structure_and_a_formula_only_where_it_is_given(
    read_truth, tmp_path
):
    (truth, *_) = read_truth()
    rows = [truth.fields | {"mzs": "59.01", "formula": "C2H6O", "inchikey": "LFQSCWFLJHTTHZ"}]
    texts = []
    for with_formula in (False, True):
        write_unlabelled(rows, [truth], tmp_path / "spectra.tsv", with_formula=with_formula)
        texts.append((tmp_path / "spectra.tsv").read_text())

    assert texts[0].splitlines()[0].split("\t") == [
        *("identifier", "mzs", "intensities", "precursor_mz", "adduct", "ion_mode"),
        *("instrument_type", "instrument", "resolution"),
        *("collision_energy", "collision_energy_text"),
    ]
    assert not any(word in texts[0] for word in ("CCO", "C2H6O", "LFQSCWFLJHTTHZ"))
    assert ("C2H6O" in texts[1], "CCO" in texts[1]) == (True, False)


def test_predictions_are_ordered_by_rank_and_failures_kept(write):
    found = read_predictions(
        write(
            "spectrum_id,file,index,rank,smiles,confidence,status\n"
            "a,f.mgf,0,2,CCO,0.25,ok\na,f.mgf,0,1,COC,0.5,ok\nb,f.mgf,1,,,,no_formula\n",
            "p.csv",
        )
    )

    assert (found["a"].smiles, found["a"].confidence) == (("COC", "CCO"), (0.5, 0.25))
    assert (found["b"].smiles, found["b"].status) == ((), "no_formula")


def test_another_program_s_table_without_ranks_is_read_in_its_order(write):
    found = read_predictions(write("identifier\tsmiles\na\tCCO\na\tCOC\n"))

    assert found["a"].smiles == ("CCO", "COC")
    assert all(math.isnan(value) for value in found["a"].confidence)
    assert found["a"].status == "ok"


@pytest.mark.parametrize(
    ("header", "expected"), [("feature_id\tsmiles", "7"), ("identifier\tsmiles", "scan 3")]
)
def test_a_truth_by_feature_finds_the_predictions_of_features(write, header, expected):
    (truth,) = truths_of(table_rows(write(f"{header}\n{expected}\tCCO\n")), "", "t.tsv")
    table = write("spectrum_id,feature_id,rank,smiles\nscan 3,7,1,CCO\n", "p.csv")

    assert list(read_predictions(table, truth.fields)) == [expected]
    without = write("spectrum_id,feature_id,rank,smiles\nscan 3,,1,CCO\n", "p.csv")
    assert list(read_predictions(without, truth.fields)) == ["scan 3"]


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
def test_spectra_that_were_read_together_are_one_prediction(write, rows):
    found = read_predictions(write(FEATURE + rows, "p.csv"))

    assert (found["7"].smiles, found["7"].status) == (("CCO", "COC"), "ok")


TWO = r"2 spectra named '7'; .*a different identifier"


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ("7,f,0,7,1,CCO,ok,0\n7,f,1,7,1,COC,ok,1\n", UsageError, TWO),  # two ions of one feature
        ("7,f,0,7,1,CCO,ok,0\n7,g,0,7,1,CCO,ok,0\n", UsageError, TWO),  # of two files
        ("7,f,0,,1,CCO,ok,0\n7,f,1,,,,no_peaks,1\n", UsageError, TWO),  # two of one title
        ("a,f,0,,1,CCO,,\na,f,0,,1,COC,,\n", UnreadableError, "rank 1 twice for 'a'"),
        ("a,f,0,,first,CCO,,\n", UnreadableError, "rank 'first' for 'a'"),
    ],
)
def test_ambiguous_predictions_are_refused(write, rows, error, message):
    with pytest.raises(error, match=message):
        read_predictions(write(FEATURE + rows, "p.csv"))
