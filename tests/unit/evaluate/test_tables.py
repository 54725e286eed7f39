"""Tables of the truth and of predictions."""

import pytest

from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.evaluate.run import inputs_of
from duallgd_cli.evaluate.settings import EvaluateSettings
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
    def written(text):
        (tmp_path / "p.csv").write_text(text, encoding="utf-8")
        return tmp_path / "p.csv"

    return written


@pytest.fixture
def read_truth(write):
    return lambda text=HEADER + ROWS, fold="": truths_of(
        table_rows(write(text), required=("smiles",)), fold, "t.tsv"
    )


def ids(truths):
    return [truth.spectrum_id for truth in truths]


def test_spectra_of_one_molecule_share_its_name_however_it_is_written(read_truth):
    truths = read_truth()

    assert ids(truths) == ["a1", "a2", "b1", "c1"]
    assert truths[0].molecule == truths[1].molecule == "LFQSCWFLJHTTHZ"
    assert truths[0].fields["adduct"] == "[M+H]+"
    assert "mzs" not in truths[0].fields


def test_the_panels_of_a_fold_are_halves_by_molecule(read_truth):
    names = [(f"{n}{k}", n * "C") for n in range(1, 60) for k in "ab"]
    text = HEADER + ROWS + "".join(f"{name}\t50\t1\t{c}O\tval\t[M+H]+\n" for name, c in names)

    a, b = (read_truth(text, f"val:{panel}") for panel in "AB")

    assert sorted(ids(a + b)) == sorted(ids(read_truth(text, "val")))
    assert not {truth.molecule for truth in a} & {truth.molecule for truth in b}
    assert 30 < len(a) < 88
    assert ids(a)[:8:2] == ["1a", "2a", "3a", "7a"]  # which half is which never changes


