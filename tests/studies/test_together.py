"""Spectra of several ions of a molecule, read apart and together."""

import re

import together

from tests.made_prepared import spectra_folder

# Three isomers, each measured as two ions; the fragments are of a phenol.
MEASURED = tuple(
    (smiles, adduct, fragments, "20", "val")
    for smiles in ("Oc1ccccc1O", "Oc1cccc(O)c1", "Oc1ccc(O)cc1")
    for adduct, fragments in (("[M+H]+", "C6H5O C5H5"), ("[M-H]-", "C6H4O2"))
)


def test_every_way_of_reading_has_a_row_of_the_same_molecules(tmp_path, capsys):
    isomers = tmp_path / "isomers.smi"
    isomers.write_text("\n".join({row[0] for row in MEASURED}) + "\nnot a structure\n\n")

    together.main(spectra_folder(tmp_path / "spectra", *MEASURED), isomers)

    molecules, _, *rows = capsys.readouterr().out.splitlines()
    assert molecules == "3 molecules"
    assert len(rows) == 7
    best = next(row for row in rows if row.startswith("all spectra, best ion"))
    assert re.findall(r"[+-]0\.0 \(0\.0\)", best) == ["+0.0 (0.0)"] * 2  # paired with itself
    assert all(re.search(r" 100\.0 ", row) for row in rows)  # the truth is among ten of three
