"""The Snakemake workflow of the examples, run on local cores with a stand-in for the model."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import EXAMPLES

WORKFLOW = EXAMPLES / "workflow"
STUB = shlex.join([sys.executable, "-m", "tests.fuzz.stub_command", "0"])
FORMULAS = f"--formulas {EXAMPLES / 'formulas.csv'}"
# Fails on its first call for a shard, after a feature or two, as a job out of time would.
LOST_NODE = """
import pathlib, subprocess, sys
command, marker = sys.argv[1:], pathlib.Path("lost-" + "-".join(sys.argv[-4:]).replace("/", "_"))
if command[4] == "predict" and not marker.exists():
    marker.touch()
    command[3] = "3600"  # a second a spectrum, of which there are six
    started = subprocess.Popen(command)
    journal = pathlib.Path(command[-1] + ".shard-" + command[-3].replace("/", "-of-"))
    journal = journal.with_name(journal.name + ".journal.jsonl")
    while not (journal.exists() and journal.read_bytes().count(b"\\n") > 1):
        assert started.poll() is None
    started.kill()
    sys.exit(started.wait() and 1)
sys.exit(subprocess.run(command).returncode)
"""


def snakemake(folder, *arguments, **config):
    """Run the workflow in a folder; its result."""
    pytest.importorskip("snakemake")
    settings = [f"{name}={value}" for name, value in config.items()]
    root = Path(__file__).parent.parent
    return subprocess.run(
        [
            *(sys.executable, "-m", "snakemake", "-s", WORKFLOW / "Snakefile"),
            *("--directory", folder, *arguments, "--config", *settings),
        ],
        env={**os.environ, "PYTHONPATH": str(root), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )


def single_run(folder):
    """The output of one run without shards."""
    whole = folder / "whole.csv"
    command = [*shlex.split(STUB), "predict", EXAMPLES / "spectra.mgf", *shlex.split(FORMULAS)]
    subprocess.run([*command, "-q", "-o", whole], check=True, cwd=EXAMPLES.parent)
    return whole.read_bytes()


@pytest.mark.slow
def test_lost_jobs_go_on_and_the_result_is_that_of_a_single_run(tmp_path):
    (tmp_path / "node.py").write_text(LOST_NODE)
    node = shlex.join([sys.executable, str(tmp_path / "node.py"), *shlex.split(STUB)])

    done = snakemake(
        tmp_path,
        *("--cores", "2"),
        spectra=EXAMPLES / "spectra.mgf",
        command=node,
        options=FORMULAS,
    )

    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("lost-*"))) == 2
    assert (tmp_path / "results/spectra.csv").read_bytes() == single_run(tmp_path)
    assert "<html" in (tmp_path / "results/spectra.html").read_text("utf-8")
    logs = "".join(log.read_text() for log in tmp_path.glob("results/logs/spectra.?.log"))
    assert logs.count("taken from the journal") == 2


def test_a_cluster_would_get_one_job_a_shard(tmp_path):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    planned = snakemake(
        tmp_path,
        *("--dry-run", "--profile", str(WORKFLOW / "slurm")),
        spectra=EXAMPLES / "spectra.mgf",
        shards=3,
    )

    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.count("rule predict:") == 3
    assert "runtime=240" in planned.stdout
    assert "slurm_account=my_account" in planned.stdout


def test_two_files_of_one_name_are_refused(tmp_path):
    (tmp_path / "two.yaml").write_text("spectra: [a/x.mgf, b/x.mgf]\n")

    refused = snakemake(
        tmp_path, "--dry-run", "--configfile", str(tmp_path / "two.yaml"), threads=1
    )

    assert refused.returncode != 0
    assert "would overwrite each other" in refused.stderr + refused.stdout
