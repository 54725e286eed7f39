"""No command ever writes over what it reads, over files of a run, or over anything unasked."""

import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from duallgd_cli.predict.run import predict
from duallgd_cli.report import write_report
from tests import labelled_table
from tests.made_runs import request
from tests.made_spectra import ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

FEW = "--samples 4 --steps 1"  # as `made_runs.request` asks for
REPORT = "results.json per_spectrum.tsv groups.tsv calibration.tsv groups.png"
RUN = "predictions.csv predictions.csv.run.json predictions.csv.journal.jsonl"
# Of each command: its words; the options that name an input, each with what stands for it where
# another one is tried; options that make it write, with the files that it then writes in `out`.
COMMANDS = [
    (
        "predict",
        "=s.mgf --formulas= --guide= --analogues= --library= --database= --config= --weights=",
        {
            "-o out/x.csv": "x.csv x.csv.run.json x.csv.journal.jsonl",
            "-o out/x.csv --journal out/y.jsonl": "y.jsonl",
            "-o out/x.csv --parts": "x.parts.csv",
            "-o out/x.csv --summary gnps": "x.gnps.tsv",
            "-o out/x.csv --summary sirius --summary mzmine": "x.mzmine.csv",
            "-o out/x.csv --summary sirius": "x.structure_identifications.tsv",
            "-o out/x.csv --report out/x.html": "x.html",
            "-o out/x.csv --shard 1/2": "x.csv.shard-1-of-2.journal.jsonl "
            "x.csv.shard-1-of-2.run.json",
        },
    ),
    ("formulas", "=s.mgf", {"--format csv -o out/x.mgf": "x.mgf"}),
    (
        "score",
        "=s.mgf --structures=m.smi --database= --config= --weights=",
        {"-o out/x.csv": "x.csv"},
    ),
    (
        "evaluate --formula predict",
        "--benchmark=labelled.tsv --analogues= --database= --train-hashes= --train-data= "
        "--config= --weights=",
        {"-o out": f"spectra.tsv truth.tsv {RUN} {REPORT}"},
    ),
    (
        "evaluate --no-mces",
        "--predictions=predicted.csv --truth=labelled.tsv --train-hashes=",
        {"-o out": REPORT},
    ),
    (
        "calibrate",
        "=w.safetensors --run=b.csv --truth=labelled.tsv",
        {"-o out/w.safetensors": "w.safetensors"},
    ),
    (
        "train",
        "--adapt=labelled.tsv --weights=w.safetensors",
        {"-o out/w.safetensors": "w.safetensors"},
    ),
    ("bench --atoms 10", "--weights=w.safetensors", {"-o out": "results.json"}),
    ("bench predict --profile", "=s.mgf --weights=", {"-o out": "results.json profile.txt"}),
]
WRITES = [
    (words, dict(pair.split("=") for pair in inputs.split()), f"out/{name}", options)
    for words, inputs, outputs in COMMANDS
    for options, names in outputs.items()
    for name in names.split()
]


def command(words, named, options):
    """What is asked for, word by word."""
    given = [word for option, place in named.items() if place for word in (option, place) if word]
    return [*words.split(), *given, *options.split()]


def bytes_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Inputs of every kind and a finished run; each test has a copy."""
    folder = tmp_path_factory.mktemp("inputs")
    labelled_table.write(folder / "labelled.tsv")
    mgf(folder / "s.mgf", block(ASPIRIN), block(CAFFEINE))
    (folder / "m.smi").write_text("CCO\n")
    (folder / "w.safetensors").write_text("weights")
    (folder / "predicted.csv").write_text("spectrum_id,rank,smiles\nS00,1,CCO\n")
    with chdir(folder):
        asked = request("s.mgf", "b.csv", parts=True, summaries=("gnps", "mzmine", "sirius"))
        predict(asked, stub_model())
        write_report([Path("b.csv")], Path("b.html"))
    return folder


@pytest.fixture
def inputs(made, duallgd, tmp_path):
    """The same in the working folder, with files of the user's and a folder for outputs."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "other.csv").write_text("mine")
    (tmp_path / "link.csv").symlink_to("s.mgf")
    (tmp_path / "hard.csv").hardlink_to("s.mgf")
    return tmp_path


