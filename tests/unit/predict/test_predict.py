"""From files to rows: what each spectrum gives, and what is said where something is wrong."""

import gzip
import json
import os
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli import formulas as room
from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import Failure, MissingInputError, UnreadableError, UsageError
from duallgd_cli.formulas import FormulaSettings, RankedFormula, predicted_formulas
from duallgd_cli.predict import settings
from duallgd_cli.predict.journal import Journal
from duallgd_cli.predict.run import predict
from duallgd_cli.sources import Proposal
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.spectra.features import count_spectra
from duallgd_cli.spectra.types import Feature, Hypothesis
from tests.made_runs import (
    SETTINGS,
    TWELVE,
    Given,
    first_rows,
    model_with,
    predicted,
    request,
    rows_of,
)
from tests.made_spectra import ASPIRIN, CAFFEINE, block, made_spectrum, mgf
from tests.stub_model import stub_model

SMILES = "CC(=O)Oc1ccccc1C(=O)O"


RIGHT, NOTHING = (
    {"model": model_with(Given(*[drawn] * 4, name="noise"))}
    for drawn in (
        Proposal("noise", parse_smiles(SMILES), -1.5),
        Proposal("noise", None, -1.5, rejection="disconnected"),
    )
)
SMALL = {"model": replace(stub_model(), max_heavy_atoms=12)}
OPTION, PREDICT = (
    {"settings": replace(SETTINGS, **changes)}
    for changes in ({"adduct": "M+H"}, {"formula": "predict"})
)
FULL, BARE, NONE = (
    {"formulas": f"name,formula{text}\n"}
    for text in (",adduct\na,C9H8O4,[M+H]+", "\na,C9H8O4", "\na,")
)
OWN, NO_ADDUCT = block(ASPIRIN, title="a"), block(ASPIRIN, title="a").replace("ADDUCT=[M+H]+\n", "")
UNLABELLED = block(ASPIRIN, title="a", formula=None)
# Charge and time contradict or lack what is needed, and the adduct is no full name.
ODD = block(ASPIRIN, charge="2+", **{"retention time": "3.1"}).replace("[M+H]+", "M+H")
STRANGE = block((ASPIRIN[0], "C7H5O2"), scale=0.1).replace("END", "100.4 900\n110.6 800\nEND")
ELEMENT = "unsupported_element"
FIELDS = {"title": "aspirin 20", "rtinseconds": "62.5", "collision_energy": "20 eV"}


