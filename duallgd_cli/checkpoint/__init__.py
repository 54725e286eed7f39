"""Checkpoints: safetensors files without classes, found by path, by name, or as those shipped."""

import errno
import os
from pathlib import Path
from typing import Final

from duallgd_cli.errors import WeightsError, quote
from duallgd_cli.runtime import weights_from_environment

DEFAULT_NAME: Final = "duallgd"
TRAINED_NAME: Final = "model.safetensors"
_SUFFIX: Final = ".safetensors"
_PACKAGE: Final = Path(__file__).resolve().parents[1]
# Inside an installed wheel, then beside the package in a checkout.
_SHIPPED: Final = (_PACKAGE / "weights", _PACKAGE.parent / "weights")


def resolve_weights(given: str | Path | None) -> Path:
    """The weights file that is meant by a file, a folder, or a name such as ``duallgd``.

    Of the folder of a training run, or one with a single weights file, that is meant; None stands
    for $DUALLGD_WEIGHTS, and else for the weights of the package. A WeightsError says where it was
    looked for, or why the file cannot be read.
    """
    try:
        path = _find(given)
    except OSError as error:  # a locked folder, a name too long
        raise WeightsError(f"weights {given} cannot be read: {error.strerror}") from None
    if not os.access(path, os.R_OK):
        raise WeightsError(f"weights {path} cannot be read: {os.strerror(errno.EACCES)}")
    return path


def _find(given: str | Path | None) -> Path:
    """The file of a path or a name, readable or not."""
    chosen = given if given is not None else weights_from_environment()
    wanted = DEFAULT_NAME if chosen is None else str(chosen)
    path = Path(wanted)
    # Where nobody chose, a folder that happens to have the default's name is not meant.
    if chosen is not None and path.is_dir():
        trained = path / TRAINED_NAME  # a run's folder also holds the state to resume from
        files = [trained] if trained.is_file() else sorted(path.glob(f"*{_SUFFIX}"))
        if len(files) != 1:
            raise WeightsError(
                f"{path} holds {len(files)} {_SUFFIX} files; give one of them with --weights"
            )
        return files[0]
    if chosen is not None and path.is_file():
        return path
    paths = [folder / f"{Path(wanted).name}{_SUFFIX}" for folder in (Path("weights"), *_SHIPPED)]
    found = next((one for one in paths if one.is_file()), None)
    if found is None or len(path.parts) > 1 or path.suffix == _SUFFIX:
        looked = ", ".join(str(p) for p in ([path] if len(path.parts) > 1 else [path, *paths]))
        raise WeightsError(
            f"no weights {quote(wanted)}; looked at {looked}; give a file with --weights"
        )
    return found
