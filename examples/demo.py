"""Show what `make demo` predicted, molecule by molecule, with right and wrong told apart.

    python examples/demo.py out/demo.csv

The table says for each example: the molecule, its formula, the first candidate, its confidence and
where it comes from, up to which level the answer is certain, at which rank the true structure
stands, and whether the network was trained on that molecule.
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
from examples.make_examples import SPECTRA, STRUCTURES, feature_ids

WEIGHTS = Path(__file__).resolve().parents[1] / "weights"
# The column that holds the probability of each level; of parts the table has none.
_CERTAIN = {
    "structure": "confidence",
    "family": "family_confidence",
    "scaffold": "scaffold_confidence",
    "formula": "formula_probability",
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
        level = first.get("level", "")
        chances = [float(row[_CERTAIN[level]]) for row in mine if level in _CERTAIN]
        rank = next((row["rank"] for row in mine if row["inchikey14"] == block), "not found")
        found.append(
            {
                "molecule": name,
                "formula": formulas[name],
                "first candidate": first["smiles"],
                "confidence": f"{float(first['confidence']):.2f}",
                "from": first.get("sources", ""),
                "certain to": f"{level} {max(chances):.2f}" if chances else level,
                "true structure": {"1": "first", "not found": rank}.get(rank, f"rank {rank}"),
                "trained on": "yes" if known else "no",
            }
        )
    return found


def show(rows: list[dict[str, str]]) -> None:
    """Print the table that `compared` gives, and how many first candidates are right."""
    above = ("molecule", "first candidate", "confidence", "true structure")
    below = ("formula", "from", "certain to", "trained on")
    table = Table(*("\n".join(both) for both in zip(above, below, strict=True)), show_lines=True)
    for row in rows:
        right = row["true structure"] == "first"
        cells = (escape(f"{row[a]}\n{row[b]}") for a, b in zip(above, below, strict=True))
        table.add_row(*cells, style="green" if right else "red")
    right = sum(row["true structure"] == "first" for row in rows)
    console = Console()
    console.print(table)
    console.print(
        f"{right} of {len(rows)} first candidates are right. The spectra are made from chemistry, "
        "not measured: docs/accuracy.md says what to expect of real ones."
    )


if __name__ == "__main__":
    show(compared(Path(sys.argv[1])))
