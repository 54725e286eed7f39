"""Broken journals, libraries, databases, analogues, tables of guides, SMARTS and cores."""

import json
import time
from contextlib import contextmanager

from rdkit import Chem

from duallgd_cli.predict import api
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.runtime import Runtime
from examples.make_examples import SPECTRA, mgf
from tests.fuzz.loop import assert_sentence, fuzz, mutate, run
from tests.fuzz.weights import sound_weights
from tests.made_runs import rewrite

EXIT_CODES = {0, 2, 65}
SECONDS = 20  # of the processor for one command; it takes a tenth of a second
SMILES = (
    "Cn1cnc2c1c(=O)n(C)c(=O)n2C", "CC(=O)Oc1ccccc1C(=O)O", "NC(Cc1c[nH]c2ccccc12)C(=O)O", "CCO",
    "O=c1c(O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12", "C[N+](C)(C)CC(=O)[O-]", "OCC1OC(O)C(O)C(O)C1O",
)  # fmt: skip
# Read by RDKit, or nearly, and no molecules here.
ODD = (
    "*", "*C", "[*:1]c1ccc(cc1)C(=O)O", "C" * 101, "C" * 1100, "C" * 50_000, "[2H]C", "[Na+].[Cl-]",
    "[Pt](Cl)(Cl)N", "C~C", "C$C", "C->[Fe]", "[CH2]", "[H][H]", "[H+]", "[U]", "[Xx]", "[R1]",
    "%(100)", "C1CC", "c1cccc1", "C(C", "C)C", "[C", "C@@", "CC(C)(C)(C)C", "", ".", "C.C",
    "InChI=1S/CH4O/c1-2/h2H,1H3", "InChI=1S/", "InChI=1S/C60", "N/A", "[#6]", "c1ccccc1 xyz",
    "[13CH4]", "[C+4]", "[C-99]", "[CH99]", "[999C]", "C%99C%99", "[nH]1cccc1", "[Cu]", "OO" * 40,
    "C12C3C4C1C5C2C3C45", "c1ccc2ccccc2c1" * 12, "C(" * 300 + "C" + ")" * 300, "[\u03b1]", "\ud800",
)  # fmt: skip
SMARTS = (
    "[OX2H]", "C(=O)O.C(=O)O", "[$(CO),$(CN)]", "[#6]1~[#6]~[#6]~[#6]~[#6]~[#6]~1", "hexose",
    "indole", "[!#1;!#6]", "[R]~[r6]", "[CX4H2][CX4H2]", "a:a", "[C,c]~[N,n]", "*~*~*~*", "[#7+]",
    "[$([#6]~[$(O)])]", "C!@C", "C/C=C/C", "[C@H](N)C", "[OX2H].[OX2H].[OX2H]", "c1ccccc1",
)  # fmt: skip
_LETTERS = "CNOPSFIcnos*[]()$!&,;:.~=#@/\\-+0123456789%HXRDrvxah{}?^ \t\u00b5"


@contextmanager
def tiny_network(folder):
    """Commands inside predict with a whole but tiny network."""
    weights = sound_weights(folder / "tiny.safetensors")
    model: LoadedModel = api.load(weights, runtime=Runtime.resolve("cpu", threads=1))
    original, api.load = api.load, lambda *_, **__: model
    try:
        yield
    finally:
        api.load = original


def _predicted(folder, *options):
    """Predict a few spectra with these options; how the command ended."""
    spectra, started = folder / "few.mgf", time.process_time()
    spectra.write_text(mgf(SPECTRA[:2]), encoding="utf-8")
    code, err = run(
        *("predict", spectra, "-o", folder / "few.csv", "--force", "-q", "--workers", "1"),
        *("--samples", "4", "--steps", "1", *options),
    )
    return _ended(code, err, started)


def _ended(code, err, started):
    assert code in EXIT_CODES, f"exit code {code}: {err}"
    if code:
        assert_sentence(err.splitlines()[-1])
    took = time.process_time() - started
    assert took < SECONDS, f"{took:.0f} s of the processor"
    return f"exit code {code}"


def fuzz_libraries(count, seed, folder):
    """Predict with `count` broken libraries of spectra."""

    def try_one(rng):
        ending, text = _library(rng)
        path = folder / f"library.{ending}"
        path.write_bytes(mutate(text, rng) if rng.random() < 0.7 else text)
        yield _predicted(folder, "--library", path)

    with tiny_network(folder):
        return fuzz(count, f"libraries {seed}", try_one)