def from_where(adduct_source, formula_source="file", adduct="[M+H]+", **others):
    return others | {
        "adduct_source": adduct_source, "formula_source": formula_source, "adduct": adduct
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "options", "expected", "words"),
    [
        (OWN, RIGHT, {"rank": "1", "smiles": SMILES, "samples": "4", "log_likelihood": "-1.5"}, ""),
        (OWN, NOTHING, {"status": "no_candidate"}, "none of 4 samples is a molecule of C9H8O4 (4"),
        (OWN, SMALL, {"status": "too_large"}, "C9H8O4 has 13 heavy atoms and the limit is 12; r"),
        (block(ASPIRIN, **FIELDS), {}, {"name": "aspirin 20", "rt_seconds": "62.5",
         "collision_energy": "20 eV", "warnings": "", "formula_probability": "1"}, ""),
        (OWN, {}, from_where("file"), ""),
        (OWN, OPTION, from_where("option"), ""),
        (NO_ADDUCT, {}, from_where("inferred"), ""),
        (NO_ADDUCT.replace("FORMULA=C9H8O4\n", ""), {}, from_where("predicted", "predicted"), ""),
        (UNLABELLED, {}, from_where("file", "predicted"), ""),
        (UNLABELLED, NONE, from_where("file", "predicted"), ""),
        (NO_ADDUCT, FULL, from_where("table", "table"), ""),
        (OWN, BARE, from_where("file", "table"), ""),
        (NO_ADDUCT, BARE, from_where("inferred", "table"), ""),
        (OWN, PREDICT, from_where("file", "predicted"), ""),
        (OWN.replace("C9H8O4", "C99H9"), PREDICT, from_where("file", "predicted"), ""),
        (NO_ADDUCT.replace("O4", "Pt"), {}, from_where("", "", "", status=ELEMENT), ""),
        (ODD, {}, {"message": ""}, "is read as minutes"),
        (ODD.replace("FORMULA=C9H8O4\n", ""), {}, {"message": ""}, "is read as minutes"),
        (ODD.replace("O4", "Pt"), {}, {"status": ELEMENT}, "is read as minutes"),
        (ODD.replace("C9", "C8"), {}, {"status": "formula_mismatch"}, "is read as minutes"),
        (block((ASPIRIN[0], "P")), {}, {}, "none of the 1 peaks is explained by C9H8O4"),
        (STRANGE, {}, {}, "C9H8O4 explains 0.6% of the intensity of the peaks"),
    ],
)  # fmt: skip
def test_a_row_says_what_became_of_its_spectrum(tmp_path, written, options, expected, words):
    if "formulas" in options:
        (tmp_path / "table.csv").write_text(options["formulas"])
        options = {"formulas": tmp_path / "table.csv"}

    row, *_ = predicted(tmp_path, written, **options)

    assert row.items() >= ({"status": "ok"} | expected).items()
    # Each sentence stands in one column.
    columns = ("message", "warnings", "assumptions")
    said = [text for name in columns for text in row[name].split("; ") if text]
    assert words in "; ".join(said)
    assert len(said) == len(set(said))
    assert row["message"] or row["status"] == "ok"


def test_every_feature_has_an_outcome_in_input_order_and_the_record_counts_them(tmp_path):
    made = mgf(tmp_path / "in.mgf", *TWELVE)
    summary = predict(request(made, tmp_path / "out.csv", parts=True), stub_model())
    rows = rows_of(tmp_path / "out.csv")
    record = json.loads((tmp_path / "out.csv.run.json").read_text())

    first = {index: row["status"] for index, row in first_rows(rows).items()}
    wrong = {"6": "formula_mismatch", "8": "unsupported_adduct", "9": "unsupported_element"}
    order = ["0", "1", *map(str, range(4, 13))]
    assert list(dict.fromkeys(row["index"] for row in rows)) == order
    assert first == dict.fromkeys(order, "ok") | wrong | {"10": "no_peaks"}
    counts = summary.n_ok, summary.n_spectra, summary.n_ms1, summary.n_features
    assert counts == (8, 12, 1, 11)
    # Four samples of each are too few to state parts.
    assert (summary.n_few, rows_of(tmp_path / "out.parts.csv")) == (7, [])
    assert summary.n_candidates == record["candidates"] == sum(row["rank"] != "" for row in rows)
    assert (record["counts_by_status"]["ok"], record["spectra"], record["ms1_skipped"]) == (
        8,
        12,
        1,
    )
    assert record["weights"]["sha256"] == "0" * 64
    assert record["settings"]["sampling"]["samples"] == 4
    assert {"started", "seconds", "computing_s", "resumed"} == record["times"].keys()
    assert {"python", "torch", "numpy", "rdkit"} <= record["versions"].keys()
    assert [entry["name"] for entry in record["inputs"]] == [made]


BAD, DIGITS = 4, "9" * 5000
SOUND = block(ASPIRIN, title=str(BAD))
TEN = [block(CAFFEINE, title=str(n), scale=1 + n / 10) for n in range(10)]
NO_PEAKS = f"BEGIN IONS\nTITLE={BAD}\nPEPMASS=181.05\nEND IONS\n"
NO_FORMULA = "is not a molecular formula"


