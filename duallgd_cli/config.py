"""Settings: frozen dataclasses, read strictly from YAML, overridden by dotted path.

Defaults stand in the dataclasses and nowhere else; every field is documented under ``Attributes``
of its class. Ranges are checked in ``__post_init__``; `parse` adds the dotted path to what is said.
A settings class may hold other settings classes, numbers, texts, ``Literal``s, optional values and
homogeneous tuples; that is all `parse` understands, on purpose.
"""

import contextlib
import dataclasses
import difflib
import inspect
import math
import operator
import re
import textwrap
import types
import typing
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import yaml

from duallgd_cli.errors import ConfigError, MissingInputError, UnreadableError, clip, quote
from duallgd_cli.files import open_text

S = TypeVar("S")

_LARGEST: Final = 10**18
_KINDS: Final = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
# All samples of a spectrum are in memory at once.
_MOST_SAMPLES: Final = 100_000
_MOST_DIGITS: Final = 9  # of a part of the samples; Python converts no number of thousands


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How molecules are drawn for one hypothesis.

    Attributes:
        steps: Network evaluations J of the jump plan, 1 to 500.
        samples: Molecules drawn per hypothesis, S.
        sources: Parts of the samples by source, such as ``noise=1``; see `sources`. What one
            cannot give is asked of the next one, in the order of the default.
        core: SMILES of a substructure that every candidate has, or None; see `chem.guide`.
        database_share: The user's belief that the molecule is in the databases, above 0; at 1 its
            structures alone are candidates.
        exclude_known: Whether the molecule is none of those that come with the weights.
        max_memory_mib: Ceiling for one chunk's working memory in MiB. Chunk shapes follow from the
            number of atoms, the number of samples and this value alone.
        timeout_s: Seconds one spectrum may take, looked at between steps; None waits for ever.
    """

    steps: int = 10
    samples: int = 100
    sources: str = "enumerated=60 templates=15 noise=25"
    core: str | None = None
    database_share: float = 0.6
    exclude_known: bool = False
    max_memory_mib: int = 1024
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        require_range(self, "steps", least=1, most=500)
        require_range(self, "samples", least=1)
        require_range(self, "samples", most=_MOST_SAMPLES)
        parse_quotas(self.sources)
        require_range(self, "database_share", above=0, most=1)
        require_range(self, "max_memory_mib", least=64)
        require_range(self, "timeout_s", above=0)


def parse_quotas(text: str) -> dict[str, int]:
    """Parts of the samples by source, from ``enumerated=60 templates=15 noise=25``.

    Raises:
        ConfigError: It is not of that form, names a source twice, or gives none a part.
    """
    pairs = [item.partition("=") for item in text.replace(",", " ").split()]
    sound = all(
        name.isidentifier() and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        for name, _, value in pairs
    )
    quotas = {name: int(value) for name, _, value in pairs if sound}
    if not sound or len(quotas) < len(pairs) or not 0 < sum(quotas.values()) <= _MOST_SAMPLES:
        raise ConfigError(
            f"sources {quote(text)} are not of the form 'enumerated=60 templates=15 noise=25', "
            "each source once and one at least above 0"
        )
    return quotas


def require(condition: bool, message: str) -> None:
    """Refuse a setting that is out of range."""
    if not condition:
        raise ConfigError(message)


def require_range(
    settings: object,
    *names: str,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> None:
    """Refuse settings (or other attributes) out of a range; None is in any.

    Raises:
        ConfigError: One is; the message names it, the range and the value.
    """
    bounds = {
        "at least": (least, operator.ge),
        "above": (above, operator.gt),
        "at most": (most, operator.le),
        "below": (below, operator.lt),
    }
    given = [(word, bound, holds) for word, (bound, holds) in bounds.items() if bound is not None]
    span = " and ".join(f"{word} {bound}" for word, bound, _ in given)
    span = re.sub(r"at least (\S+) and (?:at most )?", r"\1 to ", span)
    for name in names:
        value = getattr(settings, name)
        sound = value is None or all(holds(value, bound) for _, bound, holds in given)
        require(sound, f"{name} must be {span}, not {value}")


def parse(cls: type[S], values: Mapping[str, Any], path: str = "") -> S:
    """Build settings from plain values; what is not given keeps its default.

    Nested settings are nested mappings; messages put the path before the name of a setting.

    Raises:
        ConfigError: A setting is unknown, of the wrong type, or out of range.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"settings {path.rstrip('.') or cls.__name__} must be a mapping")
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(typing.cast("type[Any]", cls))
    names = [field.name for field in fields]
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in names:
            below = {full.rpartition(".")[2]: full for full in reversed(_paths(cls))}
            close = difflib.get_close_matches(str(name), [*names, *below], n=1)
            hint = f"known here: {', '.join(names)}"
            if close:
                hint = f"did you mean {path}{below.get(close[0], close[0])}?"
            raise ConfigError(f"unknown setting {path}{clip(str(name))}; {hint}")
        given[name] = _convert(hints[name], value, f"{path}{name}")
    for field in fields:
        needed = field.default is field.default_factory is dataclasses.MISSING
        if needed and field.name not in given:
            raise ConfigError(
                f"setting {path}{field.name} is missing; add a line '{field.name}: ...'"
            )
    try:
        return cls(**given)
    except ConfigError as error:
        raise ConfigError(f"{path.rstrip('.')}: {error}" if path else str(error)) from None


