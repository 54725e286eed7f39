import gzip
import json
from dataclasses import replace

import pytest

from duallgd_cli.chem import identity
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.predict.run import predict
from duallgd_cli.sources import Proposal
from duallgd_cli.sources.known import GuideFiles
from tests.made_runs import SETTINGS, first_rows, model_with, predicted, request, rows_of
from tests.made_spectra import ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

SMILES = "CC(=O)Oc1ccccc1C(=O)O"


class Oracle:
    """Draws the same every time: the right molecule, or none."""

    name = "noise"

    def __init__(self, smiles=None):
        self.mol = smiles and identity.parse_smiles(smiles)

    def propose(self, query, n, seed):
        assert self.mol is None or query.formula == formula_of(self.mol)
        why = {} if self.mol else {"rejection": "disconnected"}
        return (Proposal("noise", self.mol, -1.5, **why) for _ in range(n))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            model_with(Oracle(SMILES)),
            {"rank": "1", "smiles": SMILES, "samples": "4", "log_likelihood": "-1.5"},
        ),
        (
            model_with(Oracle()),
            {
                "status": "no_candidate",
                "message": "none of 4 samples is a molecule of C9H8O4 (4 disconnected); "
                "more --samples or --steps may help",
            },
        ),
        (
            replace(stub_model(), max_heavy_atoms=12),
            {
                "status": "too_large",
                "message": "C9H8O4 has 13 heavy atoms and the limit is 12; raise max_heavy_atoms",
            },
        ),
    ],
)
def test_what_is_drawn_is_in_the_row_or_why_nothing_is(tmp_path, model, expected):
    (row,) = predicted(tmp_path, block(ASPIRIN), model=model)

    assert row.items() >= ({"status": "ok"} | expected).items()


def test_every_feature_has_an_outcome_in_input_order(finished):
    summary, path = finished
    rows = rows_of(path)
    first = first_rows(rows)

    order = list(dict.fromkeys(row["index"] for row in rows))
    assert order == ["0", "1", "4", "5", "6", "7", "8", "9", "10", "11", "12"]
    assert [first[index]["status"] for index in order] == [
        *("ok", "ok", "ok", "ok", "formula_mismatch", "ok", "unsupported_adduct"),
        *("unsupported_element", "no_peaks", "ok", "ok"),
    ]
    source = [first[index]["formula_source"] for index in ("0", "5", "10")]
    assert source == ["file", "predicted", ""]
    assert (summary.counts["ok"], summary.n_spectra, summary.n_ms1) == (8, 12, 1)
    assert (summary.n_features, summary.n_ok, summary.n_candidates) == (
        *(11, 8, sum(row["rank"] != "" for row in rows)),
    )
    assert all(row["message"] for row in rows if row["status"] != "ok")


def test_the_run_record_says_what_was_run(finished):
    record = json.loads(finished[1].with_name("out.csv.run.json").read_text())

    assert record["counts_by_status"]["ok"] == 8
    assert (record["spectra"], record["ms1_skipped"], record["shard"]) == (12, 1, "1/1")
    assert record["weights"]["sha256"] == "0" * 64
    assert record["settings"]["sampling"]["samples"] == 4
    assert {"started", "seconds", "computing_s", "resumed"} == set(record["times"])
    assert {"python", "torch", "numpy", "rdkit"} <= set(record["versions"])
    assert record["inputs"][0]["name"].endswith("in.mgf")


def test_what_the_file_says_of_a_spectrum_is_in_its_columns(tmp_path):
    fields = {"title": "aspirin 20", "rtinseconds": "62.5", "collision_energy": "20 eV"}
    platinum = block(CAFFEINE, formula="C8H10Pt").replace("[M+H]+", "M+H")

    first, *_, last = predicted(tmp_path, block(ASPIRIN, **fields), platinum)

    expected = {"name": "aspirin 20", "rt_seconds": "62.5", "collision_energy": "20 eV"}
    assert first.items() >= (expected | {"warnings": ""}).items()
    assert (last["status"], last["adduct"]) == ("unsupported_element", "[M+H]+")


FULL, BARE = "name,formula,adduct\na,C9H8O4,[M+H]+\n", "name,formula\na,C9H8O4\n"