@pytest.mark.parametrize(
    ("changed", "into", "status", "words"),
    [
        ("C9H8O4", f"C{DIGITS}", "no_formula", NO_FORMULA),
        ("[M+H]+", f"[M+{DIGITS}H]+", "unsupported_adduct", "is not supported"),
        ("C9H8O4", "C9H\0O4", "formula_mismatch", "has m/z"),
        ("C9H8O4", "C11H12Xx", "unsupported_element", "holds Xx"),
        (
            "PEPMASS=181.04954",
            "PEPMASS=1e300",
            "no_precursor",
            "is not a positive number below 1,0",
        ),
        ("END", "1e300 1\nEND", "ok", ""),
        ("END", f"COLLISION_ENERGY={DIGITS}\nEND", "ok", "gives no one value in eV"),
        (SOUND, NO_PEAKS, "no_peaks", "export MS2 spectra together with their peaks"),
        (
            SOUND,
            NO_PEAKS.replace("END", "none\nEND"),
            "unreadable",
            "no m/z and intensity in 1 peak",
        ),
        # a cell of a table with a formula and a score
        ("cell", f"C{DIGITS},0.9", "no_formula", NO_FORMULA),
        ("cell", "C8H10N4O2Pt,0.9", "unsupported_element", "holds Pt"),
        ("cell", f"C9999H9999,{DIGITS}", "formula_mismatch", "has m/z"),
        ("cell", "=1+1,nan", "no_formula", "'=1+1' is not a molecular formula"),
    ],
)
def test_nine_of_ten_are_predicted_and_one_row_says_what_was_wrong(
    tmp_path, changed, into, status, words
):
    blocks, table = [*TEN[:BAD], SOUND.replace(changed, into), *TEN[BAD + 1 :]], None
    if changed == "cell":
        blocks, table = (
            [text.replace("FORMULA=C8H10N4O2\n", "") for text in TEN],
            tmp_path / "t.csv",
        )
        cells = ["C8H10N4O2,0.9"] * BAD + [into] + ["C8H10N4O2,0.9"] * (9 - BAD)
        lines = [f"{n},{cell}" for n, cell in enumerate(cells)]
        table.write_text("\n".join(["title,formula,score", *lines]))

    first = first_rows(predicted(tmp_path, *blocks, formulas=table))

    statuses = {index: row["status"] for index, row in first.items()}
    assert statuses == {str(n): "ok" for n in range(10)} | {str(BAD): status}
    bad = first[str(BAD)]
    assert bad["spectrum_id"] == str(BAD)
    assert words in f"{bad['message']}; {bad['warnings']}"
    assert len(bad["message"]) < 600


def test_a_feature_of_which_nothing_can_be_used_is_one_row(tmp_path):
    bare = block(ASPIRIN, FEATURE_ID="7").replace("BEGIN IONS", "BEGIN IONS\nSCANS={}")
    empty = "\n".join(line for line in bare.splitlines() if not line[:1].isdigit()) + "\n"
    seven, eight = block(ASPIRIN, FEATURE_ID="7"), block(ASPIRIN, FEATURE_ID="8")

    rows = predicted(tmp_path, empty.format(1), empty.format(2), eight, eight)
    apart = predicted(tmp_path, seven, eight, empty.format(1), force=True)

    of_each = [[row[name] for name in ("feature_id", "status", "indices")] for row in rows]
    assert of_each[0] == ["7", "no_peaks", "0 1"]
    assert all(one == ["8", "ok", "2 3"] for one in of_each[1:])
    # Rows of a feature stand together.
    assert list(dict.fromkeys(row["index"] for row in apart)) == ["0", "2", "1"]


def test_a_journal_that_was_damaged_on_the_way_is_not_taken_for_the_whole_run(
    tmp_path, monkeypatch
):
    made, out, whole = mgf(tmp_path / "in.mgf", *TWELVE), tmp_path / "out.csv", Journal.finish

    def damaged(journal, totals):
        whole(journal, totals)
        lines = journal.path.read_bytes().splitlines(keepends=True)
        lines[2] = lines[2].replace(b"hypotheses", b"hypothesen")
        journal.path.write_bytes(b"".join(lines))

    monkeypatch.setattr(Journal, "finish", damaged)

    with pytest.raises(UsageError, match="damaged after byte"):
        predict(request(made, out), stub_model())
    assert not out.exists()


