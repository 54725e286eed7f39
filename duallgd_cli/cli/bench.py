"""`duallgd bench`: how fast the network is, and other measurements of it.

To add a sub-command: write ``cli/bench_<name>.py`` with a function that imports what it needs
inside, import it above, and add a line ``app.command("<name>")(bench_<name>.<function>)`` below.
"""

from typing import Final

import typer

from duallgd_cli.cli import bench_attention

EPILOG: Final = """
**Examples**

- `duallgd bench --help`
"""

app = typer.Typer(
    invoke_without_command=True,
    help="Measure speed and memory of the network, and what its parts are worth.",
)


@app.callback(epilog=EPILOG)
def bench(context: typer.Context) -> None:
    """Measure speed and memory of the network, and what its parts are worth."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("attention", epilog=bench_attention.EPILOG)(bench_attention.attention)
