"""A small table of labelled spectra in the MassSpecGym layout, made from chemistry."""

from tests.made_prepared import row_of, table

# SMILES, formula, fragment ions; the fold is the last entry.
MOLECULES = (
    ("CC(=O)Oc1ccccc1C(=O)O", "C9H8O4", "C2H3O C7H5O2 C7H7O3", "test"),
    ("Cn1cnc2c1c(=O)n(C)c(=O)n2C", "C8H10N4O2", "C4H6N2 C5H8N3 C6H8N3O", "test"),
    ("CC(=O)Nc1ccc(O)cc1", "C8H9NO2", "C2H3O C6H7O C6H8NO", "test"),
    ("COC(=O)c1ccccc1O", "C8H8O3", "C6H5O C7H5O2 C7H7O3", "train"),
    ("Cn1c(=O)[nH]c2ncn(C)c2c1=O", "C7H8N4O2", "C3H4N2 C4H6N3 C5H6N3O", "train"),
)


def rows(copies=2):
    """Rows as dictionaries: every molecule with `copies` spectra that differ in energy."""
    return [
        row_of(f"S{number}{copy}", smiles, "[M+H]+", fragments, f"{10 + 20 * copy}", fold, copy)
        | {"inchikey": "", "formula": formula}
        for number, (smiles, formula, fragments, fold) in enumerate(MOLECULES)
        for copy in range(copies)
    ]


def write(path):
    """Write the table; returns its path."""
    return table(path, *rows())
