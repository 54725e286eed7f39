"""The Snakemake workflow of the examples, run on local cores with a stand-in for the model."""

import os
import shlex
import subprocess
import sys

import pytest

from tests.cli.conftest import EXAMPLES, python

pytest.importorskip("snakemake")
WORKFLOW = EXAMPLES / "workflow"
SPECTRA = EXAMPLES / "spectra.mgf"
STUB = [sys.executable, "-m", "tests.fuzz.stub_command", "0"]
FORMULAS = ["--formulas", str(EXAMPLES / "formulas.csv")]
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
    settings = ["--config", *(f"{name}={value}" for name, value in config.items())]
    command = ("-m", "snakemake", "-s", WORKFLOW / "Snakefile", "--directory", folder)
    own = {"PYTHONPATH": str(EXAMPLES.parent), "XDG_CACHE_HOME": str(folder / "cache")}
    return python(*command, *arguments, *settings, env=os.environ | own)


@pytest.mark.slow
def test_lost_jobs_go_on_and_the_result_is_that_of_a_single_run(tmp_path):
    (tmp_path / "node.py").write_text(LOST_NODE)
    node = shlex.join([sys.executable, str(tmp_path / "node.py"), *STUB])

    options = shlex.join(FORMULAS)
    done = snakemake(tmp_path, "--cores", "2", spectra=SPECTRA, command=node, options=options)

    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("lost-*"))) == 2
    whole = [*STUB, "predict", SPECTRA, *FORMULAS, "-q", "-o", tmp_path / "whole.csv"]
    subprocess.run(whole, check=True, cwd=EXAMPLES.parent)
    joined = (tmp_path / "results/spectra.csv").read_bytes()
    assert joined == (tmp_path / "whole.csv").read_bytes()
    assert "<html" in (tmp_path / "results/spectra.html").read_text("utf-8")
    logs = "".join(log.read_text() for log in tmp_path.glob("results/logs/spectra.?.log"))
    assert logs.count("taken from the journal") == 2


def test_a_cluster_would_get_one_job_a_shard(tmp_path):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    profile = ("--profile", WORKFLOW / "slurm")

    planned = snakemake(tmp_path, "--dry-run", *profile, spectra=SPECTRA, shards=3)

    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.count("rule predict:") == 3
    assert "runtime=240" in planned.stdout
    assert "slurm_account=my_account" in planned.stdout


def test_two_files_of_one_name_are_refused(tmp_path):
    (tmp_path / "two.yaml").write_text("spectra: [a/x.mgf, b/x.mgf]\n")

    refused = snakemake(tmp_path, "--dry-run", "--configfile", tmp_path / "two.yaml", threads=1)

    assert refused.returncode != 0
    assert "would overwrite each other" in refused.stderr + refused.stdout