@pytest.mark.parametrize(
    ("text", "fold", "error", "message"),
    [
        (HEADER + ROWS, "dev", UsageError, r"no fold 'dev'; its folds are test, train"),
        (HEADER + ROWS, "val:AB", UsageError, "has the panels A and B, as in val:A"),
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


def test_all_structures_that_are_none_are_counted_and_the_first_named(read_truth):
    rows = "".join(f"s{n}\tC1CC{'(' * n}\n" for n in range(5))
    said = (
        r"has 4 rows whose smiles is no single molecule \('C1CC\(' as the structure of 's1'; "
        r"'C1CC\(\(' .* of 's2'; 'C1CC\(\(\(' .* of 's3' and others\); correct them"
    )
    with pytest.raises(UnreadableError, match=said):
        read_truth("identifier\tsmiles\n" + rows.replace("C1CC\n", "CCO\n"))


def test_a_salt_in_the_truth_is_its_parent_and_a_mixture_is_refused(read_truth, caplog):
    (salt,) = read_truth("identifier\tsmiles\na\tCN1CCCC1c1cccnc1.Cl\n")
    (alone,) = read_truth("identifier\tsmiles\na\tCN1CCCC1c1cccnc1\n")

    assert salt == alone
    assert "1 salt is read as its parent molecule" in caplog.text
    for text in ("[Na+].[Cl-]", "Cc1ccccc1.NCCCCCC"):
        with pytest.raises(UnreadableError, match="1 row whose smiles is no single molecule"):
            read_truth(f"identifier\tsmiles\na\t{text}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("BEGIN IONS\nPEPMASS=90.05\n50.1 1\nEND IONS\n", "it has begin ions"),
        ("Name: alanine\nPrecursorMZ: 90.05\nNum Peaks: 1\n50.1 1\n", "it has name: ala"),
    ],
)
def test_of_a_file_of_spectra_it_is_said_that_a_table_is_asked_for(write, text, said):
    path, truth = write(text), " is a table with the columns identifier, smiles"
    for given, asked in (
        ({"benchmark": path}, f"a benchmark{truth}, mzs, intensities, precursor_mz$"),
        ({"predictions": path, "truth": path}, f"the truth{truth}$"),
    ):
        with pytest.raises(UnreadableError, match=f"has no column smiles; {said}.*; {asked}"):
            inputs_of(EvaluateSettings(**given))
    with pytest.raises(UnreadableError, match="; predictions are a table with the columns ide"):
        read_predictions(path)


def test_a_choice_of_spectra_depends_on_nothing_but_the_identifiers(read_truth):
    truths = read_truth()

    one_each, two, three = choose(truths, "1", None), *(choose(truths, "all", n) for n in (2, 3))

    assert len(one_each) == len({truth.molecule for truth in truths}) == len(three) == 3
    assert ids(one_each) == sorted(ids(one_each)) == sorted(ids(choose(truths[::-1], "1", None)))
    assert len(two) == 2
    assert {*ids(two)} < {*ids(three)}


def test_what_is_predicted_from_has_no_structure_and_a_formula_only_where_it_is_given(
    read_truth, tmp_path
):
    (truth, *_) = read_truth()
    row = truth.fields | {"mzs": "59.01", "formula": "C2H6O", "inchikey": "LFQSCWFLJHTTHZ"}
    tables = []
    for with_formula in (False, True):
        write_unlabelled([row], [truth], tmp_path / "s.tsv", with_formula=with_formula)
        tables.append([line.split("\t") for line in (tmp_path / "s.tsv").read_text().splitlines()])

    (names, cells), (_, with_formula) = tables
    assert {n: c for n, c in zip(names, cells, strict=True) if c} == {
        "identifier": "a1", "mzs": "59.01", "adduct": "[M+H]+"
    }  # fmt: skip
    assert {"intensities", "precursor_mz", "ion_mode", "collision_energy", "resolution"} < {*names}
    assert with_formula == [*cells, "C2H6O"]


FEATURE = "spectrum_id,file,index,feature_id,rank,smiles,status,indices\n"
ONE = "7,f,0,7,1,CCO,ok,0 1\n7,f,0,7,2,COC,ok,0 1\n"


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            "spectrum_id,file,index,rank,smiles,confidence,status\na,f,0,2,CCO,0.25,ok\n"
            "a,f,0,1,COC,0.5,ok\nb,f,1,,,,no_formula\n",
            {"a": "COC CCO ok 0.5 0.25", "b": "no_formula"},
        ),
        ("identifier\tsmiles\na\tCCO\na\tCOC\n", {"a": "CCO COC ok nan nan"}),  # no ranks
        (FEATURE + ONE, {"7": "CCO COC ok nan nan"}),
        # Spectra that were read together are one prediction; one of them was not used.
        (FEATURE + ONE + ONE.replace("f,0", "f,1"), {"7": "CCO COC ok nan nan"}),
        (
            FEATURE + "7,f,0,7,,,no_peaks,0\n" + ONE.replace("f,0", "f,1"),
            {"7": "CCO COC ok nan nan"},
        ),
    ],
)
def test_predictions_are_ordered_by_rank_and_failures_kept(write, table, expected):
    found = read_predictions(write(table))

    shown = {n: " ".join(map(str, (*p.smiles, p.status, *p.confidence))) for n, p in found.items()}
    assert shown == expected


def test_a_truth_by_feature_finds_the_predictions_of_features(write):
    by_feature, by_name = {"feature_id": "7"}, {"identifier": "scan 3"}
    table = "spectrum_id,feature_id,rank,smiles\nscan 3,7,1,CCO\n"

    assert list(read_predictions(write(table), by_feature)) == ["7"]
    assert list(read_predictions(write(table), by_name)) == ["scan 3"]
    assert list(read_predictions(write(table.replace(",7,", ",,")), by_feature)) == ["scan 3"]


TWO = r"2 spectra named '7'; .*a different identifier"


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ("7,f,0,7,1,CCO,ok,0\n7,f,1,7,1,COC,ok,1\n", UsageError, TWO),  # two ions of one feature
        ("7,f,0,7,1,CCO,ok,0\n7,g,0,7,1,CCO,ok,0\n", UsageError, TWO),  # of two files
        ("7,f,0,,1,CCO,ok,0\n7,f,1,,,,no_peaks,1\n", UsageError, TWO),  # two of one title
        ("a,f,0,,1,CCO,,\na,f,0,,1,COC,,\n", UnreadableError, "rank 1 twice for 'a'"),
        ("a,f,0,,first,CCO,,\n", UnreadableError, "rank 'first' for 'a'"),
        (
            "a,f,0,,2,CCO,,\na,f,0,,1,CCC,,\na,f,0,,,CCN,,\n",
            UnreadableError,
            "rows of 'a' with a rank and others without; give each",
        ),
    ],
)
def test_ambiguous_predictions_are_refused(write, rows, error, message):
    with pytest.raises(error, match=message):
        read_predictions(write(FEATURE + rows))
