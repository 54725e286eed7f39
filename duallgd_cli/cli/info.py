"""`duallgd info`: what is installed, what it runs on, which weights, what is supported."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

EPILOG = """
**Examples**

- `duallgd info`

- `duallgd info --weights my.safetensors --parameters`

- `duallgd info --json | jq .weights.sha256`
"""


def info(
    weights: Annotated[
        str | None,
        typer.Option(help="Weights file or name. By default those that come with duallgd."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Count the weights by part of the network.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show versions, device, weights with their training record, elements and adducts."""
    from duallgd_cli.inference import about, api
    from duallgd_cli.runtime import Runtime

    runtime = Runtime.resolve(device)
    model = api.load(weights, runtime=runtime)
    facts: dict[str, Any] = {
        "versions": about.versions(),
        "runtime": str(runtime),
        "weights": {"name": model.name, "sha256": model.sha256, "training": dict(model.record)},
        "elements": " ".join(about.elements()),
        "heavy atoms": f"up to {model.max_heavy_atoms}",
        "adducts": " ".join(about.adducts()),
    }
    if parameters:
        facts["parameters"] = {**model.parameters, "all": sum(model.parameters.values())}
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, default=str))
    else:
        typer.echo("\n".join(_lines(facts)))


def _lines(facts: Mapping[str, Any], indent: str = "") -> list[str]:
    """Nested facts as indented lines, one a fact."""
    lines = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{name}", *_lines(value, indent + "  ")]
        else:
            shown = f"{value:,}" if isinstance(value, int) else value
            lines.append(f"{indent}{name}: {shown}")
    return lines
