"""The command itself: instant help, the error boundary, exit codes."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from duallgd_cli import __main__, __version__, cli
from duallgd_cli.cli import app, display
from duallgd_cli.errors import (
    InterruptedRunError,
    MissingInputError,
    UnreadableError,
    UsageError,
    WeightsError,
)
from tests.cli.conftest import python

HEAVY = ("torch", "rdkit", "matchms", "numpy", "pyteomics", "lxml", "pandas", "yaml")
OF_THE_NETWORK = ("socket", "ssl", "http", "urllib.request", "email", "asyncio", "multiprocessing")


def test_help_loads_nothing_heavy_and_nothing_of_the_network():
    program = (
        "import sys\n"
        "from duallgd_cli.__main__ import main\n"
        "sys.argv = ['duallgd', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"loaded = [name for name in {HEAVY + OF_THE_NETWORK} if name in sys.modules]\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)\n"
    )

    done = python("-c", program)

    assert done.returncode == 0, done.stderr
    assert "predict" in done.stdout


@pytest.mark.parametrize("name", [command.name for command in app.registered_commands])
def test_every_command_explains_itself_with_an_example(duallgd, name):
    done = duallgd(name, "--help")

    assert done.code == 0
    assert f"duallgd {name}" in done.out


def test_the_version_stands_alone_for_scripts(duallgd):
    assert duallgd("version").out == f"{__version__}\n"
    assert duallgd("--version").out == f"duallgd {__version__}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("command", [("--version",), ("--help",), ("database", "--help")])
def test_standard_output_that_takes_no_more_is_a_sentence_whatever_is_printed(command):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "duallgd_cli", *command],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    said = "error: cannot write to standard output: No space left on device"
    assert (done.returncode, done.stderr.strip()) == (2, said)


@pytest.fixture
def failing(monkeypatch):
    """Run a command that ends with an error."""

    def run_it(error):
        def fail():
            raise error

        only = typer.Typer(pretty_exceptions_enable=False)
        only.command()(fail)
        monkeypatch.setattr(cli, "app", only)
        monkeypatch.setattr(sys, "argv", ["duallgd"])
        __main__.main()

    return run_it


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x y"), 2),
        (UnreadableError("x y"), 65),
        (MissingInputError("x y"), 66),
        (WeightsError("x y"), 69),
        (InterruptedRunError("x y"), 130),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_anticipated_error_is_one_line_and_its_code(error, code, failing, capsys):
    with pytest.raises(SystemExit) as stopped:
        failing(error)

    assert stopped.value.code == code
    assert capsys.readouterr().err.strip() == f"error: {str(error) or 'stopped'}"


def test_ctrl_c_while_the_command_line_loads_is_one_sentence():
    program = (
        "import os, signal, sys\n"
        "from duallgd_cli.__main__ import run\n"
        "class Finder:\n"
        "    def find_spec(name, *_):\n"
        "        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder)\n"
        "run()\n"
    )

    done = python("-c", program)

    assert done.returncode == 130
    assert done.stderr == "error: stopped before anything was computed\n"


def test_a_bug_is_a_sentence_and_shows_its_traceback_to_who_asks(failing, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        failing(ZeroDivisionError("by nought" + "a" * 999))
    said = capsys.readouterr().err

    assert ended.value.code == 70
    assert said.startswith("error: unexpected ZeroDivisionError: by nought")
    assert len(said.splitlines()) == 1
    assert len(said) < 500
    monkeypatch.setenv("DUALLGD_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError())


def test_an_error_and_a_warning_never_steer_the_terminal(duallgd, capsys):
    done = duallgd("predict", "\x1b[31mabsent\x07.mgf")
    display.configure_logging(quiet=False)
    logging.getLogger("duallgd_cli").warning("title \x1b[2J\x9b1m here")
    said = capsys.readouterr().err

    assert done.code == 66
    assert not {"\x07", "\x9b"} & set(done.err + said)
    assert "\x1b[31mabsent" not in done.err
    assert "\x1b[2J" not in said
    assert "title" in said
