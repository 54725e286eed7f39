"""Which files say what is known; light, since settings name them."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from duallgd_cli.files import require_input, sha256


@dataclass(frozen=True, slots=True)
class GuideFiles:
    """Files that say what is known of the molecules.

    Attributes:
        analogues: Of molecules that are like the unknown ones: .smi, .csv, .tsv or .sdf.
        libraries: Of spectra with structures: MSP, MGF, mzML or JSON.
        tables: CSV or TSV, by feature: feature_id, core, require, forbid, analogue.
    """

    analogues: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    def identity(self) -> dict[str, Any]:
        """Names and contents by kind, for the header of a journal.

        Raises:
            MissingInputError: One does not exist.
        """
        return {kind: list(map(_identity, names)) for kind, names in asdict(self).items() if names}


def _identity(name: str) -> dict[str, str]:
    require_input(name)
    return {"name": name, "sha256": sha256(Path(name))}
