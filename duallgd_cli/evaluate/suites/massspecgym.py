"""MassSpecGym (Bushuiev et al., NeurIPS 2024), versions 1.0 and 1.5, from its data set page."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from duallgd_cli.evaluate.suites.published import MASSSPECGYM
from duallgd_cli.evaluate.suites.suite import Suite
from duallgd_cli.evaluate.tables import read_rows
from duallgd_cli.files import sha256

logger = logging.getLogger(__name__)

_REPOSITORY: Final = "roman-bushuiev/MassSpecGym"
_REVISION: Final = "d2e86d0c3bd905a6d578c0dd6053ed2bd41f9c2a"


@dataclass(frozen=True, slots=True)
class Release:
    """One published file.

    Attributes:
        version: As the authors count.
        name: File name; it lies in the folder ``data`` of the repository.
        sha256: Of the file at the pinned revision.
    """

    version: str
    name: str
    sha256: str


# The newest first: the one taken when several are there. Spectra and folds are the same in both.
RELEASES: Final = (
    Release(
        "1.5",
        "MassSpecGym1.5.tsv",
        "50cfdd1d22f79543c59555f9ce43c6893bd788a19a42b21fb4e2e3a54673c06a",
    ),
    Release(
        "1.0",
        "MassSpecGym.tsv",
        "0c9cc50450def3f0d4fe2dc09dea1105fc15e635db8c6656bc3e3be37a3bcd95",
    ),
)


def suite(data_dir: Path | None) -> Suite:
    """Find the benchmark in a folder, else in the Hugging Face cache, else download it once.

    Args:
        data_dir: Folder that holds one of the files, possibly in ``data``; nothing is downloaded
            if it is given.

    Raises:
        MissingInputError: It is not there and cannot be downloaded.
        UnreadableError: A downloaded file is not the published one.
        UsageError: The package that downloads is missing.
    """
    release, path = _local(data_dir) if data_dir is not None else _fetched(RELEASES[0])
    remarks: tuple[str, ...] = ()
    if sha256(path) != release.sha256:
        if data_dir is None:
            raise UnreadableError(
                f"{path} is not MassSpecGym {release.version} as published (its SHA-256 differs); "
                "delete it and try again"
            )
        remarks = (f"{path.name} is not the published file: its SHA-256 differs",)
        logger.warning("%s", remarks[0])
    return Suite(
        title=f"MassSpecGym {release.version}",
        files=(path,),
        rows=lambda: read_rows(path, required=("identifier", "smiles", "mzs", "intensities")),
        fold="test",
        published=MASSSPECGYM,
        submission=not remarks,
        remarks=remarks,
    )


def _local(folder: Path) -> tuple[Release, Path]:
    for release in RELEASES:
        for place in (folder / release.name, folder / "data" / release.name):
            if place.is_file():
                return release, place
    names = " or ".join(release.name for release in RELEASES)
    raise MissingInputError(
        f"{folder} holds no {names}; download one from huggingface.co/datasets/{_REPOSITORY}"
    )


def _fetched(release: Release) -> tuple[Release, Path]:
    """The file from the cache without touching the network, else from the network."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ModuleNotFoundError:
        raise UsageError(
            "downloading needs huggingface_hub; install it with 'pip install duallgd[evaluate]', "
            "or give --data-dir"
        ) from None
    where = {
        "repo_id": _REPOSITORY,
        "repo_type": "dataset",
        "revision": _REVISION,
        "filename": f"data/{release.name}",
    }
    try:
        return release, Path(hf_hub_download(**where, local_files_only=True))
    except LocalEntryNotFoundError:
        logger.info("downloading %s (about 260 MB), once", release.name)
    try:
        return release, Path(hf_hub_download(**where))
    except OSError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MissingInputError(
            f"{release.name} is not on this machine and could not be downloaded ({reason}); "
            f"fetch it from huggingface.co/datasets/{_REPOSITORY} and give --data-dir"
        ) from None
