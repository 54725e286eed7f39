"""Names that no file can have: one sentence, wherever a command meets them first."""

import pytest

LONG = "x" * 256
DEEP = "/".join(["d" * 200] * 25)
# With what goes beside it, such as its journal, the first is too long as well.
COMMANDS = (
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


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_no_file_can_have_is_one_sentence(duallgd, spectra, tmp_path, command):
    done = duallgd(*command.replace("SPECTRA", str(spectra)).split(), *quiet(command))

    assert done.code in {2, 65, 66, 69}
    assert "Traceback" not in done.err
    said = " ".join(done.err.split())
    assert "error: " in said
    assert not list(tmp_path.glob("o.csv*"))


def quiet(command):
    return ("--samples", "2", "--workers", "1") if command.startswith("predict") else ()
