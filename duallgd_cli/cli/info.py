"""`duallgd info`: what is installed, what it runs on, which weights, what is supported."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duallgd_cli.cli import options

if TYPE_CHECKING:
    from duallgd_cli.predict.generation import LoadedModel

EPILOG = """
**Examples**

- `duallgd info`

- `duallgd info --weights my.safetensors --parameters`

- `duallgd info --preset reference` (the authors' network beside the paper's counts)

- `duallgd info --json | jq .weights.sha256`

- `duallgd info --lineage` (every training run that the weights stem from)
"""

_OURS: Final = "duallgd"
_REFERENCE: Final = "reference"
# A number of parameters beside the paper's, in JSON and for `_shown`.
_HERE, _PAPER = "parameters", "paper_millions"
# Of a training record, what is shown without --lineage.
_SHOWN: Final = ("note", "stage", "version", "core_hours", "recipe", "commit")


def info(
    weights: options.Weights = None,
    device: options.Device = "auto",
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Count the weights by part of the network.")
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Count the parameters of a preset instead: duallgd, reference (the authors' "
            "network) or one of duallgd train."
        ),
    ] = None,
    lineage: Annotated[
        bool,
        typer.Option("--lineage", help="Add the records of every run that the weights stem from."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show versions, device, weights and how good they are, and which elements and adducts work."""
    from duallgd_cli.checkpoint.format import is_reference
    from duallgd_cli.checkpoint.resolve import resolve_weights
    from duallgd_cli.predict import api
    from duallgd_cli.runtime import Runtime, versions

    if preset is not None:
        facts = {"preset": preset, "parameters": _of_preset(preset)}
    else:
        path, runtime = resolve_weights(weights), Runtime.resolve(device)
        facts = {"versions": versions(), "runtime": str(runtime)}
        if is_reference(path):
            facts |= _of_reference(path, parameters)
        else:
            facts |= _of_weights(api.load(weights, runtime=runtime), parameters, lineage)
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, default=str))
    else:
        typer.echo("\n".join(_lines(facts)))


def _of_weights(model: "LoadedModel", parameters: bool, lineage: bool) -> dict[str, Any]:
    from duallgd_cli.chem.adduct import ADDUCTS
    from duallgd_cli.chem.elements import SYMBOLS

    named = {"name": model.name, "sha256": model.sha256}
    facts: dict[str, Any] = {
        "weights": named | _training(model.record, lineage),
        "elements": " ".join(SYMBOLS),
        "heavy atoms": f"up to {model.max_heavy_atoms}",
        "adducts": " ".join(adduct.name for adduct in ADDUCTS),
    }
    if parameters:
        facts["parameters"] = _with_total(model.parameters)
    return facts


def _training(record: Mapping[str, Any], lineage: bool) -> dict[str, Any]:
    """How good the weights are, and what they were made of; all earlier runs with `lineage`."""
    fitted = record.get("ranking_validation", {})
    accuracy = {
        shown: f"{fitted[name]:.1%}"
        for name, shown in (("top1", "first candidate right"), ("top10", "among the first ten"))
        if name in fitted
    }
    if accuracy:
        accuracy["measured on"] = (
            f"{fitted.get('n_spectra', fitted.get('first', {}).get('count', 0)):.0f} held-out "
            "molecules, formula known, "
            "by cross-validation (duallgd calibrate)"
        )
    facts: dict[str, Any] = {"accuracy": accuracy} if accuracy else {}
    shown = record if lineage else _SHOWN
    return {**facts, "training": {name: record[name] for name in shown if name in record}}


def _of_reference(path: Path, parameters: bool) -> dict[str, Any]:
    """Converted weights of the authors, be they of the whole system or of a part."""
    from duallgd_cli.chem.adduct import ADDUCTS
    from duallgd_cli.files import sha256
    from duallgd_cli.reference import weights_file as reference
    from duallgd_cli.reference.subformula import SPELLINGS
    from duallgd_cli.reference.weights_file import count_beside, count_by_module

    checkpoint = reference.load(path)
    settings = checkpoint.settings
    facts: dict[str, Any] = {
        "weights": {
            "name": path.name,
            "sha256": sha256(path),
            "network": "the authors'",
            "parts": " ".join(checkpoint.parts),
            "conversion": dict(checkpoint.record),
        },
        "elements": " ".join(dict.fromkeys((*settings.atom_symbols, "H"))),
        "heavy atoms": f"up to {settings.max_atoms}",
        "adducts": " ".join(one.name for one in ADDUCTS if one.name in SPELLINGS),
    }
    if parameters:
        found = count_beside(settings)
        facts["parameters"] = {name: found[name] for name in checkpoint.parts if name in found}
        if "denoiser" in checkpoint.parts:
            facts["parameters"]["denoiser"] = _beside_paper(count_by_module(settings.denoiser))
    return facts


def _of_preset(name: str) -> dict[str, Any]:
    """Parameters by part.

    Raises:
        ConfigError: No such preset.
    """
    from duallgd_cli.errors import ConfigError, quote
    from duallgd_cli.model.duallgd import DualLGD, parameter_counts
    from duallgd_cli.reference.weights_file import PAPER_OTHERS, count_beside, count_by_module
    from duallgd_cli.train.settings import preset_names, run_settings

    if name == _REFERENCE:
        others = {f"{other}, millions": count for other, count in PAPER_OTHERS.items()}
        return {
            "denoiser": _beside_paper(count_by_module()),
            "not counted by the paper": count_beside(),
            "others in the paper's table": others,
        }
    known = [_OURS, _REFERENCE, *preset_names()]
    if name not in known:
        raise ConfigError(f"no preset {quote(name)}; presets are {', '.join(known)}")
    settings = run_settings(None if name == _OURS else name, [])
    return _with_total(parameter_counts(DualLGD(settings.model)))


def _beside_paper(counts: Mapping[str, tuple[int, float | None]]) -> dict[str, Any]:
    return {name: {_HERE: here, _PAPER: paper} for name, (here, paper) in counts.items()}


def _with_total(counts: Mapping[str, int]) -> dict[str, int]:
    return {**counts, "all": sum(counts.values())}


def _lines(
    facts: Mapping[str, Any], indent: str = "", shown: Callable[[Any], str] = str
) -> list[str]:
    """Nested facts as indented lines, one a fact."""
    lines = []
    for name, value in facts.items():
        if name == "versions":
            lines.append(f"{indent}{name}: {', '.join(f'{k} {v}' for k, v in value.items())}")
        elif isinstance(value, Mapping) and not value:
            continue
        elif isinstance(value, Mapping) and _PAPER not in value:
            below = _count if name == "parameters" else shown
            lines += [f"{indent}{name}", *_lines(value, indent + "  ", below)]
        else:
            lines.append(f"{indent}{name}: {shown(value)}")
    return lines


def _count(value: float | Mapping[str, Any]) -> str:
    """A number of parameters, with the paper's beside it where there is one."""
    if isinstance(value, Mapping):
        paper = f" (paper: {value[_PAPER]} million)" if value[_PAPER] else ""
        return f"{value[_HERE]:,}{paper}"
    return f"{value:,}"
