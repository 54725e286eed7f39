"""Both figures of the paper's section 4.5, drawn from the contents of results.json alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bond_statistics import OVERALL, common_kinds

from duallgd_cli.chem.elements import BOND_AROMATIC, BOND_DOUBLE, BOND_TRIPLE
from duallgd_cli.evaluate.plots import save_drawings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNEQUAL_COLOUR: Final = "#0072B2"
_EQUAL_COLOUR: Final = "#999999"
_MEAN_COLOUR: Final = "#D55E00"
_SCALE: Final = "coolwarm_r"  # blue: above 0; red: below, towards the more electronegative atom
# How far the strokes of a bond lie off its line, in the drawing's units, and their style.
_STROKES: Final = {
    BOND_DOUBLE: ((-0.09, "-"), (0.09, "-")),
    BOND_TRIPLE: ((-0.15, "-"), (0.0, "-"), (0.15, "-")),
    BOND_AROMATIC: ((-0.07, "-"), (0.13, ":")),
}
_SINGLE: Final = ((0.0, "-"),)
_DOT_AT: Final = 0.28  # of the way from the preferred end


def write_figures(folder: Path, found: Mapping[str, Any]) -> None:
    """Draw both figures into a folder, from the contents of results.json."""
    drawings = {
        "asymmetry_molecule": lambda: _molecule(found["shown"]),
        "asymmetry_kinds": lambda: _kinds(found),
    }
    save_drawings(folder, drawings)


def _molecule(shown: Mapping[str, Any]) -> "Figure":
    """One molecule: colour is log2 of the asymmetry ratio, a dot marks the end that gets more."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.2, 4.4), layout="constrained")
    axis = figure.add_subplot()
    most = max([abs(bond["log_ratio"]) for bond in shown["bonds"]], default=1.0) or 1.0
    colours = ScalarMappable(Normalize(-most, most), _SCALE)
    for bond in shown["bonds"]:
        _draw_bond(axis, bond, shown["places"], colours.to_rgba(bond["log_ratio"]))
    for element, (x, y) in zip(shown["elements"], shown["places"], strict=True):
        if element != "C":
            box = {"boxstyle": "circle,pad=0.12", "color": "white"}
            axis.text(x, y, element, ha="center", va="center", bbox=box, zorder=3)
    axis.set_aspect("equal")
    axis.axis("off")
    axis.margins(0.06)
    figure.colorbar(
        colours,
        ax=axis,
        shrink=0.8,
        label="log2 r (red: more electronegative end; dot: favoured end)",
    )
    return figure


def _draw_bond(
    axis: "Axes",
    bond: Mapping[str, Any],
    places: list[list[float]],
    colour: Any,  # noqa: ANN401
) -> None:
    (x0, y0), (x1, y1) = (places[atom] for atom in bond["atoms"])
    dx, dy = x1 - x0, y1 - y0
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    for off, style in _STROKES.get(bond["class"], _SINGLE):
        ox, oy = -dy / length * off, dx / length * off
        axis.plot([x0 + ox, x1 + ox], [y0 + oy, y1 + oy], style, color=colour, lw=2.6, zorder=1)
    share = _DOT_AT if bond["preferred"] == bond["atoms"][0] else 1 - _DOT_AT
    axis.plot([x0 + share * dx], [y0 + share * dy], "o", color="black", ms=3, zorder=2)


def _kinds(found: Mapping[str, Any]) -> "Figure":
    """Every common kind of bond: 5 to 95 %, quartiles and median as a box, mean with interval."""
    from matplotlib.figure import Figure

    kinds = [kind for kind in common_kinds(found) if kind["kind"] not in OVERALL]
    kinds.sort(key=lambda kind: (kind["difference"] > 0, kind["mean"]["mean"]), reverse=True)
    figure = Figure(figsize=(6.2, 1.2 + 0.26 * len(kinds)), layout="constrained")
    axis = figure.add_subplot()
    names = ("whislo", "q1", "med", "q3", "whishi")
    boxes = [dict(zip(names, kind["quantiles"], strict=True)) for kind in kinds]
    if boxes:
        drawn = axis.bxp(boxes, orientation="horizontal", showfliers=False, patch_artist=True)
        for patch, kind in zip(drawn["boxes"], kinds, strict=True):
            patch.set_facecolor(_UNEQUAL_COLOUR if kind["difference"] else _EQUAL_COLOUR)
            patch.set_alpha(0.45)
            patch.set_hatch("////" if kind["difference"] else "")
    rows = range(1, len(kinds) + 1)
    mean = [kind["mean"]["mean"] for kind in kinds]
    below = [max(0.0, kind["mean"]["mean"] - kind["mean"]["low"]) for kind in kinds]
    above = [max(0.0, kind["mean"]["high"] - kind["mean"]["mean"]) for kind in kinds]
    axis.errorbar(mean, rows, xerr=(below, above), fmt="D", ms=3, capsize=2, color=_MEAN_COLOUR)
    axis.axvline(0, color="black", lw=0.7)
    labels = [f"{kind['kind']}  (n = {kind['bonds']})" for kind in kinds]
    axis.set_yticks(list(rows), labels)
    axis.invert_yaxis()
    axis.set_xlabel("log2 r; below 0: more attention to the more electronegative atom")
    return figure
