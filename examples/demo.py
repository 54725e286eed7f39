"""Show what `make demo` predicted, molecule by molecule, with right and wrong told apart.

    python examples/demo.py out/demo.csv

The table says for each example: the molecule, its formula, the first candidate, its confidence,
at which rank the true structure stands, and whether the network was trained on that molecule.
The spectra are made from chemistry (`make_examples.py`), so this shows the path, not the accuracy.
"""

import csv
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.evaluate.leakage import TrainingHashes
from examples.make_examples import SPECTRA, feature_ids

WEIGHTS = Path(__file__).resolve().parents[1] / "weights"
STRUCTURES = {
    "caffeine": "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "tryptophan": "NC(Cc1c[nH]c2ccccc12)C(=O)O",
    "quercetin": "O=c1c(O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12",
    "ibuprofen": "CC(C)Cc1ccc(C(C)C(=O)O)cc1",
    "atropine": "CN1C2CCC1CC(OC(=O)C(CO)c1ccccc1)C2",
    "paracetamol": "CC(=O)Nc1ccc(O)cc1",
    "sulfamethoxazole": "Cc1cc(NS(=O)(=O)c2ccc(N)cc2)no1",
    "citric acid": "O=C(O)CC(O)(CC(=O)O)C(=O)O",
    "acetylcholine": "CC(=O)OCC[N+](C)(C)C",
    "sucrose": "OCC1OC(OC2(CO)OC(CO)C(O)C2O)C(O)C(O)C1O",
    "diclofenac": "O=C(O)Cc1ccccc1Nc1c(Cl)cccc1Cl",
}


def compared(output: Path) -> list[dict[str, str]]:
    """Each example molecule beside what was predicted for it.

    Args:
        output: The CSV file that ``duallgd predict`` wrote for ``examples/spectra.mgf``.
    """
    with output.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["rank"]]
    blocks = [inchikey_block(parse_smiles(STRUCTURES[name])) for name in feature_ids(SPECTRA)]
    seen = TrainingHashes.read(WEIGHTS / "duallgd.train.hashes").contains(blocks)
    formulas = {made.molecule: made.formula for made in SPECTRA}
    found = []
    for (name, feature), block, known in zip(
        feature_ids(SPECTRA).items(), blocks, seen, strict=True
    ):
        mine = [row for row in rows if row["feature_id"] == str(feature)]
        first = mine[0] if mine else {"smiles": "none", "confidence": "0"}
        rank = next((row["rank"] for row in mine if row["inchikey14"] == block), "not found")
        found.append(
            {
                "molecule": name,
                "formula": formulas[name],
                "first candidate": first["smiles"],
                "confidence": f"{float(first['confidence']):.2f}",
                "true structure": {"1": "first", "not found": rank}.get(rank, f"rank {rank}"),
                "trained on": "yes" if known else "no",
            }
        )
    return found


def show(rows: list[dict[str, str]]) -> None:
    """Print the table that `compared` gives, and how many first candidates are right."""
    table = Table(*rows[0])
    for row in rows:
        right = row["true structure"] == "first"
        table.add_row(*map(escape, row.values()), style="green" if right else "red")
    right = sum(row["true structure"] == "first" for row in rows)
    console = Console()
    console.print(table)
    console.print(
        f"{right} of {len(rows)} first candidates are right. The spectra are made from chemistry, "
        "not measured: docs/accuracy.md says what to expect of real ones."
    )


if __name__ == "__main__":
    show(compared(Path(sys.argv[1])))
