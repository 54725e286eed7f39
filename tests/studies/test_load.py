"""Large inputs, made small: what they are, what they cost, and that the cost has bounds."""

import json
import re
from itertools import chain

import load_inputs
import pytest
from load import Load, main, measured
from rdkit import Chem

from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.predict.journal import read
from duallgd_cli.report import write_report
from duallgd_cli.report.contents import ReportedRun
from duallgd_cli.spectra import reading

MIB = 1 << 20


@pytest.mark.parametrize("number", range(0, 60, 7))
def test_structures_of_a_made_feature_are_different_isomers(number):
    found = load_inputs.structures(number, 20)
    molecules = [parse_smiles(one.smiles) for one in found]

    assert len({formula_of(mol) for mol in molecules}) == 1
    assert len({inchikey_block(mol) for mol in molecules}) == len(found) == 20
    assert [Chem.MolToSmiles(mol) for mol in molecules] == [one.smiles for one in found]


def test_a_made_run_can_be_read_and_its_peaks_are_explained(tmp_path):
    output = load_inputs.run(tmp_path, 12, 4, shards=3)

    features = list(ReportedRun([output]).features())
    assert len(read([output]).shards) == 3
    assert [feature["id"] for feature in features] == [str(number) for number in range(12)]
    for feature in features:
        assert len(feature["candidates"]) == 4
        (spectrum,) = feature["spectra"]
        assert len(spectrum["mz"]) > len(feature["hypotheses"][0]["explained"]) > 5
        # The first isomer gave the peaks.
        assert max(len(one["explains"]) for one in feature["candidates"]) > 5


def test_a_made_library_says_its_structures_and_a_database_has_broken_rows(tmp_path):
    load_inputs.spectra(tmp_path / "library.mgf", 5, named=True)
    load_inputs.molecules(tmp_path / "database.smi", 300)

    known = list(reading.read(str(tmp_path / "library.mgf"), keep_structures=True))
    rows = (tmp_path / "database.smi").read_text().splitlines()
    assert [one.metadata["smiles"] for one in known] == [row.split()[0] for row in rows[:5]]
    with_rdkit = [Chem.MolFromSmiles(row.split()[0]) for row in rows]
    assert with_rdkit.count(None) == 3


@pytest.mark.slow
def test_the_table_has_a_line_for_every_load(study):
    pytest.importorskip("matchms")
    sizes = ("--features", 40, "--spectra", 8, "--molecules", 200, "--library", 50)

    done = study(main, *sizes, "--folder", "load")

    assert done.code == 0, done.err
    lines = [line for line in done.out.splitlines() if re.search(r"\d+\.\d", line)]
    names = (
        "report",
        "merge ",
        "merge --parts",
        "formulas",
        "formulas",
        "--database",
        "--analogues",
        "--library",
    )
    assert len(lines) == 11
    assert all(any(name in line for line in lines) for name in names)


def embedded(page, name):
    """The JSON that a page holds under a name."""
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page)
    return json.loads(found[1])


@pytest.mark.slow
def test_a_large_report_is_an_index_and_pages_with_bounds_on_memory_and_size(tmp_path):
    count = 2_100
    output = load_inputs.run(tmp_path, count, 5, shards=2)
    page = tmp_path / "report.html"

    arguments = ["-m", "duallgd_cli", "report", output, "-q", "-o", page]
    cost = measured(Load("report", "", arguments), tmp_path)

    pages = sorted((tmp_path / "report_files").iterdir())
    assert cost.peak_bytes < 260 * MIB
    assert sum(one.stat().st_size for one in (page, *pages)) < 8_000 * count
    assert [one.name for one in pages] == ["0001.html", "0002.html", "0003.html"]
    index = page.read_text("utf-8")
    about, rows = embedded(index, "about"), embedded(index, "rows")
    assert about["pages"] == [f"report_files/{one.name}" for one in pages]
    assert [row[0] for row in rows] == [str(number) for number in range(count)]
    # What is searched: id, m/z, adduct, formula, SMILES, InChIKey and parts.
    key = read([output]).feature(7)[0].structures
    assert rows[7][11] in {one.inchikey for one in key}
    assert rows[7][7] in {one.smiles for one in key}
    firsts = [embedded(one.read_text("utf-8"), "about")["first"] for one in pages]
    assert firsts == [0, 1000, 2000]
    own = [embedded(one.read_text("utf-8"), "rows") for one in pages]
    assert [len(table) for table in own] == [1000, 1000, 100]
    assert list(chain.from_iterable(own)) == rows
    assert [one.read_text("utf-8").count('id="feature-') for one in pages] == [1000, 1000, 100]


@pytest.mark.slow
def test_several_processes_write_the_same_report(tmp_path):
    output = load_inputs.run(tmp_path, 45, 4)

    write_report([output], tmp_path / "one.html")
    write_report([output], tmp_path / "two.html", workers=2)

    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
