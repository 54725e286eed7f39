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

ASPIRIN_SMILES = "CC(=O)Oc1ccccc1C(=O)O"


class Oracle:
    """Draws the right molecule every time."""

    name = "noise"

    def __init__(self, smiles):
        self.mol = identity.parse_smiles(smiles)

    def propose(self, query, n, seed):
        assert query.formula == formula_of(self.mol)
        return (Proposal("noise", self.mol, -1.5) for _ in range(n))


def test_the_right_molecule_drawn_every_time_is_the_first_candidate(tmp_path):
    (row,) = predicted(tmp_path, block(ASPIRIN), model=model_with(Oracle(ASPIRIN_SMILES)))

    assert (row["rank"], row["smiles"]) == ("1", ASPIRIN_SMILES)
    assert (row["samples"], row["log_likelihood"], row["status"]) == ("4", "-1.5", "ok")


def test_every_feature_has_an_outcome_in_input_order(finished):
    summary, path = finished
    found = rows_of(path)
    first = first_rows(found)

    assert list(dict.fromkeys(row["index"] for row in found)) == [
        *("0", "1", "4", "5", "6", "7", "8", "9", "10", "11", "12")
    ]
    status = {int(index): row["status"] for index, row in first.items()}
    assert status.pop(6) == "formula_mismatch"
    assert status.pop(8) == "unsupported_adduct"
    assert status.pop(9) == "unsupported_element"
    assert status.pop(10) == "no_peaks"
    assert [*status.values()] == ["ok"] * 7
    assert [first[index]["formula_source"] for index in ("0", "5", "10")] == [
        *("file", "predicted", "")
    ]
    assert (summary.counts["ok"], summary.n_spectra, summary.n_ms1) == (8, 12, 1)
    assert all(row["message"] for row in found if row["status"] != "ok")


def test_what_the_file_says_of_a_spectrum_is_in_its_columns(tmp_path):
    fields = {"title": "aspirin 20", "rtinseconds": "62.5", "collision_energy": "20 eV"}
    platinum = block(CAFFEINE, formula="C8H10Pt").replace("[M+H]+", "M+H")

    first, *_, last = predicted(tmp_path, block(ASPIRIN, **fields), platinum)

    assert (first["name"], first["rt_seconds"]) == ("aspirin 20", "62.5")
    assert (first["collision_energy"], first["warnings"]) == ("20 eV", "")
    assert (last["status"], last["adduct"]) == ("unsupported_element", "[M+H]+")


@pytest.mark.parametrize(
    ("has_adduct", "fields", "options", "source"),
    [
        (True, {}, {}, "file"),
        (True, {}, {"settings": replace(SETTINGS, adduct="M+H")}, "option"),
        (False, {}, {}, "inferred"),
        (False, {"formula": None}, {}, "predicted"),
        (True, {"formula": None}, {}, "file"),
        (False, {}, {"formulas": "name,formula,adduct\na,C9H8O4,[M+H]+\n"}, "table"),
        (True, {}, {"formulas": "name,formula\na,C9H8O4\n"}, "file"),
        (False, {}, {"formulas": "name,formula\na,C9H8O4\n"}, "inferred"),
        (False, {"formula": "C9H8Pt"}, {}, ""),
    ],
)
def test_a_row_says_where_its_adduct_comes_from(tmp_path, has_adduct, fields, options, source):
    if text := options.get("formulas"):
        (tmp_path / "table.csv").write_text(text)
        options = {"formulas": tmp_path / "table.csv"}

    written = block(ASPIRIN, title="a", **{"formula": "C9H8O4"} | fields)
    if not has_adduct:
        written = written.replace("ADDUCT=[M+H]+\n", "")
    first, *_ = predicted(tmp_path, written, **options)

    assert first["adduct_source"] == source
    assert first["adduct"] == ("[M+H]+" if source else "")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "ok"),
        ({"formula": None}, "ok"),
        ({"formula": "C9H8Pt"}, "unsupported_element"),
        ({"formula": "C8H8O4"}, "formula_mismatch"),
    ],
)
def test_each_sentence_stands_in_one_column(tmp_path, fields, status):
    odd = {"charge": "2+", "retention time": "3.1"}
    guessed = block(ASPIRIN, **{"formula": "C9H8O4"} | odd | fields).replace("[M+H]+", "M+H")

    first, *_ = predicted(tmp_path, guessed)

    columns = [first[name].split("; ") for name in ("message", "warnings", "assumptions")]
    said = [text for column in columns for text in column if text]
    assert first["status"] == status
    assert "is read as minutes" in first["assumptions"]
    assert bool(first["message"]) == (status != "ok")
    assert len(said) == len(set(said)) >= 2


