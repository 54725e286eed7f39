"""The command itself: instant help, the error boundary, exit codes, and what needs no spectra."""

import json
import logging
import sys
from dataclasses import replace

import pytest
import typer
import yaml

from duallgd_cli import __main__, __version__, cli
from duallgd_cli.cli import app, display, options
from duallgd_cli.config import dump, flatten, parse, read_mapping
from duallgd_cli.errors import (
    InterruptedRunError,
    MissingInputError,
    UnreadableError,
    UsageError,
    WeightsError,
)
from duallgd_cli.predict import api
from duallgd_cli.predict import selftest as bundled
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.train.settings import RecipeSettings
from tests.cli.conftest import python
from tests.made_spectra import ASPIRIN, block, mgf
from tests.stub_model import stub_model

HEAVY = ("torch", "rdkit", "matchms", "numpy", "pyteomics", "lxml", "pandas", "yaml")
OF_THE_NETWORK = ("socket", "ssl", "http", "urllib.request", "email", "asyncio", "multiprocessing")
START = "import sys; from duallgd_cli.__main__ import run; "


# What a command does not load, whole packages of it. The options of `duallgd evaluate` are made of
# its settings, for all.
ABSENT = {
    "--help": HEAVY + OF_THE_NETWORK,
    "formulas SPECTRA -q": ("torch", "scipy", "matplotlib"),
    "predict SPECTRA -q -o out.csv --samples 1 --steps 1": (
        *("duallgd_cli.train", "duallgd_cli.evaluate.run", "duallgd_cli.bench"),
        *("duallgd_cli.report", "duallgd_authors_network"),
    ),
}


@pytest.mark.parametrize("line", ABSENT)
def test_a_command_loads_no_more_than_it_needs(line, spectra, tmp_path):
    at_the_end = "import atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    program = f"{START}{at_the_end}; run()"

    done = python("-c", program, *line.replace("SPECTRA", str(spectra)).split(), cwd=tmp_path)

    loaded = done.stderr.splitlines()[-1].split()
    assert (done.returncode, "duallgd_cli.cli" in loaded) == (0, True), done.stderr
    absent = tuple(f"{name}." for name in ABSENT[line])
    assert [name for name in loaded if f"{name}.".startswith(absent)] == []


@pytest.mark.parametrize("name", [command.name for command in app.registered_commands])
def test_every_command_explains_itself_with_an_example(duallgd, name):
    assert f"duallgd {name}" in duallgd(name, "--help").out


def test_defaults_in_the_help_are_those_of_the_settings():
    defaults, stated, real = flatten(dump(PredictSettings())), {}, {}
    for panel in options._SHARED.values():
        for name, (_, _, *more) in panel.items():
            shown = dict(*more).get("show_default", "no limit")
            if name in options._SETTINGS and shown != "no limit":
                stated[name], real[name] = shown, str(defaults[options._SETTINGS[name][0]])

    assert stated == real
    assert len(stated) > 10


def test_the_version_stands_alone_for_scripts(duallgd):
    assert duallgd("version").out == f"{__version__}\n"
    assert duallgd("--version").out == f"duallgd {__version__}\n"


