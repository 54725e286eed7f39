"""No command ever writes over what it reads, over files of a run, or over anything unasked."""

import shutil
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pytest

from duallgd_cli.predict.run import predict
from duallgd_cli.report import write_report
from tests import labelled_table
from tests.made_runs import request
from tests.made_spectra import ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

FEW = "--samples 4 --steps 1"  # as `made_runs.request` asks for


@dataclass
class Command:
    """A command as this module calls it.

    Attributes:
        words: Its name.
        inputs: Options that name an input, each with what stands for it elsewhere ("": nothing).
        outputs: Every file that it writes, with the options that make it do so.
    """

    words: str
    inputs: dict[str, str]
    outputs: dict[str, str]


def in_folder(options, *names):
    return {f"out/{name}": options for name in names}


RUN = {
    "out/x.csv": "-o out/x.csv",
    "out/x.csv.run.json": "-o out/x.csv",
    "out/x.csv.journal.jsonl": "-o out/x.csv",
    "out/y.jsonl": "-o out/x.csv --journal out/y.jsonl",
    "out/x.parts.csv": "-o out/x.csv --parts",
    "out/x.gnps.tsv": "-o out/x.csv --summary gnps",
    "out/x.mzmine.csv": "-o out/x.csv --summary sirius --summary mzmine",
    "out/x.structure_identifications.tsv": "-o out/x.csv --summary sirius",
    "out/x.html": "-o out/x.csv --report out/x.html",
    "out/x.csv.shard-1-of-2.journal.jsonl": "-o out/x.csv --shard 1/2",
    "out/x.csv.shard-1-of-2.run.json": "-o out/x.csv --shard 1/2",
}
REPORT = ("results.json", "per_spectrum.tsv", "groups.tsv", "calibration.tsv", "groups.png")
BENCHMARK = (
    *("spectra.tsv", "truth.tsv", "predictions.csv", "predictions.csv.run.json"),
    *("predictions.csv.journal.jsonl", *REPORT),
)
WEIGHTS = {"out/w.safetensors": "-o out/w.safetensors"}
COMMANDS = [
    Command(
        "predict",
        {"": "s.mgf"}
        | dict.fromkeys(("--formulas", "--guide", "--analogues", "--library", "--database"), "")
        | dict.fromkeys(("--config", "--weights"), ""),
        RUN,
    ),
    Command(
        "formulas", {"": "s.mgf"}, {"out/x.mgf": "--format csv -o out/x.mgf"}
    ),
    Command(
        "score",
        {"": "s.mgf", "--structures": "m.smi"}
        | dict.fromkeys(("--database", "--config", "--weights"), ""),
        {"out/x.csv": "-o out/x.csv"},
    ),
    Command(
        "evaluate --formula predict",
        {"--benchmark": "labelled.tsv"}
        | dict.fromkeys(("--analogues", "--database", "--train-hashes", "--train-data"), "")
        | dict.fromkeys(("--config", "--weights"), ""),
        in_folder("-o out", *BENCHMARK),
    ),
    Command(
        "evaluate --no-mces",
        {"--predictions": "predicted.csv", "--truth": "labelled.tsv", "--train-hashes": ""},
        in_folder("-o out", *REPORT),
    ),
    Command(
        "calibrate", {"": "w.safetensors", "--run": "b.csv", "--truth": "labelled.tsv"}, WEIGHTS
    ),
    Command("train", {"--adapt": "labelled.tsv", "--weights": "w.safetensors"}, WEIGHTS),
    Command(
        "bench --atoms 10",
        {"--weights": "w.safetensors"},
        in_folder("-o out", "results.json"),
    ),
    Command(
        "bench predict --profile",
        {"": "s.mgf", "--weights": ""},
        in_folder("-o out", "results.json", "profile.txt"),
    ),
]  # fmt: skip


def asked(command, output, tested=None):
    """The words of a command that writes an output, which may be one of its inputs, too."""
    words = command.words.split()
    for option, place in command.inputs.items():
        place = output if option == tested else place
        words += [option, place] if option and place else [place] if place else []
    return [*words, *command.outputs[output].split()]


def bytes_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Inputs of every kind and a finished run; each test has a copy."""
    folder = tmp_path_factory.mktemp("inputs")
    labelled_table.write(folder / "labelled.tsv")
    mgf(folder / "s.mgf", block(ASPIRIN), block(CAFFEINE))
    for name, text in {
        "m.smi": "CCO\n",
        "w.safetensors": "weights",
        "predicted.csv": "spectrum_id,rank,smiles\nS00,1,CCO\n",
    }.items():
        (folder / name).write_text(text)
    with chdir(folder):
        asked = request("s.mgf", "b.csv", parts=True, summaries=("gnps", "mzmine", "sirius"))
        predict(asked, stub_model())
        write_report([Path("b.csv")], Path("b.html"))
    return folder


@pytest.fixture
def inputs(made, duallgd, tmp_path):
    """The same in the working folder, with an empty folder for outputs."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "out").mkdir()
    return tmp_path


