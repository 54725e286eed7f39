"""Which end of a bond the bond stream's cross-attention prefers (the paper's section 4.5).

    python examples/studies/attention.py --data prepared/massbank --fold val -o attention/

Looks at molecules of a prepared folder ('duallgd data') with noise on their bonds, in our network
or in a converted one of the authors (`--weights`), and writes results.json, attention.md and both
figures of that section. examples/benchmarks/attention.md holds what it prints.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import command
import numpy as np
import torch
import typer
from asymmetry import (
    KnownMolecule,
    NoiseLevels,
    Selection,
    Studied,
    check,
    first_weights,
    known_molecules,
    load_studied,
)
from attention_plots import write_figures
from bond_statistics import (
    UNEQUAL,
    MoleculeAsymmetry,
    asymmetry,
    common_kinds,
    difference_of,
    mean_of_unequal,
    means,
    order_effect,
    summarise,
)
from rich.console import Console
from rich.progress import track
from rich.table import Table

from duallgd_cli import __version__
from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.chem.elements import BOND_NONE, HEAVY
from duallgd_cli.cli import options
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.report import finite, make_folder
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.runtime import Runtime

Kind = Mapping[str, Any]
COLUMNS: Final = (
    "bond", "Δχ", "bonds", "molecules", "mean log2 r", "median", "mean |log2 r|", "below 0",
    "p (signs)", "mean, unbonded pairs",
)  # fmt: skip
_FORMAT: Final = "duallgd-attention-1"
# The molecule of the paper's figure has so many heavy atoms.
_SHOWN_ATOMS: Final = 21
_DEFINITION: Final = (
    "log2 r, r = attention that a pair gives its less electronegative atom over attention to the "
    "more electronegative one (paper, section 4.5, equation 6): below 0 where the more "
    "electronegative atom gets more. Weights are averaged over heads, noise draws, layers and "
    "noise levels before the ratio is taken. Pauling's scale; equal ends are oriented by a coin. "
    "Intervals (95 %, bootstrap) and the two-sided sign test are by molecule."
)


def attention(
    data: command.Data,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for tables and figures.")],
    fold: Annotated[
        str, typer.Option(help="Fold to look at; by default val, or dev where there is none.")
    ] = "",
    limit: Annotated[
        int, typer.Option(min=1, help="Number of molecules to look at, always the same.")
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
        int, typer.Option(min=0, help="Seed of the noise, and of the coin for equal ends.")
    ] = 0,
    device: options.Device = "auto",
    plot: Annotated[bool, typer.Option(help="Draw both figures as PNG and SVG.")] = True,
) -> None:
    """Measure which end of a bond gets the bond's attention (the paper's section 4.5).

    Writes results.json, attention.md and two figures.
    """
    if condition not in ("true", "predicted"):
        raise UsageError(f"condition must be true or predicted, not {condition!r}")
    found = study(
        data,
        output,
        weights,
        Selection(fold, limit, peaks=condition == "predicted"),
        NoiseLevels(_numbers("--t", steps), draws, seed),
        Runtime.resolve(device, "float32", "off").device,
        layers=_numbers("--layers", layers) if layers else None,
        untrained=untrained,
        plot=plot,
    )
    title = f"Attention of bonds to their ends, {found['data']['molecules']} molecules"
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for kind in common_kinds(found):
        table.add_row(*cells(kind))
    command.show(table, found["definition"], *found["reading"])
    command.say(f"wrote {output}")


def _numbers(option: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"{option} takes numbers such as 1,2,3, not {text!r}")
    return tuple(dict.fromkeys(int(part) for part in parts))


def study(
    data: Path,
    output: Path,
    weights: Path | None,
    selection: Selection,
    noise: NoiseLevels,
    device: torch.device,
    *,
    layers: tuple[int, ...] | None = None,
    untrained: int = 3,
    plot: bool = True,
) -> dict[str, Any]:
    """Look at all molecules; write results.json, the tables and, if asked for, the figures.

    Args:
        data: Prepared folder.
        output: Folder to write to.
        weights: File or registered name; None takes the shipped ones.
        selection: Which molecules.
        noise: Noise levels.
        device: To run on.
        layers: From 1; None takes all.
        untrained: So many networks of the same shape before training, as a control.
        plot: Whether to draw the figures.

    Returns:
        Contents of results.json.

    Raises:
        DuallgdError: Data, weights, options or the output folder do not fit.
    """
    path = resolve_weights(weights)
    studied = load_studied(path, device, predicted=selection.peaks)
    chosen = check(studied, noise.steps, layers)
    molecules, fold = known_molecules(data, selection)
    known = [molecule for molecule in molecules if studied.knows(molecule)]
    if not known:
        raise UsageError(f"these weights know the elements of none of {len(molecules)} molecules")
    make_folder(output)
    seen = _look(studied, known, noise, chosen)
    controls = [
        _control(seed, _look(studied.untrained(seed), known, noise, chosen))
        for seed in range(untrained)
    ]
    names = [f"layer {layer + 1}" for layer in chosen] + [f"t = {t}" for t in noise.steps]
    found = {
        "format": _FORMAT,
        "duallgd": __version__,
        "definition": _DEFINITION,
        "weights": {"file": path.name, "sha256": sha256(path)},
        "data": {"folder": data.name, "fold": fold, "molecules": len(known)},
        "molecules_with_foreign_elements": len(molecules) - len(known),
        "condition": "predicted fingerprints" if selection.peaks else "true fingerprints",
        "noise": asdict(noise),
        "layers": [layer + 1 for layer in chosen],
        "kinds": summarise(seen, names),
        "order_effect": asdict(order_effect(seen)),
        "untrained": controls,
        "shown": _shown(known, seen),
    }
    found["reading"] = reading(found)
    text = json.dumps(finite(found), indent=1, ensure_ascii=False) + "\n"
    plain: dict[str, Any] = json.loads(text)
    write_atomically(output / "results.json", [text])
    write_atomically(output / "attention.md", markdown(plain))
    if plot:
        write_figures(output, plain)
    return plain


def _look(
    studied: Studied, known: Sequence[KnownMolecule], noise: NoiseLevels, layers: Sequence[int]
) -> list[MoleculeAsymmetry]:
    found = []
    for one in track(known, "molecules", console=Console(stderr=True), transient=True):
        first = first_weights(studied, one, noise, layers)
        found.append(asymmetry(one.key, one.atom_class, one.bond_class, first, noise.seed))
    return found


def _control(seed: int, seen: Sequence[MoleculeAsymmetry]) -> dict[str, Any]:
    found = means(seen)
    kinds = [estimate for name, estimate in found.items() if difference_of(name)]
    return {
        "seed": seed,
        "mean": asdict(found[UNEQUAL]) if UNEQUAL in found else None,
        "high": sum(estimate.high < 0 for estimate in kinds),
        "low": sum(estimate.low > 0 for estimate in kinds),
    }


def _shown(known: Sequence[KnownMolecule], seen: Sequence[MoleculeAsymmetry]) -> dict[str, Any]:
    """The molecule of the figure: of the paper's size, and its mean nearest to that of them all."""
    own_means = np.array([mean_of_unequal(one) for one in seen])
    away = np.abs(own_means - np.nanmean(own_means)) if np.isfinite(own_means).any() else own_means
    size = np.array([abs(len(one.atom_class) - _SHOWN_ATOMS) for one in known])
    place = int(np.lexsort((away, size))[0])  # NaN comes last
    molecule, own = known[place], seen[place]
    n = len(molecule.atom_class)
    pairs = zip(*np.triu_indices(n, 1), strict=True)
    columns = zip(pairs, molecule.bond_class, own.log_ratio[:, 0], own.by_row, strict=True)
    return {
        "molecule": molecule.key,
        "elements": [HEAVY[element] for element in molecule.atom_class],
        "places": molecule.places().tolist(),
        "bonds": [
            {
                "atoms": [int(low), int(high)],
                "class": int(bond),
                "log_ratio": float(ratio),
                "preferred": int(low if row > 0 else high),  # the end that gets more
            }
            for (low, high), bond, ratio, row in columns
            if bond != BOND_NONE
        ],
    }