def _library(rng):
    """A library whose structures are right or wrong."""
    smiles = [rng.choice(SMILES) if rng.random() < 0.6 else rng.choice(ODD) for _ in range(5)]
    made = [(SPECTRA[n % 4], one) for n, one in enumerate(smiles)]
    peaks = "69.04447 20000\n83.06057 20000\n110.07140 90000\n138.06627 620000\n195.08773 1000000\n"
    ending = rng.choice(("mgf", "msp", "json"))
    if ending == "mgf":
        text = "".join(
            f"BEGIN IONS\nNAME=a\nPEPMASS={195.08765 + (n > 2)}\nADDUCT={one.adduct}\n"
            f"SMILES={text}\n{peaks}END IONS\n"
            for n, (one, text) in enumerate(made)
        )
    elif ending == "msp":
        text = "".join(
            f"NAME: a\nPRECURSORMZ: {195.08765 + (n > 2)}\nSMILES: {text}\nNum Peaks: 5\n{peaks}\n"
            for n, (_, text) in enumerate(made)
        )
    else:
        rows = [[float(number) for number in line.split()] for line in peaks.splitlines()]
        text = json.dumps(
            [{"precursor_mz": 195.08765, "smiles": text, "peaks_json": rows} for _, text in made]
        )
    return ending, text.encode("utf-8", "replace")


def fuzz_databases(count, seed, folder):
    """Predict with `count` broken files of structures, to choose from or to begin with."""

    def try_one(rng):
        ending, text = _structures(rng)
        path = folder / f"structures.{ending}"
        path.write_bytes(mutate(text, rng) if rng.random() < 0.7 else text)
        option = rng.choice(("--database", "--analogues"))
        yield f"{option} {_predicted(folder, option, path)}"

    with tiny_network(folder):
        return fuzz(count, f"databases {seed}", try_one)


def _structures(rng):
    smiles = [rng.choice(SMILES) if rng.random() < 0.6 else rng.choice(ODD) for _ in range(8)]
    ending = rng.choice(("smi", "csv", "tsv", "sdf"))
    if ending == "sdf":
        readable = (one for one in smiles if len(one) < 2000 and one.isprintable())
        mols = (Chem.MolFromSmiles(one, sanitize=False) for one in readable)
        blocks = (Chem.MolToMolBlock(mol, kekulize=False) for mol in mols if mol is not None)
        text = "".join(f"{block}> <feature_id>\n1\n\n$$$$\n" for block in blocks)
    elif ending == "smi":
        text = "".join(f"{one} a name\n" for one in smiles)
    else:
        between = "," if ending == "csv" else "\t"
        rows = (between.join((one, "a name", rng.choice(("", "1")))) for one in smiles)
        text = "\n".join([between.join(("smiles", "name", "feature_id")), *rows])
    return ending, text.encode("utf-8", "replace")


def fuzz_guides(count, seed, folder):
    """Predict with `count` broken tables of what single molecules must be like."""

    def try_one(rng):
        path = folder / rng.choice(("guide.csv", "guide.tsv"))
        between = "," if path.suffix == ".csv" else "\t"
        rows = [("feature_id", "core", "require", "forbid", "analogue")]
        rows += [(str(n), *_cells(rng)) for n in (1, 1, 2, 3)]
        text = "\n".join(between.join(row) for row in rows).encode("utf-8", "replace")
        path.write_bytes(mutate(text, rng) if rng.random() < 0.6 else text)
        yield _predicted(folder, "--guide", path)

    with tiny_network(folder):
        return fuzz(count, f"guides {seed}", try_one)


def _cells(rng):
    """Core, required and forbidden parts and an analogue, some of them wrong."""
    smiles, smarts = ((*SMILES[:4], "c1ccccc1", "C=O"), SMARTS)
    cells = [rng.choice(each) for each in (smiles, smarts, smarts, smiles)]
    at = rng.randrange(4)
    wrong = _text(rng, (smiles, smarts, smarts, smiles)[at])
    if rng.random() < 0.4:
        cells[at] = "|".join((cells[at], wrong)) if rng.random() < 0.3 else wrong
    return [cell if rng.random() < 0.5 else "" for cell in cells]


def fuzz_smarts(count, seed, folder):
    """Predict with `count` odd SMARTS that must or must not be there."""

    def try_one(rng):
        option = rng.choice(("--require", "--forbid"))
        yield _predicted(folder, f"{option}={_text(rng, SMARTS)}")

    with tiny_network(folder):
        return fuzz(count, f"smarts {seed}", try_one)


def fuzz_cores(count, seed, folder):
    """Predict with `count` odd cores."""

    def try_one(rng):
        yield _predicted(folder, f"--core={_text(rng, (*SMILES, *ODD[:12]))}")

    with tiny_network(folder):
        return fuzz(count, f"cores {seed}", try_one)


