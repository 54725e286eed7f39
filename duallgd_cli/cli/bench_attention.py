"""`duallgd bench attention`: which end of a bond the bond stream's cross-attention prefers."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from duallgd_cli.cli import options

EPILOG: Final = """
**Examples**

- `duallgd bench attention --data prepared/massbank --fold val -o attention/`

- `duallgd bench attention --data prepared/structures --weights nplib1-reference.safetensors -o a/`
"""
_WIDTH_WITHOUT_TERMINAL: Final = 180


def attention(
    data: Annotated[Path, typer.Option(help="Folder made by `duallgd data`.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for tables and figures.")],
    fold: Annotated[
        str, typer.Option(help="Fold to look at; by default val, or dev where there is none.")
    ] = "",
    limit: Annotated[
        int, typer.Option(min=1, help="Look at so many molecules, always the same.")
    ] = 200,
    steps: Annotated[
        str, typer.Option("--t", help="Noise levels of the graphs, of 1 to T.")
    ] = "50,250,500",
    draws: Annotated[
        int, typer.Option(min=1, help="Noisy graphs of each molecule at each level.")
    ] = 2,
    layers: Annotated[str, typer.Option(help="Layers, such as 1,6; by default all.")] = "",
    condition: Annotated[
        str,
        typer.Option(help="`true` fingerprints, or those `predicted` from a spectrum of each."),
    ] = "true",
    weights: Annotated[
        Path | None,
        typer.Option(help="Weights file or name, ours or converted; by default those shipped."),
    ] = None,
    untrained: Annotated[
        int, typer.Option(min=0, help="Untrained networks of the same shape, as a control.")
    ] = 3,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the noise, and of the coin for equal ends.")
    ] = 0,
    device: options.Device = "auto",
    plot: Annotated[bool, typer.Option(help="Draw both figures as PNG and SVG.")] = True,
) -> None:
    """Measure which end of a bond gets the bond's attention (the paper's section 4.5).

    Writes results.json, kinds.csv, attention.md and two figures.
    """
    from duallgd_cli.bench.asymmetry import NoiseLevels
    from duallgd_cli.bench.attention import AttentionRequest, study
    from duallgd_cli.bench.prepared_molecules import Selection
    from duallgd_cli.errors import UsageError
    from duallgd_cli.runtime import Runtime

    if condition not in ("true", "predicted"):
        raise UsageError(f"condition must be true or predicted, not {condition!r}")
    request = AttentionRequest(
        data,
        output,
        weights,
        Selection(fold, limit, peaks=condition == "predicted"),
        NoiseLevels(_numbers("--t", steps), draws, seed),
        _numbers("--layers", layers) if layers else None,
        untrained,
        plot,
    )
    runtime = Runtime.resolve(device, "float32", "off")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("molecules", total=1.0)
        found = study(request, runtime.device, lambda share: progress.update(task, completed=share))
    _show(found, output)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    from duallgd_cli.errors import UsageError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"{option} takes numbers such as 1,2,3, not {text!r}")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _show(found: dict[str, Any], output: Path) -> None:
    from duallgd_cli.bench.attention_report import COLUMNS, cells, shown_kinds

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    title = f"Attention of bonds to their ends, {found['data']['molecules']} molecules"
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for kind in shown_kinds(found):
        table.add_row(*cells(kind))
    console.print(table)
    for sentence in (found["definition"], *found["reading"]):
        console.print(sentence, markup=False)
    typer.echo(f"wrote {output}", err=True)