def test_a_feature_of_which_nothing_can_be_used_is_one_row(tmp_path):
    bare = block(ASPIRIN, FEATURE_ID="7").replace("BEGIN IONS", "BEGIN IONS\nSCANS={}")
    empty = "\n".join(line for line in bare.splitlines() if not line[:1].isdigit()) + "\n"
    other = block(ASPIRIN, FEATURE_ID="8")

    found = predicted(tmp_path, empty.format(1), empty.format(2), other, other)
    three = (block(ASPIRIN, FEATURE_ID="7"), other, empty.format(1))
    apart = predicted(tmp_path, *three, force=True)

    rows = [row for row in found if row["rank"] in ("", "1")]
    assert [(row["feature_id"], row["status"]) for row in rows] == [("7", "no_peaks"), ("8", "ok")]
    assert [row["indices"] for row in rows] == ["0 1", "2 3"]
    # Rows of a feature stand together.
    assert list(dict.fromkeys(row["index"] for row in apart)) == ["0", "2", "1"]


def test_samples_that_are_no_molecule_give_a_row_with_their_number(tmp_path):
    class Nothing:
        name = "noise"

        def propose(self, query, n, seed):
            return (Proposal("noise", None, 0.0, rejection="disconnected") for _ in range(n))

    (row,) = predicted(tmp_path, block(ASPIRIN), model=model_with(Nothing()))

    assert row["status"] == "no_candidate"
    assert "none of 4 samples is a molecule of C9H8O4 (4 disconnected)" in row["message"]


def test_a_formula_that_explains_next_to_nothing_is_said(tmp_path):
    strange = block((ASPIRIN[0], "C7H5O2"), scale=0.1).replace("END", "100.4 900\n110.6 800\nEND")

    found = predicted(tmp_path, strange, block((ASPIRIN[0], "P"), scale=1.0))

    assert {row["status"] for row in found} == {"ok"}
    assert "none of the 1 peaks is explained by C9H8O4" in found[-1]["warnings"]
    assert "C9H8O4 explains 0.6% of the intensity of the peaks" in found[0]["warnings"]


def test_a_molecule_larger_than_the_model_is_refused_by_size(tmp_path):
    small = replace(stub_model(), max_heavy_atoms=12)

    (row,) = predicted(tmp_path, block(ASPIRIN), model=small)

    assert row["status"] == "too_large"
    assert "13 heavy atoms and the limit is 12" in row["message"]


def test_the_run_record_says_what_was_run(finished):
    record = json.loads(finished[1].with_name("out.csv.run.json").read_text())

    assert record["counts_by_status"]["ok"] == 8
    assert record["weights"]["sha256"] == "0" * 64
    assert record["settings"]["sampling"]["samples"] == 4
    assert record["ms1_skipped"] == 1
    assert {"started", "seconds", "computing_s"} <= set(record["times"])
    assert {"python", "torch", "numpy", "rdkit"} <= set(record["versions"])
    assert record["inputs"][0]["name"].endswith("in.mgf")


def test_several_files_keep_their_order_and_a_broken_one_is_a_row(spectra, tmp_path):
    broken = tmp_path / "broken.mgf"
    broken.write_bytes(bytes(range(256)) * 20)
    zipped = tmp_path / "a.mgf.gz"
    zipped.write_bytes(gzip.compress(block(ASPIRIN).encode()))

    inputs = [str(zipped), str(broken), spectra]
    predict(request(inputs, tmp_path / "out.csv"), stub_model())

    found = rows_of(tmp_path / "out.csv")
    assert list(dict.fromkeys(row["file"] for row in found)) == inputs
    (bad,) = (row for row in found if row["file"] == str(broken))
    assert bad["status"] == "unreadable"


def test_nothing_to_read_is_an_error(tmp_path):
    empty = tmp_path / "empty.mgf"
    empty.write_text("")
    only_ms1 = mgf(tmp_path / "ms1.mgf", block(ASPIRIN, mslevel="1"))

    with pytest.raises(UnreadableError, match="empty"):
        predict(request(str(empty), tmp_path / "out.csv"), stub_model())
    with pytest.raises(UnreadableError, match="1 of MS1"):
        predict(request(only_ms1, tmp_path / "out.csv"), stub_model())
    with pytest.raises(MissingInputError, match="absent"):
        predict(request(str(tmp_path / "absent.mgf"), tmp_path / "out.csv"), stub_model())
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("has_database", [False, True])
def test_where_all_are_known_the_row_says_so(tmp_path, monkeypatch, has_database):
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    made = mgf(tmp_path / "in.mgf", block(CAFFEINE))
    (tmp_path / "all.smi").write_text("Cn1c(=O)c2c(ncn2C)n(C)c1=O\n")
    files = GuideFiles(databases=(str(tmp_path / "all.smi"),)) if has_database else None
    sampling = SamplingSettings(steps=1, samples=8, exclude_known=True)
    settings = replace(SETTINGS, top_k=99, sampling=sampling)
    asked = request(made, tmp_path / "a.csv", guide=files, settings=settings)
    predict(asked, stub_model())
    drawn = {row["inchikey14"] for row in rows_of(tmp_path / "a.csv")}
    model = replace(stub_model(), known=tuple(drawn))

    predict(replace(asked, output=str(tmp_path / "b.csv")), model)

    (row,) = rows_of(tmp_path / "b.csv")
    assert row["status"] == "no_candidate"
    said = "all found for C8H10N4O2 are known molecules; drop --exclude-known"
    assert row["message"] == said