def _text(rng, sound):
    """A SMILES or SMARTS that is broken, repeated, put into itself, or sound."""
    text = rng.choice(sound)
    for _ in range(rng.randint(0, 3)):
        text = rng.choice(_CHANGES)(text, rng, sound)
    return "".join(one for one in text if one != "\0")


def _letter(text, rng, _):
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(_LETTERS) + text[at + rng.randint(0, 1) :]


def _cut_out(text, rng, _):
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.randint(1, 6) :]


def _joined(text, rng, sound):
    return rng.choice((".", "", "~", "-", "=")).join((text, rng.choice(sound)))


def _repeated(text, rng, _):
    times = min(rng.choice((2, 3, 9, 20, 60, 5_000)), 1 + 1_000_000 // (len(text) + 1))
    return rng.choice((".", "", "~", "")).join([text] * times)


def _inside(text, rng, _):
    before, after = rng.choice(
        (("[$(", ")]"), ("[!$(", ")]"), ("C(", ")"), ("*(~", ")*"), ("(", ")"))
    )
    times = rng.choice((1, 1, 2, 5, 40, 400))
    return before * times + text + after * times


def _wild(text, rng, _):
    piece = rng.choice(("[*,C]", "*", "[!#1]", "[C,N,O,c,n,o]", "[#6,Pt]"))
    return text + "".join(f"{rng.choice('.~.')}{piece}" for _ in range(rng.choice((3, 11, 30))))


_CHANGES = (_letter, _letter, _letter, _cut_out, _cut_out, _joined, _repeated, _inside, _wild)


def fuzz_journals(count, seed, folder):
    """Resume, merge and report `count` broken journals.

    What takes one for whole gives what the whole one gives.
    """
    spectra, output, page = folder / "few.mgf", folder / "few.csv", folder / "few.html"
    spectra.write_text(mgf(SPECTRA[:4]), encoding="utf-8")
    journal = folder / "few.csv.journal.jsonl"
    predict = (
        *("predict", spectra, "-o", output, "-q", "--workers", "1"),
        *("--samples", "4", "--steps", "1"),
    )
    commands = {
        "resume": (*predict, "--resume"),
        "merge": ("merge", journal, "-o", output, "-q"),
        "merge --partial": ("merge", journal, "-o", output, "-q", "--partial"),
        "report": ("report", journal, "-o", page, "--force"),
    }
    with tiny_network(folder):
        assert run(*predict)[0] == 0
        whole, table = journal.read_bytes(), output.read_bytes()

        def try_one(rng):
            journal.write_bytes(whole)
            is_of_another_version = rng.random() < 0.25
            if is_of_another_version:
                rewrite(journal, lambda lines: [_other_values(line, rng) for line in lines])
            else:
                journal.write_bytes(_broken_journal(whole, rng))
            is_whole = journal.read_bytes().startswith(whole)  # what comes after is torn
            name, started = rng.choice(sorted(commands)), time.process_time()
            output.unlink(missing_ok=True)
            code, err = run(*commands[name])
            yield f"{name} {_ended(code, err, started)}"
            if code == 0 and not is_of_another_version and name != "report":
                written = output.read_bytes()
                if name == "merge --partial":
                    assert {*written.splitlines()} <= {*table.splitlines()}
                else:
                    assert written == table
                    assert is_whole or name == "resume", "a broken journal was merged"

        return fuzz(count, f"journals {seed}", try_one)


def _broken_journal(whole, rng):
    """Bytes changed, lines moved, doubled or taken out, or the end cut off."""
    lines = whole.splitlines(keepends=True)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    way = rng.randrange(6)
    if way == 0:
        place = rng.randrange(len(whole))
        return whole[:place] + bytes([rng.randrange(256)]) + whole[place + 1 :]
    if way == 1:
        return mutate(whole, rng)
    if way == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif way == 3:
        lines.insert(at, lines[other])
    elif way == 4:
        del lines[at]
    else:
        return whole[: rng.randrange(len(whole) + 1)]
    return b"".join(lines)


def _other_values(line, rng):
    """A line as a later version might write it: values of other kinds, more of them or fewer."""
    values = line
    while rng.random() < 0.6:
        inner = [one for one in values if isinstance(values[one], dict) and values[one]]
        if not inner:
            break
        values = values[rng.choice(inner)]
    if rng.random() < 0.3 and values:
        name = rng.choice(sorted(values))
        way = rng.randrange(3)
        if way == 0:
            del values[name]
        elif way == 1:
            values["further"] = 1
        else:
            values[name] = rng.choice((None, 1, -1, "x", [], [1], {}, 10**30, 1.5, True))
    return line
