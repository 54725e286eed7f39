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
    ("predict SPECTRA --config absent.yaml", 2, "absent.yaml"),
    ("predict SPECTRA --device abacus", 2, "'abacus' is unknown; use auto, cpu"),
    ("predict SPECTRA --device cuda:one", 2, "not of the form cuda:0"),
    ("predict SPECTRA --device cuda:99", 2, "CUDA devices; use --device cpu"),
    (f"predict SPECTRA --shard 1/{'9' * 5000}", 2, "not of the form 2/8, with at most"),
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
    ("predict SPECTRA --threads 0", 2, "threads must be 1 to 1024, not 0"),
    ("predict SPECTRA --threads 100000", 2, "threads must be 1 to 1024, not 100000"),
    ("predict SPECTRA --top-k 0", 2, "top_k must be at least 1"),
    ("predict SPECTRA --timeout-per-spectrum 0", 2, "timeout_s must be above 0"),
    ("predict SPECTRA --precursor-ppm -5", 2, "precursor_ppm"),
    ("predict SPECTRA --resume -o -", 2, "--journal"),
    ("predict SPECTRA --parts -o -", 2, "--parts needs"),
    ("predict SPECTRA --parts --shard 1/2", 2, "--parts needs"),
    ("predict SPECTRA --report b.html -o -", 2, "--report needs an output file"),
    ("predict SPECTRA --report b.html --shard 1/2", 2, "--report needs a whole run"),
    ("predict SPECTRA --atom-order truth", 2, "No such option: --atom-order"),
    ("predict SPECTRA --core c1cc", 2, "core 'c1cc' is not a SMILES"),
    ("predict SPECTRA --core [Fe]", 2, "core '[Fe]' holds Fe"),
    ("predict SPECTRA --require 'xx('", 2, "'xx(' is neither a SMARTS nor the name of a part"),
    ("predict SPECTRA --forbid hexoze", 2, "nor the name of a part; did you mean hexose?"),
    ("predict SPECTRA --analogues empty.csv", 2, "no molecule that can be used"),
    ("predict SPECTRA --analogues absent.smi", 66, "absent.smi does not exist"),
    ("predict SPECTRA --library absent.msp", 66, "absent.msp does not exist"),
    ("predict SPECTRA --guide absent.csv", 66, "absent.csv does not exist"),
    ("predict SPECTRA --preset quick", 2, "must be one of fast, default, thorough, not 'quick'"),
    ("predict SPECTRA --database-only", 2, "--database-only needs a --database FILE"),
    ("predict SPECTRA --database-share 0.3", 2, "--database-share needs a --database FILE"),
    ("predict SPECTRA --database c.smi --database-only --database-share 0.3", 2, "give one of"),
    ("predict SPECTRA --database c.smi --database-share 0", 2, "database_share must be above 0"),
    ("predict SPECTRA --database c.smi --database-share 2", 2, "at most 1"),
    ("predict SPECTRA --database c.smi --database-share nan", 2, "database_share"),
    ("predict SPECTRA --features table.csv -o -", 2, "--features needs an output file"),
    ("predict SPECTRA --names table.csv -o x.csv", 65, "table.csv has no column inchikey"),
    ("predict SPECTRA --names x.tsv --shard 1/2", 2, "--names needs a whole run; join it with"),
    ("merge nothing.csv -o out.csv", 66, "does not exist, nor a journal of it"),
    ("report nothing.csv", 66, "does not exist, nor a journal of it"),
    ("bench --atoms ten", 2, "10..100:5"),
    ("bench --atoms 10 --attention linear", 2, "'softmax', 'favor', 'both'"),
    ("formulas SPECTRA --elements CHNOPt", 2, "elements must be symbols"),
    ("formulas SPECTRA --precursor-ppm 0", 2, "precursor_ppm must be above 0"),
    ("formulas SPECTRA --top-k 0", 2, "top_k must be at least 1"),
    ("formulas SPECTRA -o out.sdf", 2, "csv, tsv or jsonl"),
    ("formulas SPECTRA --group-by name", 2, "group_by"),
    ("formulas SPECTRA --adduct [M+Q]+", 2, "--adduct: adduct '[M+Q]+' is not supported"),
    ("features SPECTRA --rt 9-3", 2, "features: rt must be a span such as 60-600"),
    ("formulas SPECTRA -o o.csv --rt 9-3", 2, "rt must be a span such as 60-600"),
    ("features SPECTRA --mz high", 2, "features: mz must be a span such as 60-600"),
    ("features SPECTRA --group-by time", 2, "run, feature, none"),
    ("features SPECTRA --rt-window -1", 2, "rt_window must be at least 0"),
    ("features absent.mzML", 66, "absent.mzML"),
    ("database add absent.csv", 66, "absent.csv does not exist"),
    ("database add empty.csv", 2, "empty.csv holds no molecule that can be used"),
    ("database add c.smi --name a/b", 2, "letters, digits, . _ and -"),
    ("database remove coconut", 66, "there is no database coconut"),
    ("evaluate", 2, "nothing to predict"),
    ("evaluate --predictions p.csv --preset fast", 2, "--preset is for a prediction"),
    ("evaluate --predictions p.csv", 2, "give --benchmark, or --predictions"),
    ("evaluate --predictions p.csv --truth t.tsv", 66, "does not exist"),
    ("evaluate --benchmark labelled.tsv --precision half", 2,
        "precision must be one of auto, float32, bfloat16"),
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
    ("train recipe.yaml -o run --compile maybe", 2, "compile must be one of auto, on, off"),
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
    (folder / "c.smi").write_text("CCO\n")
    (folder / "recipe.yaml").write_text("spectra: [labelled.tsv]\nstructures: [table.csv]\n")
    return folder


