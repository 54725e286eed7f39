"""SDF: one record per candidate with 2D coordinates and plain upper-case tags."""

from collections.abc import Iterable, Iterator
from typing import Final

from rdkit import Chem
from rdkit.Chem import rdDepictor

from duallgd_cli.errors import printable
from duallgd_cli.predict.prediction import Candidate, Prediction
from duallgd_cli.predict.writers import table

# Named as the columns of the tables are, without what has no place in a structure file.
_LEFT_OUT: Final = {"status", "message", "warnings"}


def pieces(predictions: Iterable[Prediction]) -> Iterator[str]:
    """Records of all candidates; spectra without candidates have none."""
    for prediction in predictions:
        rows = table.rows(prediction)
        for candidate, row in zip(prediction.candidates, rows, strict=prediction.status == "ok"):
            yield _record(prediction, candidate, row)


def _record(prediction: Prediction, candidate: Candidate, row: list[str]) -> str:
    mol = Chem.MolFromSmiles(candidate.smiles)
    rdDepictor.Compute2DCoords(mol)
    mol.SetProp("_Name", _one_line(f"{prediction.spectrum_id}_{candidate.rank}"))
    tags = {
        name.upper(): value
        for name, value in zip(table.COLUMNS, row, strict=True)
        if name not in _LEFT_OUT
    }
    data = "".join(f">  <{tag}>\n{_one_line(value)}\n\n" for tag, value in tags.items() if value)
    return f"{Chem.MolToMolBlock(mol)}{data}$$$$\n"


def _one_line(text: str) -> str:
    """A value that cannot be taken for the end of the record or a further tag."""
    line = " ".join(printable(text).split())
    return f" {line}" if line.startswith((">", "$$$$")) else line
