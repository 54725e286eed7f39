"""The authors' checkpoints on the command line: converted, then used like any other weights."""

import csv
import io
import json

import pytest
import torch

from duallgd_cli.evaluate import report
from duallgd_cli.evaluate.true_order import TRUE_ORDER
from duallgd_cli.predict import api
from tests import labelled_table
from tests.made_reference import decoder_file, fine_tuned_file, stirred_network
from tests.made_spectra import ALANINE, CAFFEINE, NICOTINE, block, mgf

FEW = ("--samples", "12", "--steps", "5", "--device", "cpu")
REAL_LOAD = api.load
BROMOBENZENE = ("C6H5Br", "C6H5 C4H3")


@pytest.fixture(scope="module")
def network():
    return stirred_network()


@pytest.fixture
def duallgd(duallgd, monkeypatch):
    """The command with the real loader."""
    monkeypatch.setattr(api, "load", REAL_LOAD)
    return duallgd


@pytest.fixture
def weights(duallgd, network, tmp_path):
    """Their checkpoint, converted by the command."""
    torch.save(fine_tuned_file(network), tmp_path / "authors.ckpt")
    done = duallgd("weights", "convert", "authors.ckpt", "-o", "ref.safetensors")
    assert done.code == 0, done.err
    return "ref.safetensors"


def predicted(duallgd, spectra, weights, *more):
    done = duallgd("predict", spectra, "--weights", weights, "-o", "-", *FEW, *more)
    assert done.code == 0, done.err
    return list(csv.DictReader(io.StringIO(done.out)))


def without_place(rows):
    return [{k: v for k, v in row.items() if k not in ("file", "index", "indices")} for row in rows]


def test_a_converted_checkpoint_predicts_unlabelled_spectra(duallgd, weights, tmp_path):
    spectra = mgf(tmp_path / "s.mgf", block(CAFFEINE, title="a"), block(NICOTINE, title="b"))

    rows = predicted(duallgd, spectra, weights)

    assert {row["spectrum_id"] for row in rows} == {"a", "b"}
    assert {row["status"] for row in rows} == {"ok"}
    assert {(row["spectrum_id"], row["formula"]) for row in rows} == {
        ("a", "C8H10N4O2"),
        ("b", "C10H14N2"),
    }
    assert all(len(row["inchikey"]) == 27 for row in rows)


def test_a_spectrum_alone_gives_what_it_gives_among_others(duallgd, weights, tmp_path):
    wanted = block(NICOTINE, title="b")
    among = mgf(tmp_path / "s.mgf", block(CAFFEINE, title="a"), wanted, block(ALANINE, title="c"))
    alone = mgf(tmp_path / "one.mgf", wanted)

    rows = [row for row in predicted(duallgd, among, weights) if row["spectrum_id"] == "b"]

    assert without_place(rows) == without_place(predicted(duallgd, alone, weights))


def test_the_true_structure_in_the_record_changes_nothing(duallgd, weights, tmp_path):
    bare = mgf(tmp_path / "bare.mgf", block(NICOTINE, title="b"))
    told = mgf(
        tmp_path / "told.mgf",
        block(NICOTINE, title="b", smiles="CN1CCCC1c1cccnc1", inchikey="SNICXCGAKADSCV"),
    )

    first, second = (without_place(predicted(duallgd, name, weights)) for name in (bare, told))

    assert first == second


def test_what_the_weights_do_not_know_gets_a_row_that_says_so(duallgd, weights, tmp_path):
    spectra = mgf(
        tmp_path / "s.mgf",
        block(BROMOBENZENE, title="a"),
        block(ALANINE, adduct="[M-H]-", title="b"),
        block(ALANINE, title="c"),
    )

    rows = {row["spectrum_id"]: row for row in predicted(duallgd, spectra, weights)}

    assert rows["a"]["status"] == "unsupported_element"
    assert "do not know Br" in rows["a"]["message"]
    assert rows["b"]["status"] == "unsupported_adduct"
    assert rows["c"]["status"] == "ok"


def test_prediction_knows_no_true_order(duallgd, weights, tmp_path):
    spectra = mgf(tmp_path / "s.mgf", block(ALANINE))

    done = duallgd("predict", spectra, "--weights", weights, "--atom-order", "truth")

    assert done.code == 2
    assert "No such option: --atom-order" in done.err


def test_a_decoder_alone_is_refused_in_one_sentence(duallgd, network, tmp_path):
    torch.save(decoder_file(network), tmp_path / "decoder.ckpt")
    duallgd("weights", "convert", "decoder.ckpt", "-o", "part.safetensors")
    spectra = mgf(tmp_path / "s.mgf", block(ALANINE))

    done = duallgd("predict", spectra, "--weights", "part.safetensors", "-o", "-")

    assert done.code == 69
    assert "no encoder and no projection, so they cannot predict" in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_the_run_record_names_the_converted_file(duallgd, weights, tmp_path):
    spectra = mgf(tmp_path / "s.mgf", block(ALANINE))

    duallgd("predict", spectra, "--weights", weights, "-o", "out.csv", *FEW)

    record = json.loads((tmp_path / "out.csv.run.json").read_text())
    assert record["weights"]["name"] == "ref.safetensors"
    assert record["notes"] == {}


