"""The attention study from prepared data and weights to files."""

import json

import pytest
import torch
from asymmetry import NoiseLevels, Selection, known_molecules
from attention import attention
from attention import study as study_of

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.data.prepared import load_molecules
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import SMILES, spectra_folder, structures_folder
from tests.made_runs import rows_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return structures_folder(tmp_path_factory.mktemp("data") / "made", fold=[3] * len(SMILES))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    model = stirred(small_settings())
    save(path, Checkpoint(model.settings, model.state_dict()))
    return path


@pytest.fixture
def request_(folder, weights, tmp_path):
    noise = NoiseLevels((50, 500), draws=1)
    return {
        "data": folder, "output": tmp_path / "out", "weights": weights, "noise": noise,
        "selection": Selection(), "device": torch.device("cpu"), "untrained": 1, "plot": False,
    }  # fmt: skip


def test_a_study_writes_the_same_numbers_everywhere(request_):
    found = study_of(**request_)

    out = request_["output"]
    assert json.loads((out / "results.json").read_text()) == found
    assert found["data"] == {"folder": "made", "fold": "dev", "molecules": len(SMILES)}
    assert found["condition"] == "true fingerprints"
    assert found["layers"] == [1, 2]
    assert len(found["untrained"]) == 1
    rows = rows_of(out / "kinds.csv")
    assert [row["kind"] for row in rows] == [kind["kind"] for kind in found["kinds"]]
    by_kind = {row["kind"]: row for row in rows}
    assert {"C-C", "C:C", "C-O", "C=O", "C-N", "C:N", "S=O", "C-Br"} <= by_kind.keys()
    first = found["kinds"][0]
    assert float(rows[0]["mean mean"]) == pytest.approx(first["mean"]["mean"], rel=1e-5)
    assert float(rows[0]["t = 50 low"]) == pytest.approx(
        first["by_view"]["t = 50"]["low"], rel=1e-5
    )
    assert "quantile 95" in rows[0]


def test_a_study_gives_the_same_bytes_again_and_others_with_another_seed(request_, tmp_path):
    study_of(**request_)
    study_of(**request_ | {"output": tmp_path / "again"})
    noise = NoiseLevels((50, 500), 1, seed=1)
    study_of(**request_ | {"output": tmp_path / "other", "noise": noise})

    texts = [(tmp_path / name / "results.json").read_text() for name in ("out", "again", "other")]
    assert texts[0] == texts[1] != texts[2]


def test_both_figures_are_drawn(request_):
    pytest.importorskip("matplotlib", reason="needs the evaluate extra")

    study_of(**request_ | {"plot": True})

    for name in ("asymmetry_molecule", "asymmetry_kinds"):
        assert (request_["output"] / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (request_["output"] / f"{name}.svg").read_text()


def test_predicted_fingerprints_change_the_numbers(request_, tmp_path):
    spectra = spectra_folder(tmp_path / "spectra")
    chosen = request_ | {"data": spectra, "untrained": 0}
    predicted = study_of(**chosen | {"selection": Selection("train", peaks=True)})
    true = study_of(**chosen | {"selection": Selection("train")})

    assert predicted["condition"] == "predicted fingerprints"
    assert predicted["kinds"][0]["bonds"] == true["kinds"][0]["bonds"]
    assert predicted["kinds"][0]["mean"] != true["kinds"][0]["mean"]


def test_molecules_come_with_all_their_bonds_and_their_own_fingerprint(folder):
    prepared = load_molecules(folder)
    rows = {key.decode(): row for row, key in enumerate(prepared.inchikey)}

    for molecule in known_molecules(folder, Selection())[0]:
        row = rows[molecule.key]
        assert molecule.bond_class.tolist() == prepared.bond_class(row).tolist()
        assert molecule.condition.bit[0].tolist() == prepared.fingerprint_bits(row).tolist()
        assert molecule.places().shape == (len(molecule.atom_class), 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--t", "50,x"], "--t takes numbers"),
        (["--t", "0"], "noise levels must be 1 to 500"),
        (["--layers", "7"], "layers must be 1 to 2"),
        (["--condition", "best"], "condition must be true or predicted"),
        (["--condition", "predicted"], "holds no spectra"),
        (["--fold", "val"], "no molecule of fold val"),
    ],
)
def test_wrong_options_get_one_sentence(study, folder, weights, options, message):
    done = study(attention, "--data", folder, "-o", "out", "--weights", weights, *options)

    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_the_command_prints_its_table(study, folder, weights, tmp_path):
    done = study(
        attention, "--data", folder, "-o", "out", "--weights", weights, "--limit", "9", "--t",
        "20, 400", "--layers", "2", "--device", "cpu", "--untrained", "1", "--no-plot",
    )  # fmt: skip

    assert done.code == 0, done.err
    assert "Attention of bonds to their ends, 9 molecules" in done.out
    assert "unequal electronegativity" in done.out
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["noise"] == {"steps": [20, 400], "draws": 2, "seed": 0}
    assert found["layers"] == [2]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "attention.md", "kinds.csv", "results.json",
    ]  # fmt: skip
