"""Readable tables of an evaluation on the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.table import Table

from duallgd_cli.cli.display import results_console, table

_PERCENT: Final = frozenset({"accuracy", "formula_accuracy", "oracle_accuracy"})
_COUNTS: Final = frozenset({"candidates", "valid", "formula_exact", "distinct"})
_SHORT: Final = {
    "accuracy": "acc",
    "formula_accuracy": "formula",
    "mces": "MCES",
    "tanimoto": "Tan",
}
# Piped output has no width of its own; tables then take what they need.
_WIDTH_WITHOUT_TERMINAL: Final = 120


def show(found: Mapping[str, Any]) -> None:
    """Print the tables of a results.json.

    Rows of one kind that are identical share a line, as do groups that hold all spectra.
    """
    console = results_console(_WIDTH_WITHOUT_TERMINAL)
    track = "track not stated" if found["track"] == "not stated" else found["track"]
    for shown in (_metrics(found), *_remarks(found), *_tables(found)):
        if isinstance(shown, Table):
            shown.title = f"{shown.title}, {track}"
        console.print(shown)


def _tables(found: Mapping[str, Any]) -> Iterator[Table]:
    """What there is to show below the metrics of all spectra."""
    if "formula_accuracy" in found:
        title = "The true formula among the predicted ones"
        yield _groups(found["formula_accuracy"], found["spectra"] + 1, title)
    for part in found["parts"]:
        yield _metrics(part)
    if found["groups"]:
        title = "Groups of spectra, means over spectra"
        yield _groups(found["groups"], found["spectra"], title)


def _metrics(found: Mapping[str, Any]) -> Table:
    names: dict[tuple[str, str], list[str]] = {}
    for name, estimate in found["metrics"].items():
        kind = name.removeprefix("oracle_").partition("@")[0]
        mean, low, high = (_number(name, estimate[part]) for part in ("mean", "low", "high"))
        same = ("count" if kind in _COUNTS else kind, f"{mean} ({low} to {high})")
        names.setdefault(same, []).append(name.replace("_", " "))
    rows = ([" = ".join(alike), cell] for (_, cell), alike in names.items())
    shown = table(found["title"], ["metric", "mean (95 % interval)"], rows)
    shown.caption = f"{found['spectra']} spectra of {found['molecules']} molecules"
    return shown


def _remarks(found: Mapping[str, Any]) -> list[str]:
    sentences = [f"Track: {found['track']}."]
    statuses = ", ".join(f"{count} {status}" for status, count in found["statuses"].items())
    sentences.append(f"Predictions: {statuses}; a spectrum without candidates counts as wrong.")
    for name, work in found["mces_work"].items():
        sentences.append(
            f"{name}: {work['pairs']} pairs solved, {work['timeouts']} of them hit the limit of "
            f"{found['scoring']['mces_limit_s']:g} s and count as the worst they may be."
        )
    shares = found["candidates"]
    sentences.append(
        f"Candidates: {shares['total']:.0f}, of them {100 * shares['valid_share']:.1f}% valid, "
        f"{100 * shares['formula_exact_share']:.1f}% of the true formula, "
        f"{100 * shares['distinct_share']:.1f}% distinct."
    )
    samples = found["prediction"].get("samples")
    if samples:
        sentences.append(
            f"Samples: {samples['drawn']} drawn, {100 * samples['valid_share']:.1f}% molecules as "
            f"drawn and {100 * samples['repaired_share']:.1f}% after repair, all of the formula; "
            f"{samples['distinct_per_spectrum']:.1f} distinct and "
            f"{samples['seconds_per_spectrum']:.2f} s a spectrum."
        )
    return sentences + list(found["remarks"])


def _groups(groups: Sequence[Mapping[str, Any]], everything: int, title: str) -> Table:
    """A line a group; those of so many spectra as `everything` share the caption."""
    names = list(groups[0]["estimates"])
    parts = (name.partition("@") for name in names)
    shown = table(title, ["group", "n", *(f"{_SHORT.get(a, a)}@{k}" for a, _, k in parts)], ())
    whole = [group for group in groups if group["spectra"] == everything]
    if whole:
        alike = (f"{group['by'].replace('_', ' ')} {group['label']}" for group in whole)
        shown.caption = f"All spectra are of one group of {', '.join(alike)}."
    previous = ""
    for group in groups:
        if group in whole:
            continue
        if group["by"] != previous:
            shown.add_section()
            shown.add_row(group["by"].replace("_", " "), style="bold")
            previous = group["by"]
        means = [_number(name, group["estimates"][name]["mean"]) for name in names]
        shown.add_row(f"  {group['label']}", str(group["spectra"]), *means)
    return shown


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name.partition("@")[0] in _PERCENT:
        return f"{100 * value:.1f}%"
    return f"{value:.3f}" if "tanimoto" in name else f"{value:.2f}"