def refused(done, before, folder):
    """Whether a command ended with one sentence and left everything as it was."""
    assert done.code == 2, done.err
    (said,) = done.err.splitlines()
    assert said.startswith("error: ")
    assert done.out == ""
    assert bytes_of(folder) == before
    return said


CASES = [
    pytest.param(command, output, option, id=f"{command.words}-{output}-{option or 'argument'}")
    for command in COMMANDS
    for first_output, first_option in [(next(iter(command.outputs)), next(iter(command.inputs)))]
    for output in command.outputs
    for option in command.inputs
    if output == first_output or option == first_option  # one place decides for all of them
]


@pytest.mark.parametrize(("command", "output", "option"), CASES)
def test_no_input_of_a_command_is_ever_an_output_of_it(duallgd, inputs, command, output, option):
    place = inputs / output
    given = command.inputs[option] or "labelled.tsv"
    if option == "--config":
        place.write_text("seed: 1\n")
    else:
        shutil.copy(inputs / ("b.csv.journal.jsonl" if option == "--run" else given), place)
    before = bytes_of(inputs)

    said = refused(duallgd(*asked(command, output, option), "--force"), before, inputs)

    assert "would overwrite" in said or "is not a duallgd journal" in said


UNASKED = [
    pytest.param(command, output, id=f"{command.words}-{output}")
    for command in COMMANDS
    for output in command.outputs
]


@pytest.mark.parametrize(("command", "output"), UNASKED)
def test_what_exists_is_replaced_only_with_force(duallgd, inputs, command, output):
    (inputs / output).write_text("mine")
    before = bytes_of(inputs)

    said = refused(duallgd(*asked(command, output)), before, inputs)

    assert "exists; name another output" in said or "is not a duallgd journal" in said


@pytest.mark.parametrize("name", ["b.csv.journal.jsonl", "s.mgf"])
@pytest.mark.parametrize(
    "command",
    [
        "merge b.csv --format csv -o",
        "merge b.csv.journal.jsonl --format csv -o",
        "report b.csv -o",
        f"predict s.mgf -o b.csv {FEW} --report",
        "calibrate w.safetensors --run b.csv --truth labelled.tsv -o",
    ],
)
def test_what_a_run_is_made_of_is_never_overwritten(duallgd, inputs, command, name):
    said = refused(duallgd(*command.split(), name, "--force"), bytes_of(inputs), inputs)

    assert "would overwrite" in said


@pytest.mark.parametrize(
    "asked",
    [
        "report b.csv -o b.csv",
        "report b.csv -o b.csv.run.json",
        "report b.csv.journal.jsonl -o b.csv",
        "merge b.csv --format jsonl -o b.csv.run.json",
        "calibrate w.safetensors --run b.csv --truth labelled.tsv -o b.csv",
    ],
)
def test_nothing_else_takes_the_place_of_an_output_or_a_record(duallgd, inputs, asked):
    command, name = asked.rsplit(" ", 1)

    said = refused(duallgd(*command.split(), name, "--force"), bytes_of(inputs), inputs)

    assert "would overwrite" in said


@pytest.mark.parametrize(
    "command",
    [
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
def test_other_ways_to_lose_a_file(duallgd, inputs, command):
    (inputs / "other.csv").write_text("mine")
    (inputs / "link.csv").symlink_to("s.mgf")
    (inputs / "hard.csv").hardlink_to("s.mgf")

    refused(duallgd(*command.split()), bytes_of(inputs), inputs)


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
    (inputs / "other.csv").write_text("mine")

    done = duallgd(*command.split(), "-q")

    assert done.code == 0, done.err


def test_a_shard_is_gone_on_with_but_not_done_again_unasked(duallgd, inputs):
    shard = f"predict s.mgf -o x.csv --shard 1/2 {FEW} -q".split()
    assert duallgd(*shard).code == 0

    said = refused(duallgd(*shard), bytes_of(inputs), inputs)

    assert "x.csv.shard-1-of-2.run.json exists" in said
    assert duallgd(*shard, "--resume").code == 0
    assert duallgd(*shard, "--force").code == 0


def test_work_that_is_in_no_output_yet_is_replaced_only_with_force(duallgd, inputs):
    """What was begun and holds nothing yet is in nobody's way."""
    (inputs / "b.csv").unlink()
    (inputs / "b.csv.run.json").unlink()
    lines = (inputs / "b.csv.journal.jsonl").read_bytes().splitlines(keepends=True)
    (inputs / "b.csv.journal.jsonl").write_bytes(b"".join(lines[:2]))
    again = f"predict s.mgf -o b.csv {FEW} -q".split()

    said = refused(duallgd(*again), bytes_of(inputs), inputs)

    assert "add --force to replace it, or --resume to continue its run" in said
    (inputs / "b.csv.journal.jsonl").write_bytes(lines[0])
    assert duallgd(*again).code == 0
    assert duallgd(*again, "--force").code == 0