@pytest.mark.parametrize(("asked", "code", "said"), REFUSED, ids=[asked for asked, *_ in REFUSED])
def test_a_mistake_is_one_sentence_and_its_exit_code(
    duallgd, spectra, formulas, databases, made, monkeypatch, asked, code, said
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


WITHOUT_TORCH = """
import sys
from duallgd_cli.__main__ import main
sys.modules["torch"] = None
for line in {lines!r}:
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit as ended:
        print(ended.code, line, file=sys.stderr)
"""


def test_what_is_wrong_with_what_was_given_is_said_before_torch_is_loaded(spectra, tmp_path):
    options = (
        *("--guide none.csv", "--library none.msp", "--formulas none.csv", "--formula Foo"),
        *("--require hexsoe", "-o none/x.csv", "--report none/x.html", "--core c1cc"),
        *("--shard 3/2", "--weights none", "--set sampling.stepz=1"),
    )
    lines = ["predict none.mgf", "evaluate --benchmark none.tsv", "bench predict none.mgf"]
    lines += ["formulas none.mgf", *(f"predict {spectra} {each}" for each in options)]

    done = python("-c", WITHOUT_TORCH.format(lines=lines), cwd=tmp_path)

    said = done.stderr.splitlines()
    assert [line.partition(" ")[2] for line in said[1::2]] == lines
    assert {line.split()[0] for line in said[1::2]} == {"2", "66", "69"}
    assert all(line.startswith("error: ") for line in said[::2])
    assert "torch" not in done.stderr


LONG = "x" * 256
DEEP = "/".join(["d" * 200] * 25)


@pytest.mark.parametrize(
    "command",
    [
        # With what goes beside it, such as its journal, the first is too long as well.
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
        f"report {LONG}",
        f"formulas {LONG}.mgf",
        f"formulas SPECTRA -o {LONG}.csv",
        f"evaluate --predictions {LONG}.csv --truth {LONG}.tsv",
        f"evaluate --benchmark {LONG}.tsv",
        f"info --weights {LONG}",
        f"train {LONG} -o run",
        f"train --adapt {LONG} -o w.safetensors",
    ],
)
def test_a_name_that_no_file_can_have_is_one_sentence(duallgd, spectra, tmp_path, command):
    done = duallgd(*command.replace("SPECTRA", str(spectra)).split())

    assert done.code in {2, 65, 66, 69}
    assert ("Traceback" in done.err, "error: " in done.err) == (False, True)
    assert not list(tmp_path.glob("o.csv*"))