@pytest.fixture
def fail(monkeypatch, capsys):
    """Run a command that ends with an error; its exit code and what it says."""

    def run_it(error):
        def command():
            raise error

        only = typer.Typer(pretty_exceptions_enable=False)
        only.command()(command)
        monkeypatch.setattr(cli, "app", only)
        monkeypatch.setattr(sys, "argv", ["duallgd"])
        with pytest.raises(SystemExit) as ended:
            __main__.main()
        return ended.value.code, capsys.readouterr().err

    return run_it


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("x y"), 2, "x y"),
        (UnreadableError("x y"), 65, "x y"),
        (MissingInputError("x y"), 66, "x y"),
        (WeightsError("x y"), 69, "x y"),
        (InterruptedRunError("x y"), 130, "x y"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_an_anticipated_error_is_one_line_and_its_code(error, code, said, fail):
    assert fail(error) == (code, f"error: {said}\n")


def test_a_bug_is_a_sentence_and_shows_its_traceback_to_who_asks(fail, monkeypatch):
    code, said = fail(ZeroDivisionError("by nought" + "a" * 999))

    assert (code, said.count("\n"), len(said) < 500) == (70, 1, True)
    assert said.startswith("error: unexpected ZeroDivisionError: by nought")
    monkeypatch.setenv("DUALLGD_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("typer", "error: stopped before anything was computed"),
        ("duallgd_cli.cli", "error: stopped before anything was computed"),
        ("duallgd_cli.predict.model", "error: stopped before anything was computed"),  # weights
        ("prepare_environment", "error: stopped"),  # before anything is loaded
    ],
)
def test_ctrl_c_while_libraries_and_weights_load_is_one_sentence(where, said, spectra, tmp_path):
    program = (
        f"import os, signal, time; {START}from duallgd_cli import __main__\n"
        # In naps: a signal that comes just before one wakes the next.
        "def wait(): [time.sleep(0.1) for _ in range(36_000)]\n"
        "def stop(name='prepare_environment', *_):\n"
        f"    if name == {where!r}: os.kill(os.getpid(), signal.SIGINT); wait()\n"
        "class Finder: find_spec = stop\n"
        "sys.meta_path.insert(0, Finder)\n"
        "__main__.prepare_environment = stop\n"
        "run()\n"
    )

    done = python("-c", program, "predict", spectra, "-o", "out.csv", cwd=tmp_path)

    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, said)
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_error_and_a_warning_never_steer_the_terminal(duallgd, capsys):
    done = duallgd("predict", "\x1b[31mabsent\x07.mgf")
    display.configure_logging(quiet=False)
    logging.getLogger("duallgd_cli").warning("title \x1b[2J\x9b1m here")
    said = capsys.readouterr().err

    assert (done.code, "title" in said) == (66, True)
    for steering in ("\x07", "\x9b", "\x1b[31mabsent", "\x1b[2J"):
        assert steering not in done.err + said


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        ("predict", PredictSettings()),
        ("train", RecipeSettings(("spectra.mgf",), ("structures.tsv",))),
    ],
)
def test_settings_are_read_back_and_stand_below_what_they_do(duallgd, tmp_path, command, settings):
    (tmp_path / "shown.yaml").write_text(text := duallgd("config", command).out)

    lines = text.splitlines()
    assert parse(type(settings), read_mapping(tmp_path / "shown.yaml")) == settings
    for name in (path.rpartition(".")[2] for path in flatten(yaml.safe_load(text))):
        above = [
            lines[n - 1] for n, line in enumerate(lines) if line.strip().startswith(f"{name}:")
        ]
        assert above
        assert all(line.strip().startswith("# ") for line in above), name