def test_several_files_keep_their_order_and_a_broken_one_is_a_row(tmp_path):
    inputs = [str(tmp_path / name) for name in ("a.mgf.gz", "broken.mgf", "in.mgf")]
    (tmp_path / "a.mgf.gz").write_bytes(gzip.compress(block(ASPIRIN).encode()))
    (tmp_path / "broken.mgf").write_bytes(bytes(range(256)) * 20)
    mgf(tmp_path / "in.mgf", block(CAFFEINE))

    predict(request(inputs, tmp_path / "out.csv"), stub_model())

    rows = rows_of(tmp_path / "out.csv")
    statuses = dict.fromkeys((row["file"], row["status"]) for row in rows)
    assert list(statuses) == [*zip(inputs, ("ok", "unreadable", "ok"), strict=True)]


TOO_LONG = "a" * 300 + ".mgf"  # stat refuses it, as it refuses what lies in a locked folder


def test_what_cannot_be_read_is_an_error_in_words(tmp_path, monkeypatch):
    empty, ms1 = mgf(tmp_path / "a.mgf"), mgf(tmp_path / "b.mgf", block(ASPIRIN, mslevel="1"))
    monkeypatch.setattr(sys, "stdin", None)
    for name, error, said in (
        (empty, UnreadableError, "empty"),
        (ms1, UnreadableError, "1 of MS1"),
        (str(tmp_path / "absent.mgf"), MissingInputError, "absent"),
        (TOO_LONG, UnreadableError, r"aaa\.\.\. cannot be read: File name too long"),
        ("-", MissingInputError, "standard input is closed"),
    ):
        with pytest.raises(error, match=said):
            predict(request(name, tmp_path / "out.csv"), stub_model())
        assert not (tmp_path / "out.csv").exists()
    assert count_spectra((TOO_LONG,), "run") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_an_input_like_any_other(tmp_path):
    from_file = predicted(tmp_path, block(ASPIRIN), block(CAFFEINE))
    pipe, output = tmp_path / "pipe", tmp_path / "piped.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=((tmp_path / "in.mgf").read_bytes(),))
    writer.start()

    assert count_spectra((str(pipe),), "none") is None  # counting would leave nothing for the run
    assert predict(request(str(pipe), output), stub_model()).n_spectra == 2
    writer.join()

    assert [row["smiles"] for row in rows_of(output)] == [row["smiles"] for row in from_file]


@pytest.mark.parametrize("has_database", [False, True])
def test_where_all_are_known_the_row_says_so(tmp_path, databases, has_database):
    (tmp_path / "all.smi").write_text("Cn1c(=O)c2c(ncn2C)n(C)c1=O\n")
    files = GuideFiles(databases=(str(tmp_path / "all.smi"),)) if has_database else None
    sampling = SamplingSettings(steps=1, samples=8, exclude_known=True)
    asked = {"guide": files, "settings": replace(SETTINGS, top_k=99, sampling=sampling)}
    drawn = {row["inchikey14"] for row in predicted(tmp_path, block(CAFFEINE), **asked)}
    model = replace(stub_model(), known=tuple(drawn))

    (row,) = predicted(tmp_path, block(CAFFEINE), model=model, force=True, **asked)

    said = "all found for C8H10N4O2 are known molecules; drop --exclude-known"
    assert (row["status"], row["message"]) == ("no_candidate", said)