def cells(kind: Kind) -> list[str]:
    """One kind of bond as texts under `COLUMNS`."""
    return [
        kind["kind"],
        "" if kind["difference"] is None else f"{kind['difference']:.2f}",
        str(kind["bonds"]),
        str(kind["molecules"]),
        interval(kind["mean"]),
        interval(kind["median"]),
        f"{kind['magnitude']:.2f}",
        f"{100 * kind['share_negative']:.0f} %",
        f"{kind['p_value']:.1g}",
        interval(kind["unbonded"]),
    ]


def reading(found: Mapping[str, Any]) -> list[str]:
    """What the numbers say, in sentences."""
    kinds = [kind for kind in common_kinds(found) if kind["difference"]]
    high, low, neither = (
        [kind["kind"] for kind in kinds if kind["verdict"] == verdict]
        for verdict in ("high", "low", "neither")
    )
    sentences = [
        f"Of {len(kinds)} kinds of bond with unequal ends, {len(high)} give the more "
        f"electronegative atom more attention ({_listed(high)}), {len(low)} the less "
        f"electronegative one ({_listed(low)}), {len(neither)} neither by their intervals "
        f"({_listed(neither)})."
    ]
    for kind in found["kinds"]:
        if kind["kind"] == UNEQUAL:
            views = ", ".join(f"{name}: {of['mean']:.2f}" for name, of in kind["by_view"].items())
            sentences += [
                f"All bonds with unequal ends: {interval(kind['mean'])}; pairs of such elements "
                f"without a bond: {interval(kind['unbonded'])}.",
                f"The same by layer and noise level: {views}.",
            ]
    sentences += [
        f"Untrained network, seed {control['seed']}: {interval(control['mean'])}; "
        f"{control['high']} kinds towards the more, {control['low']} towards the less "
        "electronegative atom."
        for control in found["untrained"]
    ]
    order = interval(found["order_effect"])
    return [*sentences, f"Equal ends, the first over the second in the atom list: {order}."]


def markdown(found: Mapping[str, Any]) -> Iterator[str]:
    """Lines of a document: definition, common kinds of bond, what they say."""
    data, noise = found["data"], found["noise"]
    yield f"{found['definition']}\n\n"
    yield (
        f"{data['molecules']} molecules of {data['folder']}, fold {data['fold']}, conditioned on "
        f"{found['condition']}; noise levels {', '.join(map(str, noise['steps']))}, "
        f"{noise['draws']} draws each; weights {found['weights']['file']} "
        f"({found['weights']['sha256'][:12]}).\n\n"
    )
    yield f"| {' | '.join(COLUMNS).replace('|log2 r|', '&#124;log2 r&#124;')} |\n"
    yield f"|{'---|' * len(COLUMNS)}\n"
    for kind in common_kinds(found):
        yield f"| {' | '.join(cells(kind))} |\n"
    yield "\n"
    yield from (f"* {sentence}\n" for sentence in found["reading"])


def interval(estimate: Mapping[str, float | None] | None) -> str:
    """A mean with its interval."""
    if estimate is None or estimate["mean"] is None:
        return "-"
    return f"{estimate['mean']:.2f} ({estimate['low']:.2f} to {estimate['high']:.2f})"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


if __name__ == "__main__":
    command.run(attention)
