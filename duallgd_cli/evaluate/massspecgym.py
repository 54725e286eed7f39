"""MassSpecGym (Bushuiev et al., NeurIPS 2024): the one benchmark that is downloaded."""

import logging
import shutil
from pathlib import Path
from typing import Final

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.files import replaced, sha256
from duallgd_cli.runtime import cache_folder

logger = logging.getLogger(__name__)

# Names of the file as it was published, by its SHA-256. Spectra and folds are the same in both.
_PUBLISHED: Final = {
    "50cfdd1d22f79543c59555f9ce43c6893bd788a19a42b21fb4e2e3a54673c06a": "MassSpecGym 1.5",
    "0c9cc50450def3f0d4fe2dc09dea1105fc15e635db8c6656bc3e3be37a3bcd95": "MassSpecGym 1.0",
}
_FILE: Final = "MassSpecGym1.5.tsv"
_ADDRESS: Final = (
    "https://huggingface.co/datasets/roman-bushuiev/MassSpecGym/resolve/"
    f"d2e86d0c3bd905a6d578c0dd6053ed2bd41f9c2a/data/{_FILE}"
)
# Longer than a slow server takes, shorter than anybody waits for a sentence.
_ANSWER_S: Final = 10.0


def title_of(table: Path) -> str:
    """What results on a table are called: its name, or that of the benchmark that it is."""
    return _PUBLISHED.get(sha256(table), table.name)


def downloaded() -> Path:
    """The newest file, which is downloaded once and kept in the cache.

    Raises:
        MissingInputError: It cannot be downloaded.
        UnreadableError: It is not the published one.
    """
    path = cache_folder() / _FILE
    if not path.is_file():
        import urllib.request  # nothing of the network is loaded but here

        logger.info("downloading %s (about 260 MB), once", _FILE)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with (
                urllib.request.urlopen(_ADDRESS, timeout=_ANSWER_S) as answer,
                replaced(path) as begun,
                begun.open("wb") as stream,
            ):
                shutil.copyfileobj(answer, stream)
        except OSError as error:
            raise MissingInputError(
                f"{_FILE} is not on this machine and could not be downloaded ({error}); fetch "
                f"{_ADDRESS} and give the file with --benchmark, or a table of your own"
            ) from None
    if sha256(path) not in _PUBLISHED:
        raise UnreadableError(
            f"{path} is not MassSpecGym as published (its SHA-256 differs); delete it and try again"
        )
    return path
