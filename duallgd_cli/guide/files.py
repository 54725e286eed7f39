"""Files that say what is known, and what was read of large ones, kept for the next run.

It is kept under the SHA-256 of the file, in ``guide/`` of the folder that `runtime.cache_folder`
names. Deleting it costs the time of reading again and nothing else.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.files import replaced, require_input, sha256
from duallgd_cli.runtime import cache_folder


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


logger = logging.getLogger(__name__)

_FOLDER: Final = "guide"


def kept(
    path: Path, kind: str, make: Callable[[Path], Mapping[str, NDArray[Any]]]
) -> Mapping[str, NDArray[Any]]:
    """Arrays made of a file, from the cache where it holds them.

    Args:
        path: Of the file.
        kind: What is made of it, with the version of its arrays.
        make: Makes them.
    """
    place = cache_folder() / _FOLDER / f"{sha256(path)}.{kind}.npz"
    try:
        with np.load(place) as stored:
            return dict(stored)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, EOFError, BadZipFile):
        logger.warning("%s cannot be read, and is made again", place)
    made = make(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replaced(place) as partial, partial.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **made)
    except OSError as error:
        logger.warning("%s cannot be kept for the next run: %s", place, error.strerror)
    return made


def text_of(lines: Iterable[str]) -> NDArray[np.uint8]:
    """Texts as an array; line breaks in them become blanks."""
    joined = "".join(f"{' '.join(line.split())}\n" for line in lines)
    return np.frombuffer(joined.encode("utf-8", "replace"), np.uint8)


def lines_of(text: NDArray[np.uint8]) -> list[str]:
    """The texts of `text_of`."""
    return bytes(text).decode().split("\n")[:-1]
