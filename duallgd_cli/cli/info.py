"""`duallgd info`, `config`, `parts` and `selftest`: what there is, how it is set, does it work."""

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from duallgd_cli.cli import options
from duallgd_cli.errors import UsageError, quote
from duallgd_cli.runtime import versions
from duallgd_cli.stopping import interruptible, loading

if TYPE_CHECKING:
    from duallgd_cli.predict.model import LoadedModel

EPILOG = options.examples("""
`duallgd info`
`duallgd info --weights my.safetensors --parameters`
`duallgd info --json | jq .weights.sha256`
""")

CONFIG_EPILOG = options.examples("""
`duallgd config > settings.yaml`, then `duallgd predict spectra.mgf --config settings.yaml`
`duallgd config train > recipe.yaml`, then `duallgd train recipe.yaml -o run`
""")
PARTS_EPILOG = options.examples("""
`duallgd parts sugar`
`duallgd parts | cut -f 1 | sort`
""")
SELFTEST_EPILOG = options.examples("""
`duallgd selftest`
`duallgd selftest --weights my.safetensors --device cuda`
""")

_OPTIONS: Final[options.Options] = {
    options.ARGUMENTS: {
        "command": (Literal["predict", "train"], "Command whose settings are shown.",
            {"default": "predict", "show_default": True}),
        "text": (str, "Only those whose name or kind holds this.", {"default": ""}),
    },
    options.OPTIONS: {
        "parameters": (bool, "Count the weights by part of the network."),
        "json_": (bool, "Print one JSON object."),
    },
}  # fmt: skip
# Of a training record, what is shown.
_FITS: Final = {
    "ranking_validation": "accuracy", "database_validation": "accuracy with a database",
}  # fmt: skip
_ACCURACY: Final = {"top1": "first candidate right", "top10": "among the first ten"}
_MEASURED: Final = (
    "{:.0f} validation molecules, formula known, by cross-validation (duallgd calibrate); "
    "docs/accuracy.md has those of the test molecules"
)
_SHOWN: Final = (
    *("note", "stage", "version", "core_hours", "recipe", "commit", "sources", "hold_outs"),
    "cost",
)


@options.takes("text", _OPTIONS)
def parts(text: str) -> None:
    """List the parts that `--require`, `--forbid` and `--parts` know: name, kind and pattern.

    Functional groups, sugars, amino acids, ring systems and more, with tabs between the columns.
    """
    from duallgd_cli.chem.parts import catalogue

    rows = [row for row in catalogue() if text.lower() in f"{row['name']} {row['kind']}".lower()]
    if not rows:
        raise UsageError(f"no part is called like {quote(text)}; duallgd parts lists all")
    for row in ({name: name for name in rows[0]}, *rows):
        typer.echo("\t".join((row["name"], row["kind"], row["smarts"])))


@options.takes("weights device parameters json_", _OPTIONS)
def info(
    context: typer.Context, weights: str | None, parameters: bool, json_: bool, **given: object
) -> None:
    """Show versions, device, weights and how good they are, and which elements and adducts work."""
    from duallgd_cli.checkpoint import resolve_weights
    from duallgd_cli.checkpoint.plugins import plugin_for
    from duallgd_cli.predict import api

    path, runtime = resolve_weights(weights), options.runtime_of(context)
    facts: dict[str, Any] = {"versions": versions(), "runtime": str(runtime)}
    if (plugin := plugin_for(path)) is not None:
        facts |= plugin.describe(path)
    else:
        facts |= _of_weights(api.load(weights, runtime=runtime))
    counts = facts.pop("parameters", {})
    if parameters:
        facts["parameters"] = {**counts, "all": sum(counts.values())}
    if json_:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, default=str))
        return
    facts["versions"] = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    facts["parameters"] = {name: f"{n:,}" for name, n in facts.get("parameters", {}).items()}
    typer.echo("\n".join(_lines(facts)))


def _of_weights(model: "LoadedModel") -> dict[str, Any]:
    """How good the weights are, what they were made of, and for which molecules and ions."""
    from duallgd_cli.chem.adduct import ADDUCTS
    from duallgd_cli.chem.elements import SYMBOLS

    facts: dict[str, Any] = {"name": model.name, "sha256": model.sha256}
    for fit, title in _FITS.items():
        held = model.record.get(fit, {})
        accuracy = {said: f"{held[name]:.1%}" for name, said in _ACCURACY.items() if name in held}
        if accuracy:
            n_spectra = held.get("n_spectra", held.get("first", {}).get("count", 0))
            facts[title] = accuracy | {"measured on": _MEASURED.format(n_spectra)}
    facts["training"] = {name: model.record[name] for name in _SHOWN if name in model.record}
    return {
        "weights": facts,
        "elements": " ".join(SYMBOLS),
        "heavy atoms": f"up to {model.max_heavy_atoms}",
        "adducts": " ".join(adduct.name for adduct in ADDUCTS),
        "parameters": model.parameters,
    }


def _lines(facts: Mapping[str, Any], indent: str = "") -> list[str]:
    """Nested facts as indented lines, one a fact."""
    lines = []
    for name, value in facts.items():
        if not isinstance(value, Mapping):
            lines.append(f"{indent}{name}: {value}")
        elif value:
            lines += [f"{indent}{name}", *_lines(value, indent + "  ")]
    return lines


@options.takes("command", _OPTIONS)
def config(command: str) -> None:
    """Print every setting with its default and what it does, as YAML for `--config` or a recipe.

    Lines that you do not change may be deleted. `--set NAME=VALUE` changes one setting by its
    dotted name, such as `--set sampling.samples=30`; options and `--set` win over the file.
    """
    from duallgd_cli.config import commented_yaml

    typer.echo(f"# Settings of duallgd {command}, with their defaults.")
    settings: object
    if command == "predict":
        from duallgd_cli.predict.settings import PredictSettings

        settings = PredictSettings()
    else:
        from duallgd_cli.train.settings import RecipeSettings

        settings = RecipeSettings(("spectra.mgf",), ("structures.tsv",))
    typer.echo(commented_yaml(settings), nl=False)


@options.takes("weights device threads")
def selftest(context: typer.Context, weights: str | None, **given: object) -> None:
    """Predict a few bundled spectra and check what must be true of the results.

    Takes 11 s of processor time on one core of an AMD EPYC, up to twice that on a slow or busy
    machine. The spectra are made from chemistry, not measured: this tests the installation, not the
    accuracy. Exits with 1 if a check fails.
    """
    started = time.perf_counter()
    with loading():
        from duallgd_cli.predict import api
        from duallgd_cli.predict import selftest as bundled

        model = api.load(weights, runtime=options.runtime_of(context))
    typer.echo(f"weights {model.name}, sha256 {model.sha256[:12]}")
    with interruptible("no check was finished; nothing is kept"):
        checks = bundled.selftest(model)
    for name, passed, found in checks:
        typer.echo(f"{'passed' if passed else 'FAILED'}  {name} ({found})")
    failed = sum(not passed for _, passed, _ in checks)
    seconds = time.perf_counter() - started
    typer.echo(f"{len(checks) - failed} of {len(checks)} checks passed in {seconds:.1f} s")
    if failed:
        raise typer.Exit(1)
