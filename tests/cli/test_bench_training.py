"""`duallgd bench leak` and `duallgd bench ablations` by the command line alone."""

import csv
import json

import pytest

from tests.made_prepared import structures_folder

MADE = (
    "CC(=O)Oc1ccccc1", "NCC(=O)NCC", "OC1CCCCC1CN", "CC(C)CC(N)C(=O)O", "CCOC(=O)CC#N",
    "CCOCCCC", "CCCCCCN", "OCCCCCO",
)  # fmt: skip
TINY = [
    "--steps", "2", "--device", "cpu", "--threads", "1", "--samples", "2", "--molecules", "2",
    "--set", "model.denoiser.layers=1", "--set", "training.data.pairs_per_batch=100",
]  # fmt: skip


@pytest.fixture
def structures(tmp_path):
    return structures_folder(tmp_path / "structures", *MADE, fold=[0] * 6 + [3] * 2)


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_ablations_print_the_papers_figures_beside_ours(duallgd, structures, tmp_path):
    done = duallgd(
        "bench", "ablations", "--data", structures, "-o", "study", *TINY,
        "--variants", "full,no-positions",
    )  # fmt: skip

    assert done.code == 0, done.err
    assert "25.53" in done.out
    rows = rows_of(tmp_path / "study" / "ablations.csv")
    assert [row["variant"] for row in rows] == ["full network", "no positions"]
    assert [row["paper top-1 / %"] for row in rows] == ["25.53", ""]
    assert rows[0]["less full network"] == "0.000 (0.000 to 0.000)"
    record = json.loads((tmp_path / "study" / "results.json").read_text())
    assert record["budget"] == "2 steps"
    assert record["rows"][1]["changes"] == ["model.variant=no-positions"]
    markdown = (tmp_path / "study" / "ablations.md").read_text()
    assert "tab:ablation_crossattn" in markdown
    assert "| no positions |" in markdown


def test_the_leak_study_makes_its_own_data_and_goes_on_where_it_was(duallgd, structures, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the evaluate extra")
    command = ["bench", "leak", "--data", structures, "-o", "study", *TINY]

    first = duallgd(*command, "--arms", "published")
    both = duallgd(*command, "--arms", "published,duallgd")

    assert first.code == both.code == 0, first.err + both.err
    assert "as published: true order" in first.err
    assert "as published" not in both.err
    rows = rows_of(tmp_path / "study" / "leak.csv")
    assert [row["atoms given in"] for row in rows] == ["true", "random", "formula", "any order"]
    assert (tmp_path / "study" / "leak.svg").stat().st_size < 60_000
    assert (tmp_path / "study" / "data" / "smiles_place.npy").is_file()


def test_both_or_neither_of_budget_and_steps_is_a_usage_error(duallgd, structures):
    done = duallgd("bench", "ablations", "--data", structures, "-o", "study")

    assert done.code == 2
    assert "give either --budget, such as 5m, or --steps" in done.err


def test_an_unknown_variant_is_a_usage_error(duallgd, structures):
    done = duallgd(
        "bench", "ablations", "--data", structures, "-o", "study", *TINY, "--variants", "mine"
    )

    assert done.code == 2
    assert "no variant mine" in done.err


@pytest.mark.parametrize(
    ("study", "derived"),
    [
        (["leak", "--arms", "duallgd"], "study/data"),
        (["ablations", "--variants", "kekule"], "study/kekule-forms"),
    ],
)
def test_molecules_derived_from_other_data_are_not_taken_for_these(
    duallgd, structures, tmp_path, study, derived
):
    pytest.importorskip("matplotlib", reason="needs the evaluate extra")
    structures_folder(tmp_path / "others", *MADE[1:], "CCOCCN", fold=[0] * 6 + [3] * 2)

    assert duallgd("bench", *study, "--data", structures, "-o", "study", *TINY).code == 0
    other = duallgd("bench", *study, "--data", "others", "-o", "study", *TINY)

    assert other.code == 2
    assert f"{derived} was made from other data or for other molecules" in other.err
