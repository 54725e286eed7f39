"""What several commands do with their options: settings from files, options and assignments."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from duallgd_cli import config

S = TypeVar("S")


def settings_of(
    cls: type[S], file: Path | None, given: Mapping[str, object], assignments: Sequence[str]
) -> S:
    """Settings from a YAML file, then options, then ``--set`` assignments; defaults for the rest.

    Args:
        cls: A settings dataclass.
        file: YAML file, or None.
        given: Option values by dotted setting; None means that the option was not given.
        assignments: Such as ``sampling.steps=50``.

    Raises:
        ConfigError: A setting is unknown, of the wrong type or out of range.
    """
    values = config.read_mapping(file) if file is not None else {}
    for path, value in given.items():
        if value is not None:
            values = config.merge(values, _nested(path, value))
    return config.override(config.parse(cls, values), assignments)


def _nested(path: str, value: object) -> dict[str, Any]:
    """``sampling.steps`` and 5 as ``{"sampling": {"steps": 5}}``."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value if isinstance(value, dict) else {}