@pytest.mark.parametrize(
    ("probabilities", "options", "expected"),
    [
        ((0.96, 0.03), {}, 1),
        ((0.7, 0.2, 0.06, 0.03), {}, 3),
        ((0.3, 0.2, 0.1, 0.1, 0.1, 0.1), {}, 5),
        ((0.3, 0.2, 0.1, 0.1, 0.1, 0.1), {"most": 1}, 1),
        ((0.2,), {}, 1),
        ((0.87, 0.02, 0.01), {}, 1),  # a narrow tolerance: the rest lies beyond it
        ((0.6, 0.3), {"largest": 3}, 1),  # what the weights cannot draw is left out
        ((0.6,), {"largest": 2}, 0),
    ],
)
def test_as_many_formulas_are_tried_as_hold_the_probability(
    monkeypatch, probabilities, options, expected
):
    ranked = [
        RankedFormula(Formula.parse(f"C{n}H{2 * n}O"), BY_NAME["[M+H]+"], np.log(p), 0.0, 1.0, 1, 1)
        for n, p in enumerate(probabilities, start=2)
    ]
    monkeypatch.setattr(room, "rank_formulas", lambda *_: ranked)
    largest, most = options.get("largest", 100), options.get("most", 5)

    tried = predicted_formulas(Feature((made_spectrum(),)), FormulaSettings(), largest, most)

    if not expected:
        assert isinstance(tried, Failure)
        assert tried.status == "too_large"
        return
    assert [np.exp(one.log_prior) for one in tried] == pytest.approx(probabilities[:expected])
    assert sum(one.share for one in tried) == pytest.approx(1.0)
    assert {one.source for one in tried} == {"predicted"}


def test_samples_are_shared_by_probability_but_none_gets_fewer_than_fifteen(tmp_path, monkeypatch):
    def two(feature, **_):
        about = feature, BY_NAME["[M+H]+"]
        return [
            Hypothesis(about[0], Formula.parse(text), about[1], prior, source="predicted", share=n)
            for text, prior, n in (("C9H8O4", -0.2, 0.9), ("C13H8O", -2.0, 0.1))
        ]

    monkeypatch.setattr(settings, "predicted_formulas", two)
    made = mgf(tmp_path / "in.mgf", UNLABELLED)

    (one,) = stub_model().predict(made, samples=40, steps=2)

    tried = [(each.sampled, each.log_prior, each.formula_source) for each in one.hypotheses]
    assert tried == [(36, -0.2, "predicted"), (15, -2.0, "predicted")]


NAMED = (block(ASPIRIN, feature_id="1", scans="11"), block(CAFFEINE, feature_id="2", name="known"))


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"formulas": "id,formula\n1,C9H8O4\n2,C8H10N4O2\n"}, ""),
        ({"formulas": "id,formula\n1,C9H8O4\n"}, ""),
        ({"formulas": "id,name,formula\n1,x,C9H8O4\n77,known,C8H10N4O2\n"}, ""),
        (
            {"formulas": "id,formula\n1,C9H8O4\n3,CH4\n3,C2H6\n"},
            "1 id of --formulas matches no feature of the input: '3'",
        ),
        (
            {"formulas": "id,formula\n" + "".join(f"{n},CH4\n" for n in range(1, 9))},
            "6 ids of --formulas match no feature of the input: '3', '4', '5' and others",
        ),
        (  # compound names are not looked up in guides
            {
                "tables": "feature_id,forbid\n1,indole\nknown,indole\n",
                "analogues": "smiles,feature_id\nCCO,2\nCCN,9\nCCC,\n",
            },
            "2 ids of --guide or --analogues match no feature of the input: 'known', '9'",
        ),
    ],
)
def test_ids_of_tables_that_no_feature_has_are_said_at_the_end(tmp_path, caplog, tables, said):
    places = {name: tmp_path / f"{name}.csv" for name in tables}
    for name, place in places.items():
        place.write_text(tables[name])
    formulas = places.pop("formulas", None)
    guide = GuideFiles(**{name: (str(place),) for name, place in places.items()})

    predicted(tmp_path, *NAMED, formulas=formulas, guide=guide if places else None)

    messages = [record.getMessage() for record in caplog.records]
    ending = "; check the ids"
    assert [text for text in messages if text.endswith(ending)] == [said + ending][: bool(said)]
