"""Hold-out lists: molecules, by InChIKey first block, that never reach training."""

from collections.abc import Sequence
from pathlib import Path

from duallgd_cli.errors import MissingInputError, UnreadableError

_BLOCK = 14


def read_holdout(paths: Sequence[Path]) -> frozenset[str]:
    """Read lists with one InChIKey, or its first block, a line; ``#`` starts a comment.

    Raises:
        MissingInputError: No such file.
        UnreadableError: A line that is not an InChIKey.
    """
    keys: set[str] = set()
    for path in paths:
        if not path.is_file():
            raise MissingInputError(f"hold-out list {path} does not exist")
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
            key = line.partition("#")[0].strip()
            block = key[:_BLOCK]
            if key and not (len(block) == _BLOCK and block.isalpha() and block.isupper()):
                raise UnreadableError(f"{path}:{number} is not an InChIKey: {key!r}")
            if key:
                keys.add(block)
    return frozenset(keys)
