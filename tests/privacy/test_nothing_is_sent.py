"""No command uses the network, starts a program that could, or writes where nobody looks.

Each runs as a user runs it, in a process of its own, with a home directory of its own and under
``guard/sitecustomize.py``, which its children load too. That sees what is done in Python.
"""

import os
import shutil
import subprocess
import sys
from json import loads
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer.main

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.cli import app
from duallgd_cli.sources import database
from tests import labelled_table
from tests.conftest import EXAMPLES
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import SMILES, spectra_folder
from tests.made_spectra import CAFFEINE, block, mgf

GUARD = Path(__file__).with_name("guard")
# Programs that libraries ask about the machine: its processor, and its fonts for plots.
LOCAL_PROGRAMS = {"uname", "fc-list"}
# What is kept in the home directory, as docs/install.md says, and by which commands: what was read
# or computed at length, and matplotlib's list of fonts, where plots are drawn or matchms is loaded.
CACHES = {
    "predict": {".cache/duallgd", ".cache/matplotlib"},
    "database": {".local/share"},
    "evaluate": {".cache/matplotlib"},
}
SMALL = "--samples 2 --steps 1 --formulas formulas.csv --weights small.safetensors"
RECIPE = """\
spectra: [spectra.tsv]
structures: [structures.smi]
simulate: {steps: 2}
encoder:
  model: {encoder: {width: 16, layers: 1, heads: 2, summary: 16}}
  training: {steps: 2, data: {spectra_per_batch: 4}}
decoder:
  model: {denoiser: {layers: 1, atom_width: 16, pair_width: 16, global_width: 16, cross_width: 16}}
  training: {steps: 2, data: {pairs_per_batch: 200}}
"""
# What is run of a command, or of some that go together, one after the other; the first few are
# quick.
COMMANDS = {
    "version": ["version"],
    "config": ["config"],
    "formulas": ["formulas spectra.mgf -o found.csv"],
    "predict": [
        f"predict spectra.mgf {SMALL} -o out.csv --parts --report out.html --workers 2",
        f"predict spectra.mzML {SMALL} -o out.mztab --summary sirius"
        " --analogues structures.smi --library library.mgf --database structures.smi",
    ],
    "features": ["features spectra.mzML -o features.mgf"],
    "score": [f"score spectra.mgf --structures structures.smi {SMALL} -o scores.csv"],
    "database": ["database add structures.smi", "database list", "database remove mine"],
    "report": ["report run/out.csv -o again.html"],
    "merge": ["merge run/out.csv -o again.sdf --parts"],
    "train": ["train recipe.yaml -o made --until decoder"],
    "evaluate": [
        "evaluate --benchmark labelled.tsv --fold test -o scored --samples 2 --steps 1 --workers 2"
        " --weights small.safetensors",
        "calibrate small.safetensors --run scored/predictions.csv --truth scored/truth.tsv"
        " -o made.safetensors",
    ],
    "info": ["info"],
    "parts": ["parts sugar"],
    "selftest": ["selftest"],
    "bench": ["bench --atoms 4..6 --threads 1 -o made"],
    "bench predict": ["bench predict --made 1 --atoms 8 --samples 2 --steps 1 --profile -o made"],
}
QUICK = {"version", "config", "formulas"}


def guarded(program, folder):
    """Run Python below the guard, with a home directory of one database, and see what it did.

    The result has the exit status (``code``), all that was ``said``, the uses of the ``network``
    that the guard stopped, other ``programs``, guarded ``processes``, the first two folders of
    what was written at ``home``, and files ``left`` among the temporary ones.
    """
    outside = folder.with_name(f"{folder.name}-outside")
    shutil.rmtree(outside, ignore_errors=True)
    home, temporary = outside / "home", outside / "temporary"
    for made in (home, temporary):
        made.mkdir(parents=True)
    if (folder / "home").exists():
        shutil.copytree(folder / "home", home, dirs_exist_ok=True)
    before = set(home.rglob("*"))
    from_user = ("XDG_", "MPL", "DUALLGD_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(from_user)} | {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join([str(GUARD), str(EXAMPLES.parent)]),
        "DUALLGD_TEST_RECORD": str(outside / "record"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, *program],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seen = {"network": [], "program": [], "start": []}
    for note in map(loads, (outside / "record").read_text().splitlines()):
        seen[note["event"]].append(note["what"])
    written = (path for path in home.rglob("*") if path not in before and path.is_file())
    return SimpleNamespace(
        code=done.returncode,
        said=done.stdout + done.stderr,
        network=seen["network"],
        programs={Path(name).name for name in seen["program"]},
        processes=len(seen["start"]),
        home={"/".join(path.relative_to(home).parts[:2]) for path in written},
        left=[path.name for path in temporary.rglob("*") if path.is_file()],
    )


@pytest.fixture(scope="session")
def inputs(tmp_path_factory, example_run):
    """A folder with all that the commands read; leave it alone."""
    folder = tmp_path_factory.mktemp("inputs")
    for name in ("spectra.mgf", "spectra.mzML", "formulas.csv"):
        shutil.copy(EXAMPLES / name, folder)
    shutil.copytree(example_run.parent, folder / "run")
    spectra_folder(folder / "spectra")
    labelled_table.write(folder / "labelled.tsv")
    (folder / "structures.smi").write_text("\n".join(SMILES) + "\n")
    (folder / "recipe.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        databases = folder / "home" / ".local" / "share" / "duallgd" / "databases"
        patch.setenv("DUALLGD_DATABASES", str(databases))
        database.add(folder / "structures.smi", "mine")
    mgf(folder / "library.mgf", block(CAFFEINE, smiles="Cn1c(=O)c2c(ncn2C)n(C)c1=O"))
    model = stirred(small_settings())
    checkpoint = Checkpoint(model.settings, dict(model.state_dict()), {"step": 7})
    save(folder / "small.safetensors", checkpoint)
    return folder


@pytest.fixture
def duallgd(inputs, tmp_path):
    """Run a command line below the guard."""
    folder = Path(shutil.copytree(inputs, tmp_path / "here"))
    return lambda command: guarded(["-m", "duallgd_cli", *command.split()], folder)


def test_every_command_is_among_those_that_are_guarded():
    lines = [line for lines in COMMANDS.values() for line in lines]

    assert {line.split()[0] for line in lines} == set(typer.main.get_command(app).commands)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in COMMANDS],
)
def test_a_command_sends_nothing_and_leaves_the_home_directory_alone(name, duallgd):
    kept = set()
    for command in COMMANDS[name]:
        done = duallgd(command)

        assert done.code == 0, done.said
        assert (done.network, done.left) == ([], [])
        assert done.programs <= LOCAL_PROGRAMS
        assert done.processes > int("--workers 2" in command)
        kept |= done.home
    assert kept == CACHES.get(name, set())


def test_the_one_download_is_asked_for_by_name(duallgd):
    """What README says of `evaluate --benchmark massspecgym`; and the guard sees and stops it."""
    done = duallgd("evaluate --benchmark massspecgym -o made")

    assert (done.code, done.network) == (66, ["socket.getaddrinfo huggingface.co"])
    assert "give the file with --benchmark" in done.said