@pytest.mark.parametrize(
    ("options", "samples", "steps"),
    [
        ((), 100, 10),
        (("--preset", "fast"), 30, 6),
        (("--preset", "thorough"), 300, 20),
        (("--preset", "thorough", "--steps", "3", "--set", "sampling.samples=5"), 5, 3),
        (("--preset", "fast", "--config", "settings.yaml"), 30, 9),
    ],
)
def test_what_is_said_of_samples_and_steps_wins_over_the_preset(
    duallgd, tmp_path, options, samples, steps
):
    (tmp_path / "settings.yaml").write_text("sampling: {steps: 9}\n")
    spectra = mgf(tmp_path / "in.mgf", block(ASPIRIN, pepmass="300.1"))  # nothing is drawn

    done = duallgd("predict", spectra, "-o", "out.csv", *options)

    assert done.code == 0, done.err
    record = (tmp_path / "out.csv.run.json").read_text()
    sampling = json.loads(record)["settings"]["sampling"]
    assert (sampling["samples"], sampling["steps"]) == (samples, steps)
    assert "preset" not in record


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (None, "spectra.mgf does not exist; check the paths of the recipe"),
        ("spectra: [own.tsv]\nvalidation: 0.1\n", "structures is missing; add a line 'structures:"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_told_why(duallgd, tmp_path, recipe, said):
    (tmp_path / "recipe.yaml").write_text(recipe or duallgd("config", "train").out)

    done = duallgd("train", "recipe.yaml", "-o", "run")

    assert said in done.err
    assert ("stage 1 of 16: spectra" in done.err) is (recipe is None)


@pytest.mark.slow
def test_the_figures_of_a_run_are_drawn(duallgd, tmp_path):
    (tmp_path / "run" / "decoder").mkdir(parents=True)
    rows = [{"step": step, "loss": 1 / step, "norm": 1.0, "nll_50": 0.1} for step in (1, 2, 3)]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "run" / "decoder" / "metrics.jsonl").write_text("\n".join([*lines, lines[0][:9]]))

    done = duallgd("train", "--plot", "run")

    assert (done.code, done.err.splitlines()[-1]) == (0, "1 stage in run/plots")
    assert (tmp_path / "run" / "plots" / "decoder.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("output", [(), ("-o", "out")])
def test_bench_runs_with_torch_numpy_yaml_typer_and_rich_alone(tmp_path, output):
    absent = ("rdkit", "matplotlib", "matchms", "pyteomics", "lxml", "scipy", "pandas")
    options = "--atoms 5,6 --attention favor --seconds 0 --steps 2 --threads 1 --device cpu"
    program = f"{START}sys.modules.update(dict.fromkeys({absent})); run()"

    done = python("-c", program, "bench", *options.split(), *output, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "6 of 6: loop, favor, 6 atoms done" in done.stderr
    for said in ("loop favor grows: time as N^", "gflop_s", "weights duallgd.safetensors"):
        assert said in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == [*output[1:]]
    for path in tmp_path.rglob("results.json"):
        assert [row["atoms"] for row in json.loads(path.read_text())["rows"]] == [5] * 3 + [6] * 3


def test_info_fits_a_screen_and_tells_more_to_who_asks(duallgd, monkeypatch):
    fitted = {"top1": 0.15900383, "top10": 0.26436, "first": {"count": 522.0}}
    model = replace(stub_model(), record={"ranking_validation": fitted})
    monkeypatch.setattr(api, "load", lambda *_, **__: model)

    short = duallgd("info").out
    whole = duallgd("info", "--device", "cpu", "--parameters").out
    facts = json.loads(duallgd("info", "--json").out)

    assert len(short.splitlines()) <= 24
    for fact in ("right: 15.9%", "among the first ten: 26.4%", "522 validation molecules"):
        assert fact in short
    for fact in ("torch ", "name: stub", "Se H", "[M+CH3COO]-", "all: "):
        assert fact in whole
    assert (facts["weights"]["name"], len(facts["adducts"].split())) == ("stub", 10)


def test_info_of_weights_that_a_plug_in_reads_is_what_the_plug_in_says(duallgd, made_plugin):
    facts = json.loads(duallgd("info", "--weights", made_plugin, "--parameters", "--json").out)

    assert facts["weights"]["network"] == "made of text"
    assert facts["parameters"] == {"all of it": 3, "all": 3}
    assert "parameters" not in duallgd("info", "--weights", made_plugin).out


@pytest.mark.parametrize("is_whole", [True, False])
def test_selftest_passes_where_the_path_is_whole_and_fails_aloud_where_not(
    duallgd, monkeypatch, is_whole
):
    if not is_whole:
        wrong = (("caffeine", "no_peaks", ""), *bundled.EXPECTED[1:])
        monkeypatch.setattr(bundled, "EXPECTED", wrong)

    done = duallgd("selftest")

    assert done.code == (not is_whole), done.out
    assert f"{12 if is_whole else 11} of 12 checks passed" in done.out
    assert ("FAILED  caffeine: no_peaks (ok, " in done.out) != is_whole


def test_the_catalogue_of_parts_can_be_searched(duallgd):
    head, *rows = duallgd("parts", "HEXOSE").out.splitlines()
    missed = duallgd("parts", "hexsoe")

    assert head == "name\tkind\tsmarts"
    assert "hexose" in [row.split("\t")[0] for row in rows]
    assert all("hexos" in row.lower() for row in rows)
    assert len(duallgd("parts").out.splitlines()) > 700
    assert (missed.code, "duallgd parts lists all" in missed.err) == (2, True)