@pytest.mark.parametrize(
    ("has_adduct", "formula", "options", "source"),
    [
        (True, "C9H8O4", {}, "file"),
        (True, "C9H8O4", {"settings": replace(SETTINGS, adduct="M+H")}, "option"),
        (False, "C9H8O4", {}, "inferred"),
        (False, None, {}, "predicted"),
        (True, None, {}, "file"),
        (False, "C9H8O4", {"formulas": FULL}, "table"),
        (True, "C9H8O4", {"formulas": BARE}, "file"),
        (False, "C9H8O4", {"formulas": BARE}, "inferred"),
        (False, "C9H8Pt", {}, ""),
    ],
)
def test_a_row_says_where_its_adduct_comes_from(tmp_path, has_adduct, formula, options, source):
    if text := options.get("formulas"):
        (tmp_path / "table.csv").write_text(text)
        options = {"formulas": tmp_path / "table.csv"}
    written = block(ASPIRIN, title="a", formula=formula)

    first, *_ = predicted(
        tmp_path, written if has_adduct else written.replace("ADDUCT=[M+H]+\n", ""), **options
    )

    assert (first["adduct_source"], first["adduct"]) == (source, "[M+H]+" if source else "")


@pytest.mark.parametrize(
    ("formula", "status"),
    [
        ("C9H8O4", "ok"),
        (None, "ok"),
        ("C9H8Pt", "unsupported_element"),
        ("C8H8O4", "formula_mismatch"),
    ],
)
def test_each_sentence_stands_in_one_column(tmp_path, formula, status):
    odd = {"charge": "2+", "retention time": "3.1"}
    guessed = block(ASPIRIN, formula=formula, **odd).replace("[M+H]+", "M+H")

    first, *_ = predicted(tmp_path, guessed)

    said = [
        text
        for column in ("message", "warnings", "assumptions")
        for text in first[column].split("; ")
        if text
    ]
    assert (first["status"], first["message"] != "") == (status, status != "ok")
    assert "is read as minutes" in first["assumptions"]
    assert len(said) == len(set(said)) >= 2


def test_a_feature_of_which_nothing_can_be_used_is_one_row(tmp_path):
    bare = block(ASPIRIN, FEATURE_ID="7").replace("BEGIN IONS", "BEGIN IONS\nSCANS={}")
    empty = "\n".join(line for line in bare.splitlines() if not line[:1].isdigit()) + "\n"
    seven, eight = block(ASPIRIN, FEATURE_ID="7"), block(ASPIRIN, FEATURE_ID="8")

    rows = predicted(tmp_path, empty.format(1), empty.format(2), eight, eight)
    apart = predicted(tmp_path, seven, eight, empty.format(1), force=True)

    of_each = [[row[n] for n in ("feature_id", "status", "indices")] for row in rows]
    assert of_each[0] == ["7", "no_peaks", "0 1"]
    assert all(one == ["8", "ok", "2 3"] for one in of_each[1:])
    # Rows of a feature stand together.
    assert list(dict.fromkeys(row["index"] for row in apart)) == ["0", "2", "1"]


def test_a_formula_that_explains_next_to_nothing_is_said(tmp_path):
    strange = block((ASPIRIN[0], "C7H5O2"), scale=0.1).replace("END", "100.4 900\n110.6 800\nEND")

    rows = predicted(tmp_path, strange, block((ASPIRIN[0], "P"), scale=1.0))

    assert {row["status"] for row in rows} == {"ok"}
    assert "none of the 1 peaks is explained by C9H8O4" in rows[-1]["warnings"]
    assert "C9H8O4 explains 0.6% of the intensity of the peaks" in rows[0]["warnings"]


def test_several_files_keep_their_order_and_a_broken_one_is_a_row(spectra, tmp_path):
    zipped, broken = tmp_path / "a.mgf.gz", tmp_path / "broken.mgf"
    zipped.write_bytes(gzip.compress(block(ASPIRIN).encode()))
    broken.write_bytes(bytes(range(256)) * 20)
    inputs = [str(zipped), str(broken), spectra]

    predict(request(inputs, tmp_path / "out.csv"), stub_model())

    rows = rows_of(tmp_path / "out.csv")
    assert list(dict.fromkeys(row["file"] for row in rows)) == inputs
    assert [row["status"] for row in rows if row["file"] == inputs[1]] == ["unreadable"]


@pytest.mark.parametrize(
    ("blocks", "error", "said"),
    [
        ([], UnreadableError, "empty"),
        ([block(ASPIRIN, mslevel="1")], UnreadableError, "1 of MS1"),
        (None, MissingInputError, "in.mgf"),
    ],
)
def test_nothing_to_read_is_an_error(tmp_path, blocks, error, said):
    if blocks is not None:
        mgf(tmp_path / "in.mgf", *blocks)

    with pytest.raises(error, match=said):
        predict(request(str(tmp_path / "in.mgf"), tmp_path / "out.csv"), stub_model())
    assert not (tmp_path / "out.csv").exists()


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
