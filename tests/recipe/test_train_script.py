"""weights/train.sh end to end on a made table: a file that predicts, resumed if it is stopped."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from duallgd_cli.checkpoint.format import load, write_tensors
from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from tests.labelled_table import COLUMNS, packed, rows
from tests.made_prepared import SMILES
from tests.made_simulation import model_of

ROOT = Path(__file__).resolve().parents[2]
FOLDS = ("train", "train", "val", "val", "train")
CHAINS = [f"{'C' * n}C(=O)O{'C' * m}N(C)C" for n in range(1, 6) for m in range(1, 6)]
HALIDES = [f"{'C' * n}Br" for n in range(3, 12)]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Five molecules with spectra, two of them held out, and some structures."""
    folder = tmp_path_factory.mktemp("data")
    measured = [
        row | {"fold": FOLDS[number // 4], "inchikey": inchikey_block(parse_smiles(row["smiles"]))}
        for number, row in enumerate(rows(copies=4))
    ]
    packed(folder / "massbank" / "massbank.tsv.xz", COLUMNS, measured)
    structures = [{"smiles": one, "fold": "train"} for one in (*SMILES, *CHAINS, *HALIDES)]
    packed(folder / "structures" / "structures.tsv.xz", ("smiles", "fold"), structures)
    return folder


def script(name, *arguments, **environment):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    said = {"PATH": path, "DEVICE": "cpu", "OMP_NUM_THREADS": "1", **environment}
    command = [ROOT / "weights" / name, *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | said, capture_output=True, text=True, check=False
    )


def train(tables, runs, **environment):
    return script("train.sh", tables, runs, "--tiny", **environment)


@pytest.fixture(scope="module")
def prepared(tables, tmp_path_factory):
    """What the recipe prepares, and the same packed as a GPU run carries it."""
    folder, packs = (tmp_path_factory.mktemp(name) for name in ("prepared", "packs"))
    done = train(tables, folder, UNTIL="cations")
    assert done.returncode == 0, done.stderr
    assert "== cations" in done.stdout
    copies = {"sample": "alike"}
    for name in ("alike", "measured", "large", "cations", "sample"):
        with tarfile.open(packs / f"{name}.tar.xz", "w:xz") as pack:
            pack.add(folder / copies.get(name, name), name)
    return folder, packs


@pytest.mark.slow
def test_the_recipe_makes_a_weights_file_stage_by_stage(tables, prepared):
    runs, _ = prepared

    made = train(tables, runs)
    again = train(tables, runs)

    assert made.returncode == 0, made.stdout + made.stderr
    assert "== cations" not in made.stdout
    assert "==" not in again.stdout
    record = load(runs / "duallgd.safetensors").record
    assert record["made_by"]["encoder"]["model"]["encoder"]["width"] == 32
    assert 10 < 3600 * record["core_hours"] < 3600
    assert record["recipe"] == "tiny.yaml, from nothing"
    assert record["data"]["data"]["sha256"]
    held_out = {line.strip() for line in (runs / "held-out.keys").read_text().splitlines()}
    assert len(held_out) == 2
    manifest = json.loads((runs / "structures" / "manifest.json").read_text())
    assert manifest["holdout_keys"] == 2
    assert (runs / "duallgd.train.hashes").is_file()


@pytest.mark.slow
def test_a_stage_that_fails_stops_the_recipe_and_counts_as_not_done(tables, tmp_path):
    (tmp_path / "massbank").symlink_to(tables / "massbank")

    done = train(tmp_path, tmp_path / "runs")

    assert done.returncode
    assert "structures.tsv.xz" in done.stderr
    assert [path.name for path in (tmp_path / "runs" / "done").iterdir()] == ["measured"]


FEW = {"SIMULATED": "20", "WORKERS": "1", "SIMULATE": "--steps 3", "PAIRS": "400"}
FEW |= {"SCALE": "--width 32 --layers 1 --summary 16 --batch 8 --most 200 --first 12 --workers 1"}
FEW |= {"TRIED": "off:400", "PREDICT": "--atoms 5 --made 1 --samples 1 --steps 1 --threads 1"}
FEW |= {"SCALING": "--atoms 4 --steps 1 --seconds 0 --threads 1"}
ONE_PROCESS = "--set training.data.workers=0 --threads 1"
TINY = {
    "denoiser.layers": 1,
    **{f"denoiser.{stream}_width": 16 for stream in ("atom", "pair", "global", "cross")},
    **{"denoiser.pair_features": 8, "encoder.layers": 1, "encoder.width": 16, "memory_bits": 20},
}


@pytest.mark.slow
def test_the_gpu_run_benches_then_trains_decoder_encoder_and_both(prepared, tmp_path):
    """Every command in turn on one machine; where a stage is planned already, nothing is tried.

    Joint takes up what both left.
    """
    _, packs = prepared
    runs, out = tmp_path / "runs", tmp_path / "out"
    runs.mkdir()
    for stage in ("decoder", "encoder", "joint"):
        (runs / f"{stage}.steps").write_text("3\n")
    tiny = " ".join(f"--set model.{name}={size}" for name, size in TINY.items())
    said = FEW | {"PACKS": str(packs), "RUNS": str(runs), "START": "", "EXTRA": ONE_PROCESS}
    small = {"EXTRA": f"{ONE_PROCESS} {tiny}"}
    write_tensors(packs / "simulator.safetensors", model_of(-3.0).state_dict(), {})

    done = {
        name: script("gpu.sh", name, out / name, minutes, **said | more)
        for name, minutes, more in (
            *(("bench", 8, small), ("decoder", 1, small)),
            *(("encoder", 1, {}), ("joint", 1, {})),
        )
    }

    for name, one in done.items():
        assert one.returncode == 0, (name, one.stdout + one.stderr)
    with tarfile.open(out / "bench" / "results.tar.gz") as pack:
        names = {Path(name).as_posix() for name in pack.getnames()}
    assert {"predict/results.json", "predict/profile.txt", "bench/results.json"} <= names
    assert {"gpu-tests.log", "training.txt", "machine.txt"} <= names
    assert (runs / "choice").read_text() == "compile=off\npairs=400\n"
    decoder, encoder, joint = (
        load(out / n / f"{n}.safetensors").settings for n in ("decoder", "encoder", "joint")
    )
    assert decoder.denoiser.layers == joint.denoiser.layers == 1
    assert encoder.encoder.width == joint.encoder.width == 32