def dump(settings: object) -> dict[str, Any]:
    """Plain values of settings, every field in declaration order; `parse` reads them back."""
    fields = dataclasses.fields(typing.cast("Any", settings))
    return {field.name: _plain(getattr(settings, field.name)) for field in fields}


def commented_yaml(settings: object, indent: str = "") -> str:
    """Settings as YAML text, each value below what its class says of it; `parse` reads it back."""
    section = (inspect.getdoc(type(settings)) or "").partition("Attributes:")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, flags=re.MULTILINE)
    described = {name: " ".join(text.replace("`", "").split()) for name, text in entries}
    lines, comment = list[str](), f"{indent}# "
    for name, plain in dump(settings).items():
        text = described.get(name, "")
        lines += textwrap.wrap(text, 96, initial_indent=comment, subsequent_indent=comment)
        value = getattr(settings, name)
        if dataclasses.is_dataclass(value):
            lines += [f"{indent}{name}:", commented_yaml(value, indent + "  ").rstrip("\n")]
        else:
            text = yaml.safe_dump(plain, default_flow_style=True, width=1000)
            lines.append(f"{indent}{name}: {text.splitlines()[0]}")
    return "\n".join(lines) + "\n"


def read_mapping(path: Path) -> dict[str, Any]:
    """Plain values of a YAML file that holds one mapping, or nothing.

    Raises:
        ConfigError: It is missing, or is not such a file.
    """
    try:
        with open_text(path) as stream:
            values = _yaml(stream.read())
    except (OSError, MissingInputError, UnreadableError) as error:
        raise ConfigError(f"cannot read settings: {error}") from None
    except ValueError as error:
        raise ConfigError(f"settings {path} are not YAML: {error}") from None
    if not isinstance(values, dict | None):
        kind = type(values).__name__
        raise ConfigError(f"settings {path} hold a {kind}, expected 'name: value' lines")
    return values or {}


class _Loader(yaml.SafeLoader):
    """YAML's plain values, but no key twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                reason = f"{quote(key.value)} stands twice"
                raise yaml.constructor.ConstructorError(None, None, reason, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _yaml(text: str) -> object:
    """Plain values of YAML text; ValueError in one line where it is none."""
    try:
        return yaml.load(text, _Loader)  # a safe loader
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" (line {mark.line + 1})"
        raise ValueError(f"{clip(reason)}{place}") from None


def assigned(assignments: Sequence[str]) -> dict[str, Any]:
    """Plain values that dotted assignments such as ``sampling.steps=50`` name, the last one counts.

    The right-hand side is read as YAML, so ``null``, ``true``, ``[1, 2]`` and numbers work.

    Raises:
        ConfigError: An assignment without ``=``, or a value that is not YAML.
    """
    values = dict[str, Any]()
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise ConfigError(f"override {quote(assignment)} is not of the form name.field=value")
        try:
            value = _yaml(text)
        except ValueError:
            raise ConfigError(f"the value of override {quote(assignment)} is not YAML") from None
        values = merge(values, nested(path.strip(), value))
    return values


def nested(path: str, value: object) -> dict[str, Any]:
    """A value under its dotted path: ``a.b`` and 1 are ``{"a": {"b": 1}}``."""
    first, *others = path.split(".")
    return {first: nested(".".join(others), value) if others else value}


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of `base` with those of `changes` laid over them, mappings merged in depth."""
    merged = dict(base)
    for name, value in changes.items():
        below = merged.get(name)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[name] = merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def flatten(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Leaf values by dotted path."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        is_nested = isinstance(value, Mapping)
        flat |= flatten(value, f"{path}{name}.") if is_nested else {f"{path}{name}": value}
    return flat


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dump(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _paths(cls: type[Any], path: str = "") -> list[str]:
    """Dotted names of all settings below a class, those of nested classes too."""
    paths: list[str] = []
    for name, inner in typing.get_type_hints(cls).items():
        is_nested = dataclasses.is_dataclass(inner) and isinstance(inner, type)
        paths += _paths(inner, f"{path}{name}.") if is_nested else [path + name]
    return paths


def _convert(hint: object, value: object, path: str) -> object:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _convert(inner, value, path)
    if origin is Literal:
        if value not in arguments:
            options = ", ".join(map(str, arguments))
            raise ConfigError(f"setting {path} must be one of {options}, not {quote(value)}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"setting {path} must be a list, not {quote(value)}")
        return tuple(_convert(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"setting {path} must hold fields of its own, not {quote(value)}")
        return parse(typing.cast("type[Any]", hint), value, f"{path}.")
    return _convert_scalar(typing.cast("type", hint), value, path)


def _convert_scalar(hint: type, value: object, path: str) -> object:
    if isinstance(value, Mapping) and value:
        raise ConfigError(f"setting {path} has no field {clip(str(next(iter(value))))}")
    if hint is float and isinstance(value, int | str) and not isinstance(value, bool):
        # YAML 1.1 reads 1e-4 as text because it has no dot; what is too large becomes infinite.
        with contextlib.suppress(ValueError):
            value = float(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"setting {path} must be a finite number, not {value}")
    if not isinstance(value, hint) or isinstance(value, bool) != (hint is bool):
        raise ConfigError(f"setting {path} must be {_KINDS[hint]}, not {quote(value)}")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ConfigError(f"setting {path} must be at most {_LARGEST}, not {quote(value)}")
    return value