@pytest.fixture
def refused(inputs, duallgd):
    """Run what must end with one sentence and leave everything as it was; the sentence."""

    def run(*arguments):
        before = bytes_of(inputs)
        done = duallgd(*arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
        assert done.err.startswith("error: ")
        assert bytes_of(inputs) == before
        return done.err

    return run


@pytest.mark.parametrize(
    ("words", "named", "output", "options", "tested"),
    [
        pytest.param(*case, option, id=f"{case[0]}-{case[2]}-{option or 'argument'}")
        for case in WRITES
        for option in case[1]
        # One place decides for all of them.
        if option == next(iter(case[1]))
        or case[2] == next(it[2] for it in WRITES if it[0] == case[0])
    ],
)
def test_no_input_of_a_command_is_ever_an_output_of_it(
    refused, inputs, words, named, output, options, tested
):
    if tested == "--config":
        (inputs / output).write_text("seed: 1\n")
    else:
        content = "b.csv.journal.jsonl" if tested == "--run" else named[tested] or "labelled.tsv"
        shutil.copy(inputs / content, inputs / output)

    said = refused(*command(words, named | {tested: output}, options), "--force")

    assert "would overwrite" in said or "is not a duallgd journal" in said


@pytest.mark.parametrize(("words", "named", "output", "options"), WRITES)
def test_what_exists_is_replaced_only_with_force(refused, inputs, words, named, output, options):
    (inputs / output).write_text("mine")

    said = refused(*command(words, named, options))

    assert "exists; name another output" in said or "is not a duallgd journal" in said


CALIBRATE = "calibrate w.safetensors --run b.csv --truth labelled.tsv -o"


@pytest.mark.parametrize(
    "command",
    [
        f"{start} {name} --force"
        for start in (
            *("merge b.csv --format csv -o", "merge b.csv.journal.jsonl --format csv -o"),
            *("report b.csv -o", f"predict s.mgf -o b.csv {FEW} --report", CALIBRATE),
        )
        for name in ("b.csv.journal.jsonl", "s.mgf")
    ]
    + [
        "report b.csv -o b.csv --force",
        "report b.csv -o b.csv.run.json --force",
        "report b.csv.journal.jsonl -o b.csv --force",
        "merge b.csv --format jsonl -o b.csv.run.json --force",
        f"{CALIBRATE} b.csv --force",
        "merge b.csv -o b.csv.journal.jsonl",
        "merge b.csv -o other.csv",
        "merge b.csv -o b.csv --parts",
        "merge b.csv -o b.csv --summary gnps",
        "merge b.csv -o b.csv --partial",
        "report b.csv",
        "report b.csv -o other.csv",
        f"predict s.mgf -o b.csv {FEW}",
        f"predict s.mgf -o new.csv --journal other.csv {FEW}",
        f"predict s.mgf -o new.csv --journal other.csv --force {FEW}",
        f"predict s.mgf -o new.csv --journal b.csv.journal.jsonl {FEW}",
        f"predict s.mgf -o new.csv --report b.html {FEW}",
        f"predict s.mgf -o other.csv --resume {FEW}",
        f"predict s.mgf -o new.csv --report new.csv {FEW}",
        f"predict s.mgf -o new.csv --journal new.csv {FEW}",
        f"predict s.mgf -o new.csv --parts --report new.parts.csv {FEW}",
        f"predict s.mgf -o new.csv --summary gnps --report NEW.gnps.tsv {FEW}",
        f"predict s.mgf -o new.csv --report new.csv.run.json {FEW}",
        f"predict s.mgf -o new.csv --report new.csv.journal.jsonl {FEW}",
        f"predict link.csv -o s.mgf --format csv --force {FEW}",
        "formulas s.mgf -o hard.csv --force",
        "formulas s.mgf -o link.csv --force",
        "formulas link.csv -o ./out/../s.mgf --format csv --force",
    ],
)
def test_no_other_way_to_lose_a_file(refused, command):
    said = refused(*command.split())

    assert "would overwrite" in said or "--force" not in command or "--journal" in command


@pytest.mark.parametrize(
    "command",
    [
        "merge b.csv -o b.csv",
        f"predict s.mgf -o b.csv --shard 1/2 {FEW}",
        "merge b.csv -o b.csv --parts --force",
        "merge b.csv -o new.csv --partial",
        "merge b.csv.journal.jsonl -o new.sdf",
        "report b.csv --force",
        f"predict s.mgf -o b.csv --resume --parts --report b.html {FEW}",
        f"predict s.mgf -o b.csv --force {FEW}",
        f"predict s.mgf -o new.csv --report out/b.html {FEW}",
        "formulas s.mgf -o other.csv --force",
        f"predict s.mgf -o - --journal new.jsonl {FEW}",
    ],
)
def test_what_is_meant_works(duallgd, inputs, command):
    done = duallgd(*command.split(), "-q")

    assert done.code == 0, done.err


def test_a_shard_is_gone_on_with_but_not_done_again_unasked(duallgd, refused):
    shard = f"predict s.mgf -o x.csv --shard 1/2 {FEW} -q".split()
    assert duallgd(*shard).code == 0

    assert "x.csv.shard-1-of-2.run.json exists" in refused(*shard)
    assert [duallgd(*shard, more).code for more in ("--resume", "--force")] == [0, 0]


def test_work_that_is_in_no_output_yet_is_replaced_only_with_force(duallgd, refused, inputs):
    """What was begun and holds nothing yet is in nobody's way."""
    (inputs / "b.csv").unlink()
    (inputs / "b.csv.run.json").unlink()
    journal = inputs / "b.csv.journal.jsonl"
    header, first, *_ = journal.read_bytes().splitlines(keepends=True)
    again = f"predict s.mgf -o b.csv {FEW} -q".split()

    journal.write_bytes(header + first)
    assert "add --force to replace it, or --resume to continue its run" in refused(*again)
    journal.write_bytes(header)
    assert [duallgd(*again).code, duallgd(*again, "--force").code] == [0, 0]
