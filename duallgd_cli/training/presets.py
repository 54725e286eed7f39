"""Presets of a run: YAML files that hold only what differs from the defaults."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from duallgd_cli.config import override, parse, read_mapping
from duallgd_cli.errors import ConfigError
from duallgd_cli.training.run import RunSettings


def run_settings(config: str | None, overrides: list[str]) -> RunSettings:
    """Settings of a run from a preset's name or a YAML file, with dotted overrides.

    Raises:
        ConfigError: No such preset or file, or a wrong setting.
    """
    return override(parse(RunSettings, _read(config)), overrides)


def said_of_model(config: str | None) -> dict[str, Any]:
    """What a preset or a YAML file says of the network, which holds for weights to start from, too.

    Raises:
        ConfigError: No such preset or file.
    """
    said = _read(config).get("model")
    return said if isinstance(said, dict) else {}


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
        raise ConfigError(f"{config!r} is neither a YAML file nor a preset; presets are {known}")
    return read_mapping(Path(str(files("duallgd_cli") / "presets" / f"{config}.yaml")))
