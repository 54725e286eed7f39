"""A small table of labelled spectra in the MassSpecGym layout, made from chemistry."""

import csv
import lzma

from duallgd_cli.chem.formula import Formula

PROTON_DA = 1.00727646688
COLUMNS = (
    "identifier", "mzs", "intensities", "smiles", "inchikey", "formula", "precursor_mz", "adduct",
    "instrument_type", "collision_energy", "fold",
)  # fmt: skip
# SMILES, formula, sub-formulas of fragments; the fold is the last entry.
MOLECULES = (
    ("CC(=O)Oc1ccccc1C(=O)O", "C9H8O4", ("C7H6O3", "C7H4O2", "C2H2O"), "test"),
    ("Cn1cnc2c1c(=O)n(C)c(=O)n2C", "C8H10N4O2", ("C6H7N3O", "C5H7N3", "C4H5N2"), "test"),
    ("CC(=O)Nc1ccc(O)cc1", "C8H9NO2", ("C6H7NO", "C6H6O", "C2H2O"), "test"),
    ("COC(=O)c1ccccc1O", "C8H8O3", ("C7H4O2", "C6H4O", "C7H6O3"), "train"),
    ("Cn1c(=O)[nH]c2ncn(C)c2c1=O", "C7H8N4O2", ("C5H5N3O", "C4H5N3", "C3H3N2"), "train"),
)


def rows(copies=2):
    """Rows as dictionaries: every molecule with `copies` spectra that differ in energy."""
    return [
        _row(number, copy, *molecule)
        for number, molecule in enumerate(MOLECULES)
        for copy in range(copies)
    ]


def write(path, copies=2, columns=COLUMNS):
    """Write the table; returns its path."""
    lines = ["\t".join(columns)]
    lines += ["\t".join(row[name] for name in columns) for row in rows(copies)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def packed(path, names, lines):
    """Write a table as data sets are published, packed by xz."""
    path.parent.mkdir(parents=True)
    with lzma.open(path, "wt", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, names, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def _row(number, copy, smiles, formula, fragments, fold):
    mz = sorted(Formula.parse(text).mass + PROTON_DA for text in fragments)
    cells = (
        f"S{number}{copy}",
        ",".join(f"{value:.5f}" for value in mz),
        ",".join(f"{1 / (1 + place + copy):.4f}" for place in range(len(mz))),
        *(smiles, "", formula, f"{Formula.parse(formula).mass + PROTON_DA:.5f}", "[M+H]+"),
        *("Orbitrap", str(10 + 20 * copy), fold),
    )
    return dict(zip(COLUMNS, cells, strict=True))
