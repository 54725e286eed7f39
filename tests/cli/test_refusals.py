"""What a command is asked for and cannot do ends with one sentence and the documented code."""

import re
import shlex

import pytest

from tests import labelled_table
from tests.cli.conftest import python
from tests.made_prepared import spectra_folder, structures_folder

# What is asked for, the exit code, and a part of what is said.
REFUSED = [
    ("predict absent.mgf", 66, "absent.mgf does not exist"),
    ("predict FORMULAS", 65, "not recognised"),
    ("predict", 2, "Missing argument"),
    ("predict SPECTRA --set sampling.stepz=3", 2, "did you mean sampling.steps?"),
    ("predict SPECTRA --set samples=10 -o -", 2, "did you mean sampling.samples?"),
    ("predict SPECTRA --set steps=10 -o -", 2, "did you mean sampling.steps?"),
    ("predict SPECTRA --config absent.yaml", 2, "absent.yaml"),
    ("predict SPECTRA --device abacus", 2, "'abacus' is unknown"),
    (f"predict SPECTRA --shard 1/{'9' * 5000}", 2, "not of the form 2/8, with at most"),
    ("predict SPECTRA --group-by mood", 2, "feature, none"),
    ("predict SPECTRA -o out.docx", 2, ".docx"),
    ("predict SPECTRA -o no/such/folder/out.csv", 2, "no/such/folder"),
    ("predict SPECTRA SPECTRA", 2, "named twice"),
    ("predict SPECTRA --formula C9H8O4 --formulas FORMULAS", 2, "exclude"),
    ("predict SPECTRA --formulas absent.csv", 66, "absent.csv"),
    ("predict SPECTRA --formula Foo", 2, "--formula: 'Foo' is not a molecular formula"),
    ("predict SPECTRA --formula ''", 2, "--formula: "),
    ("predict SPECTRA --formula C11H12Xx", 2, "--formula: formula 'C11H12Xx' holds Xx"),
    ("predict SPECTRA --formula C11H12Na2", 2, "holds Na; supported elements"),
    ("predict SPECTRA --steps 501", 2, "steps must be 1 to 500, not 501"),
    ("predict SPECTRA --samples 99999999999", 2, "samples must be at most 100000"),
    ("predict SPECTRA --workers 5000", 2, "workers must be 1 to 256, not 5000"),
    ("predict SPECTRA --threads 0", 2, "threads must be 1 to"),
    ("predict SPECTRA --top-k 0", 2, "top_k must be at least 1"),
    ("predict SPECTRA --timeout-per-spectrum 0", 2, "timeout_s must be above 0"),
    ("predict SPECTRA --precursor-ppm -5", 2, "precursor_ppm"),
    ("predict SPECTRA --resume -o -", 2, "--journal"),
    ("predict SPECTRA --parts -o -", 2, "--parts needs"),
    ("predict SPECTRA --parts --shard 1/2", 2, "--parts needs"),
    ("predict SPECTRA --report b.html -o -", 2, "--report needs an output file"),
    ("predict SPECTRA --report b.html --shard 1/2", 2, "--report needs a whole run"),
    ("predict SPECTRA -o b.csv --report ./b.csv", 2, "would overwrite"),
    ("predict SPECTRA -o b.csv --report SPECTRA", 2, "would overwrite"),
    ("predict SPECTRA --atom-order truth", 2, "No such option: --atom-order"),
    ("predict SPECTRA --core c1cc", 2, "core 'c1cc' is not a SMILES"),
    ("predict SPECTRA --core [Fe]", 2, "core '[Fe]' holds Fe"),
    ("predict SPECTRA --require 'xx('", 2, "'xx(' is neither a SMARTS nor the name of a part"),
    ("predict SPECTRA --forbid hexoze", 2, "nor the name of a part; did you mean hexose?"),
    ("predict SPECTRA --require hexsoe", 2, "nor the name of a part; did you mean hexose?"),
    ("predict SPECTRA --analogues empty.csv", 2, "no molecule that can be used"),
    ("predict SPECTRA --analogues absent.smi", 66, "absent.smi does not exist"),
    ("predict SPECTRA --library absent.msp", 66, "absent.msp does not exist"),
    ("predict SPECTRA --guide absent.csv", 66, "absent.csv does not exist"),
    ("predict SPECTRA --preset quick", 2, "must be one of fast, default, thorough, not 'quick'"),
    ("merge nothing.csv -o out.csv", 2, "no journal beside it"),
    ("report nothing.csv", 2, "no journal beside it"),
    ("bench --atoms ten", 2, "10..100:5"),
    ("bench --atoms 10 --attention linear", 2, "'softmax', 'favor', 'both'"),
    ("formulas SPECTRA --elements CHNOPt", 2, "elements must be symbols"),
    ("formulas SPECTRA --precursor-ppm 0", 2, "precursor_ppm must be above 0"),
    ("formulas SPECTRA --top-k 0", 2, "top_k must be at least 1"),
    ("formulas SPECTRA -o out.sdf", 2, "csv, tsv or jsonl"),
    ("formulas SPECTRA --group-by name", 2, "group_by"),
    ("formulas SPECTRA --adduct [M+Q]+", 2, "--adduct: adduct '[M+Q]+' is not supported"),
    ("evaluate", 2, "nothing to predict"),
    ("evaluate --predictions p.csv --preset fast", 2, "--preset is for a prediction"),
    ("evaluate --predictions p.csv --samples 3", 2, "--samples is for a prediction"),
    ("evaluate --predictions p.csv", 2, "give --benchmark, or --predictions"),
    ("evaluate --predictions p.csv --truth t.tsv", 66, "does not exist"),
    ("evaluate --benchmark labelled.tsv --precision half", 2, "precision must be one of"),
    ("evaluate --benchmark labelled.tsv --truth labelled.tsv", 2, "give --benchmark, or --pred"),
    ("evaluate --benchmark labelled.tsv --formula C2H6O", 2, "--formula is predict, not 'C2H6O'"),
    ("evaluate --benchmark labelled.tsv --fold dev", 2, "no fold 'dev'"),
    ("evaluate --benchmark labelled.tsv --spectra-per-molecule 2", 2,
        "'2' is not one of '1', 'all'"),
    ("evaluate --benchmark absent.tsv", 66, "absent.tsv does not exist"),
    ("train -o run", 2, "nothing to train on; give a recipe"),
    ("train recipe.yaml", 2, "no folder for the run; name one with -o"),
    ("train none.yaml -o run", 66, "none.yaml does not exist; check the path"),
    ("train recipe.yaml -o run --until last", 2, "no stage is called last; the stages are spectra"),
    ("train recipe.yaml -o run --set decoder.training.stepz=1", 2, "mean decoder.training.steps?"),
    ("train recipe.yaml -o run --device cpu:x", 2, "device"),
    ("train --adapt none.msp -o w", 66, "none.msp does not exist"),
    ("train --plot .", 66, "holds no stage with a metrics.jsonl"),
    ("divine", 2, "divine"),
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Inputs of every kind; no refusal changes them."""
    folder = tmp_path_factory.mktemp("refusals")
    structures_folder(folder / "structures")
    spectra_folder(folder / "spectra")
    labelled_table.write(folder / "labelled.tsv")
    (folder / "table.csv").write_text("name\nx\n")
    (folder / "empty.csv").write_text("smiles\n")
    (folder / "recipe.yaml").write_text("spectra: [labelled.tsv]\nstructures: [table.csv]\n")
    return folder


@pytest.mark.parametrize(("asked", "code", "said"), REFUSED, ids=[asked for asked, *_ in REFUSED])
def test_a_mistake_is_one_sentence_and_its_exit_code(
    duallgd, spectra, formulas, made, monkeypatch, asked, code, said
):
    monkeypatch.chdir(made)
    before = sorted(made.rglob("*"))
    named = asked.replace("SPECTRA", str(spectra)).replace("FORMULAS", str(formulas))

    done = duallgd(*shlex.split(named))

    assert done.code == code, done.err
    # Typer wrote options in quotation marks before 0.29.
    assert said in re.sub(r"option '(\S+)'", r"option: \1", re.sub(r"[\s│]+", " ", done.err))
    assert "Traceback" not in done.err
    assert done.out == ""
    # Where nothing can be read the rows that say so are written.
    assert code == 65 or sorted(made.rglob("*")) == before


@pytest.mark.parametrize(
    "asked",
    [
        "predict none.mgf",
        "predict SPECTRA --guide none.csv",
        "predict SPECTRA --library none.msp",
        "predict SPECTRA --formulas none.csv",
        "predict SPECTRA --formula Foo",
        "predict SPECTRA --require hexsoe",
        "predict SPECTRA -o none/x.csv",
        "predict SPECTRA --report none/x.html",
        "predict SPECTRA --core c1cc",
        "predict SPECTRA --shard 3/2",
        "predict SPECTRA --weights none",
        "predict SPECTRA --set sampling.stepz=1",
        "evaluate --benchmark none.tsv",
        "bench predict none.mgf",
        "formulas none.mgf",
    ],
)
def test_what_is_wrong_with_what_was_given_is_said_before_torch_is_loaded(asked, spectra, tmp_path):
    program = f"import sys\nsys.modules['torch'] = None\nsys.argv[1:] = {asked.split()!r}\n"
    program = program.replace("SPECTRA", str(spectra))

    done = python("-c", program + "from duallgd_cli.__main__ import main\nmain()", cwd=tmp_path)

    assert done.returncode in (2, 66, 69), done.stderr
    assert done.stderr.startswith("error: "), done.stderr
    assert "torch" not in done.stderr


LONG = "x" * 256
DEEP = "/".join(["d" * 200] * 25)
# Names that no file can have, wherever a command meets them first. With what goes beside it,
# such as its journal, the first is too long as well.
TOO_LONG = (
    f"predict SPECTRA -o {'y' * 245}.csv",
    f"predict SPECTRA -o {'é' * 125}.csv",
    f"predict SPECTRA -o {LONG}.csv",
    f"predict SPECTRA -o {DEEP}/o.csv",
    f"predict {LONG}.mgf -o o.csv",
    f"predict {DEEP} -o o.csv",
    *(
        f"predict SPECTRA -o o.csv --{option} {LONG}.csv"
        for option in ("formulas", "guide", "library", "analogues", "database", "journal")
    ),
    f"predict SPECTRA -o o.csv --report {LONG}.html",
    f"predict SPECTRA -o o.csv --config {LONG}",
    f"merge {LONG} -o o.csv",
    f"merge {LONG}.journal.jsonl -o o.csv",
    f"report {LONG}",
    f"formulas {LONG}.mgf",
    f"formulas SPECTRA -o {LONG}.csv",
    f"evaluate --predictions {LONG}.csv --truth {LONG}.tsv",
    f"evaluate --benchmark {LONG}.tsv",
    f"info --weights {LONG}",
    f"train {LONG} -o run",
    f"train --adapt {LONG} -o w.safetensors",
)


@pytest.mark.parametrize("command", TOO_LONG)
def test_a_name_that_no_file_can_have_is_one_sentence(duallgd, spectra, tmp_path, command):
    few = ("--samples", "2", "--workers", "1") if command.startswith("predict") else ()

    done = duallgd(*command.replace("SPECTRA", str(spectra)).split(), *few)

    assert done.code in {2, 65, 66, 69}
    assert "Traceback" not in done.err
    assert "error: " in done.err
    assert not list(tmp_path.glob("o.csv*"))
