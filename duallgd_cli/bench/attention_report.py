"""Tables and sentences about attention asymmetry, from the contents of results.json alone."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from duallgd_cli.bench.asymmetry_classes import OVERALL, UNEQUAL, is_common

Kind = Mapping[str, Any]
COLUMNS: Final = (
    "bond", "Δχ", "bonds", "molecules", "mean log2 r", "median", "mean |log2 r|", "below 0",
    "p (signs)", "mean, unbonded pairs",
)  # fmt: skip


def shown_kinds(found: Mapping[str, Any]) -> list[Kind]:
    """Kinds of bond that are common enough for a table to be read or a figure."""
    return [
        kind
        for kind in found["kinds"]
        if kind["kind"] in OVERALL or is_common(kind["bonds"], kind["molecules"])
    ]


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
    kinds = [kind for kind in shown_kinds(found) if kind["difference"]]
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
    for kind in shown_kinds(found):
        yield f"| {' | '.join(cells(kind))} |\n"
    yield "\n"
    yield from (f"* {sentence}\n" for sentence in found["reading"])


def comma_separated(kinds: Sequence[Kind]) -> Iterator[str]:
    """Lines of a CSV table of all kinds of bond, with a column for every number."""
    for number, kind in enumerate(kinds):
        row = dict(_flat(kind))
        if not number:
            yield _line(list(row))
        yield _line(["" if value is None else value for value in row.values()])


def interval(estimate: Mapping[str, float | None] | None) -> str:
    """A mean with its interval."""
    if estimate is None or estimate["mean"] is None:
        return "-"
    return f"{estimate['mean']:.2f} ({estimate['low']:.2f} to {estimate['high']:.2f})"


def _flat(kind: Kind) -> Iterator[tuple[str, object]]:
    for name, value in kind.items():
        if name == "by_view":
            for view, estimate in value.items():
                yield from ((f"{view} {part}", number) for part, number in estimate.items())
        elif name == "quantiles":
            places = (5, 25, 50, 75, 95)
            yield from ((f"quantile {q}", number) for q, number in zip(places, value, strict=True))
        elif isinstance(value, Mapping):
            yield from ((f"{name} {part}", number) for part, number in value.items())
        else:
            yield name, value


def _line(values: Sequence[object]) -> str:
    buffer = io.StringIO()
    rounded = [f"{value:.6g}" if isinstance(value, float) else value for value in values]
    csv.writer(buffer, lineterminator="\n").writerow(rounded)
    return buffer.getvalue()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
