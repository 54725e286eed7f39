"""What `duallgd evaluate` writes is what was recorded: results.json and every table.

After a change that is meant to alter them, write the record anew and look at its difference:
``DUALLGD_RECORD=1 python -m pytest tests/cli/test_evaluate_recorded.py``
"""

import json
import math
import os
from pathlib import Path

import pytest

from duallgd_cli.evaluate import report, run
from tests import labelled_table

pytest.importorskip("scipy", reason="needs the evaluate extra")

RECORD = Path(__file__).with_name("evaluate_recorded.json")
SCORE = ("--workers", "1")
PREDICT = ("--benchmark", "labelled.tsv", "--fold", "test", "--samples", "4", "--top-k", "1,3")
RUNS = {
    "everything": (*PREDICT, "--train-data", "labelled.tsv"),
    "formulas of a table": (*PREDICT, "--no-mces", "--formulas", "formulas.csv"),
    "a finished table": ("--predictions", "theirs.csv", "--truth", "truth.tsv", "--no-mces"),
}
THEIRS = (
    "spectrum_id,rank,smiles,confidence,status\n"
    "a,1,COC,0.5,ok\na,2,OCC,0.3,ok\nb,1,CC(O)=O,0.75,ok\nd,1,nonsense,0.9,ok\nx,,,,no_formula\n"
)
TRUTH = "identifier\tsmiles\tadduct\na\tCCO\t[M+H]+\nb\tCC(=O)O\t[M-H]-\nc\tCCN\t\nd\tCCC\t[M+H]+\n"
# Times, what names versions and files, and the settings of predict, which are its own matter.
CHANGING = ("versions", "duallgd", "sha256", "seconds", "speed_up", "on_front", "files", "settings")
# What the tables hold number by number.
IN_TABLES = ("groups", "metrics")


def flat(value, path=""):
    """Every plain value of results.json that does not change from run to run, by its path."""
    if any(word in path.rpartition("/")[2] for word in CHANGING):
        return {}
    if not isinstance(value, dict | list):
        return {path: round(value, 6) if isinstance(value, float) else value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for name, one in items for k, v in flat(one, f"{path}/{name}").items()}


def cells(text):
    """A table without the columns that change from run to run."""
    head, *rows = (line.split("\t") for line in text.splitlines())
    kept = [at for at, name in enumerate(head) if not any(word in name for word in CHANGING)]
    return ["\t".join(row[at] for at in kept) for row in (head, *rows)]


@pytest.fixture
def found(duallgd, tmp_path, monkeypatch):
    """All that a run of a name leaves in its folder, but for plots and what was predicted."""
    monkeypatch.setattr(report, "write_plots", lambda *_: {})
    monkeypatch.setattr(run, "_beside", lambda *_: None)  # the stand-in was trained on nothing
    table = labelled_table.write(tmp_path / "labelled.tsv")
    parts = {"S0": "nplib1", "S1": "nplib1+massspecgym", "S2": "massspecgym"}
    header, *lines = table.read_text().splitlines()
    rows = [f"{line}\t{parts.get(line[:2], '')}" for line in lines]
    table.write_text("\n".join([f"{header}\tbenchmark", *rows]) + "\n")
    for name, text in (
        ("theirs.csv", THEIRS),
        ("truth.tsv", TRUTH),
        ("formulas.csv", "id,formula\nS00,C9H8O4\nS10,C8H10N4O2\n"),
    ):
        (tmp_path / name).write_text(text)

    def left(name):
        done = duallgd("evaluate", *RUNS[name], *SCORE, "-o", "report")
        assert done.code == 0, done.err
        folder = tmp_path / "report"
        results = json.loads((folder / "results.json").read_text())
        return {
            "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*")),
            "results": flat({k: v for k, v in results.items() if k not in IN_TABLES}),
            "tables": {path.name: cells(path.read_text()) for path in sorted(folder.glob("*.tsv"))},
        }

    return left


@pytest.mark.parametrize("name", RUNS)
def test_results_and_tables_are_those_of_the_record(found, name):
    now = found(name)
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}

    if os.environ.get("DUALLGD_RECORD"):
        RECORD.write_text(json.dumps(recorded | {name: now}, indent=0, ensure_ascii=False) + "\n")
        return

    assert now["files"] == recorded[name]["files"]
    assert now["tables"] == recorded[name]["tables"]
    before = recorded[name]["results"]
    assert list(now["results"]) == list(before)
    different = {
        path: (value, before[path])
        for path, value in now["results"].items()
        if value != before[path]
        and not (isinstance(value, float) and math.isclose(value, before[path], abs_tol=2e-6))
    }
    assert not different
