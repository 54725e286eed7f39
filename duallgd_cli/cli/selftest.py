"""`duallgd selftest`: does this installation work, from file to ranked structures?"""

import time

import typer

from duallgd_cli.cli import options
from duallgd_cli.runtime import Runtime, loading

EPILOG = """
**Examples**

- `duallgd selftest`

- `duallgd selftest --weights my.safetensors --device cuda`
"""


def selftest(
    weights: options.Weights = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
) -> None:
    """Predict a few bundled spectra and check what must be true of the results.

    Takes less than 20 seconds on two cores that are free. The spectra are made from chemistry,
    not measured: this tests the installation, not the accuracy. Exits with 1 if a check fails.
    """
    from duallgd_cli.cli import running

    started = time.perf_counter()
    with loading():
        from duallgd_cli.predict import api
        from duallgd_cli.predict import selftest as bundled

        model = api.load(weights, runtime=Runtime.resolve(device, threads=threads))
    typer.echo(f"weights {model.name}, sha256 {model.sha256[:12]}")
    with running.interruptible("no check was finished; nothing is kept"):
        checks = bundled.selftest(model)
    for name, passed, found in checks:
        typer.echo(f"{'passed' if passed else 'FAILED'}  {name} ({found})")
    failed = sum(not passed for _, passed, _ in checks)
    seconds = time.perf_counter() - started
    typer.echo(f"{len(checks) - failed} of {len(checks)} checks passed in {seconds:.1f} s")
    if failed:
        raise typer.Exit(1)
