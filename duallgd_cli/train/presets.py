"""Presets of a run: YAML files that hold only what differs from the defaults."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from duallgd_cli.config import assigned, merge, parse, read_mapping
from duallgd_cli.errors import ConfigError, quote
from duallgd_cli.train.run import RunSettings


def run_settings(config: str | None, overrides: list[str]) -> RunSettings:
    """Settings of a run from a preset's name or a YAML file, with dotted overrides.

    Raises:
        ConfigError: No such preset or file, or a wrong setting.
    """
    return parse(RunSettings, said(config, overrides))


def said(config: str | None, overrides: list[str]) -> dict[str, Any]:
    """Plain values that a preset or a YAML file and dotted overrides name.

    Raises:
        ConfigError: No such preset or file, or an override that cannot be read.
    """
    return merge(_read(config), assigned(overrides))


def preset_names() -> list[str]:
    """Names of the presets in the package."""
    folder = files("duallgd_cli") / "presets"
    return sorted(Path(item.name).stem for item in folder.iterdir() if item.name.endswith(".yaml"))


def _read(config: str | None) -> dict[str, Any]:
    if config is None:
        return {}
    if Path(config).is_file():
        return read_mapping(Path(config))
    if config not in preset_names():
        known = ", ".join(preset_names())
        raise ConfigError(
            f"{quote(config)} is neither a YAML file nor a preset; presets are {known}"
        )
    return read_mapping(Path(str(files("duallgd_cli") / "presets" / f"{config}.yaml")))