SCORING = (
    "--benchmark", "labelled.tsv", "--fold", "test", "--no-mces", "--no-rivals", "--workers", "1",
)  # fmt: skip
# Repairing what an untrained network draws is what takes the time.
FEWER = ("--samples", "4", "--steps", "5", "--device", "cpu")


@pytest.fixture
def scored(duallgd, weights, tmp_path, monkeypatch):
    """Evaluate the converted weights; returns results.json and the command's end."""
    monkeypatch.setattr(report, "write_plots", lambda *_: {})
    labelled_table.write(tmp_path / "labelled.tsv")

    def run(folder, *more):
        done = duallgd(*("evaluate", *SCORING, *FEWER, "--weights", weights, "-o", folder, *more))
        path = tmp_path / folder / "results.json"
        return (json.loads(path.read_text()) if path.exists() else None), done

    return run


def candidates(folder):
    rows = csv.DictReader((folder / "predictions.csv").read_text().splitlines())
    return [(row["spectrum_id"], row["rank"], row["smiles"], row["samples"]) for row in rows]


def test_the_true_order_changes_what_is_drawn_and_is_said_everywhere(scored, tmp_path):
    honest, _ = scored("honest")
    told, done = scored("told", "--atom-order", "truth")

    assert candidates(tmp_path / "told") != candidates(tmp_path / "honest")
    assert (honest["prediction"]["atom_order"], told["prediction"]["atom_order"]) == (
        "formula",
        "truth",
    )
    assert TRUE_ORDER in told["remarks"]
    assert TRUE_ORDER not in honest["remarks"]
    assert "TRUE ATOM ORDER" in done.out
    record = json.loads((tmp_path / "told" / "predictions.csv.run.json").read_text())
    assert record["weights"]["name"] == "ref.safetensors, told the true atom order"
    assert record["weights"]["remark"] == TRUE_ORDER
    assert record["notes"] == {TRUE_ORDER: 6}
    told_rows = csv.DictReader((tmp_path / "told" / "predictions.csv").read_text().splitlines())
    assert all(TRUE_ORDER in row["message"] for row in told_rows)
    assert "TRUE ATOM" not in (tmp_path / "honest" / "predictions.csv").read_text()


def test_a_table_that_was_told_the_order_says_so_wherever_it_is_scored(scored, duallgd, tmp_path):
    scored("told", "--atom-order", "truth")
    (tmp_path / "moved.csv").write_bytes((tmp_path / "told" / "predictions.csv").read_bytes())

    done = duallgd(
        *("evaluate", "--predictions", "moved.csv", "--truth", "told/truth.tsv"),
        *("--no-mces", "--workers", "1", "-o", "again"),
    )

    assert done.code == 0, done.err
    remarks = json.loads((tmp_path / "again" / "results.json").read_text())["remarks"]
    assert remarks.count(TRUE_ORDER) == 1


def test_a_run_that_was_told_the_order_is_not_continued_without_it(scored):
    scored("run", "--atom-order", "truth")

    _, done = scored("run", "--resume")

    assert done.code == 2
    assert "TRUE ATOM ORDER" in done.err


def test_the_reference_preset_scores_by_the_authors_rules(scored, tmp_path):
    table = tmp_path / "labelled.tsv"
    first = table.read_text().splitlines()[1]
    bromine = first.replace("CC(=O)Oc1ccccc1C(=O)O", "Brc1ccccc1").replace("S00", "S99")
    table.write_text(table.read_text() + bromine + "\n")

    everything, _ = scored("all")
    found, done = scored("theirs", "--preset", "reference")

    assert (everything["spectra"], found["spectra"]) == (7, 6)
    assert any("1 of 7 spectra are left out, as the" in remark for remark in found["remarks"])
    assert {"reference_accuracy@1", "reference_tanimoto@10"} <= set(found["metrics"])
    assert found["prediction"]["preset"] == "reference"
    assert "whole InChI" in found["scoring"]["reference_columns"]
    assert "reference_columns" not in everything["scoring"]
    assert "Rows that begin with reference: by the rules" in done.out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--atom-order", "truth", "--formulas", "f.csv"), "predicted formulas exclude each other"),
        (("--decompose",), "has no fingerprint encoder; leave out --decompose"),
        (("--atom-order", "random"), "--atom-order is formula or truth, not 'random'"),
        (("--preset", "theirs"), "--preset is duallgd or reference, not 'theirs'"),
    ],
)
def test_what_the_protocol_cannot_be_is_refused(scored, more, message):
    found, done = scored("r", *more)

    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert found is None
