"""A walk from noise to molecules as a page with a slider, a picture or an animation.

Every step is drawn in the layout of the finished graph: solid lines are the bonds that the network
expects, as wide as they are probable; dashed ones those of the noisy graph it looks at.
"""

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from duallgd_cli.chem.elements import SYMBOLS
from duallgd_cli.chem.identity import unfold_bits
from duallgd_cli.chem.valence import pairs
from duallgd_cli.errors import UsageError
from duallgd_cli.files import replaced, write_atomically
from duallgd_cli.generator.trace import Trace
from duallgd_cli.report.contents import readable
from duallgd_cli.report.page import page
from duallgd_cli.writers.formats import check_writable

_SIDE: Final = 260
_MARGIN: Final = 16
_LEAST: Final = 0.06  # bonds less probable are not drawn
_WIDEST: Final = 6.0
_STRIP: Final = 6  # steps of a picture
_BITS: Final = 120
_LINES: Final = (0, 1, 2, 3, 2)  # of each bond class; the second of an aromatic bond is dashed
_COLOURS: Final = {"C": "#1c2329", "N": "#2348c7", "O": "#c8201a", "S": "#8a6d00", "P": "#b45309"}
_OTHERS: Final = "#1b7f3b"
_STYLE: Final = """<style>
text { font: 11px sans-serif; fill: #1c2329; text-anchor: middle; dominant-baseline: central; }
.expected { stroke: #1f62b5; stroke-linecap: round; } .noisy { stroke: #b4bac0; }
.noisy, .aromatic { stroke-dasharray: 3 3; } .disc { fill: #fff; } .dot { fill: #1c2329; }
.bit { fill: #c9ced3; } .bit.has { fill: #1f62b5; } .peak { stroke: #b4bac0; stroke-width: 1.5; }
.peak.explained { stroke: #1f62b5; } .axis { stroke: #68737d; }
</style>"""


class _Line(NamedTuple):
    """A line of a drawing: its ends (x1, y1, x2, y2), width, opacity and what it stands for."""

    ends: tuple[float, ...]
    width: float
    opacity: float
    name: str


def write_trace(followed: Trace, output: Path) -> None:
    """Write a walk; the ending decides how: .html, .svg or .gif.

    Args:
        followed: The walk.
        output: File to write, whole or not at all.

    Raises:
        UsageError: Another ending, or the file cannot be written.
    """
    check(output)
    match output.suffix.lower():
        case ".gif":
            _animate(followed, output)
        case ".svg":
            write_atomically(output, [_picture(followed)])
        case _:
            write_atomically(output, page("trace", _values(followed)))


def check(output: Path) -> None:
    """Refuse a file that could not be written, before anything is computed.

    Raises:
        UsageError: Its ending is not known, or it cannot be written.
    """
    if output.suffix.lower() not in (".html", ".svg", ".gif"):
        raise UsageError(f"{output} must end in .html, .svg or .gif")
    check_writable(str(output))


def _values(followed: Trace) -> dict[str, Any]:
    """All that the template shows."""
    first = followed.annotated.hypothesis.feature.first
    return {
        "title": readable(first.feature_id or first.spectrum_id),
        "file": readable(first.source.file),
        "mz": first.precursor_mz,
        "formula": str(followed.annotated.hypothesis.formula),
        "adduct": followed.annotated.hypothesis.adduct.name,
        "times": [step.t for step in followed.steps],
        "side": _SIDE,
        "samples": [
            {
                "frames": [_frame(followed, number, step) for step in range(len(followed.steps))],
                "words": words,
            }
            for number, words in enumerate(_words(followed))
        ],
        "spectrum": _spectrum(followed),
        "fingerprint": _fingerprint(followed),
    }


def _words(followed: Trace) -> list[str]:
    """What became of each sample, in words."""
    found = []
    for result in followed.becomes:
        if not result.molecules:
            found.append(f"no molecule: {result.reason}")
            continue
        after = " (after repair)" if result.repaired else ""
        found.append(f"{result.molecules[0].smiles}{after}")
    return found


def _lines(followed: Trace, sample: int, step: int) -> Iterator[_Line]:
    """The noisy and the expected bonds of a sample at a step."""
    here = followed.steps[step]
    at = _places(followed, sample)
    low, high = pairs(len(at))
    noisy = here.bond_class[sample] > 0 if here.t else np.zeros(len(low), bool)
    for one, other in zip(low[noisy], high[noisy], strict=True):
        yield _Line((*at[one], *at[other]), 1.0, 0.9, "noisy")
    bonded = 1 - here.bond_prob[sample][:, 0]
    classes = here.bond_prob[sample][:, 1:].argmax(-1) + 1
    for pair in np.flatnonzero(bonded >= _LEAST):
        start, end = at[low[pair]], at[high[pair]]
        across = np.array([start[1] - end[1], end[0] - start[0]])
        across = across / max(1e-6, float(np.hypot(*across)))
        count = _LINES[classes[pair]]
        width = float(bonded[pair]) * _WIDEST / (2 * count - 1)
        for number in range(count):
            aside = across * (number - (count - 1) / 2) * (width + 2.0)
            name = "expected aromatic" if classes[pair] == 4 and number else "expected"
            ends = (*(start + aside), *(end + aside))
            yield _Line(ends, width, float(bonded[pair]), name)


def _places(followed: Trace, sample: int) -> NDArray[np.float64]:
    """Places in a square of the side `_SIDE`, (N, 2)."""
    at = followed.places[sample] * (1, -1)
    low, high = at.min(0), at.max(0)
    scale = min(30.0, (_SIDE - 2 * _MARGIN) / max(1e-6, float((high - low).max())))
    return np.asarray((at - (low + high) / 2) * scale + _SIDE / 2)


def _symbols(followed: Trace) -> list[str]:
    return [SYMBOLS[atom] for atom in followed.annotated.hypothesis.formula.atom_class]


def _frame(followed: Trace, sample: int, step: int) -> str:
    """A step of a sample as SVG elements; it holds numbers and element symbols alone."""
    lines = (
        '<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" '.format(
            one.name, *one.ends
        )
        + f'stroke-width="{one.width:.1f}" stroke-opacity="{one.opacity:.2f}"/>'
        for one in _lines(followed, sample, step)
    )
    return "".join(lines) + _atoms(followed, sample)


def _atoms(followed: Trace, sample: int) -> str:
    found = []
    for symbol, (x, y) in zip(_symbols(followed), _places(followed, sample), strict=True):
        if symbol == "C":
            found.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2"/>')
            continue
        colour = _COLOURS.get(symbol, _OTHERS)
        found.append(
            f'<circle class="disc" cx="{x:.1f}" cy="{y:.1f}" r="7"/>'
            f'<text class="{symbol}" x="{x:.1f}" y="{y:.1f}" style="fill:{colour}">{symbol}</text>'
        )
    return "".join(found)


def _spectrum(followed: Trace, width: int = 460, height: int = 150) -> str:
    """The peaks of the feature as SVG elements, explained ones apart."""
    feature = followed.annotated.hypothesis.feature
    peaks = followed.case.outcomes[0].peaks
    explained = {(np.float32(one.mz), np.float32(one.intensity)): one.formula for one in peaks}
    mz = np.concatenate([one.mz for one in feature.spectra])
    most = max(float(mz.max()), feature.first.precursor_mz or 0.0) * 1.02
    found = [f'<line class="axis" x1="0" y1="{height - 20}" x2="{width}" y2="{height - 20}"/>']
    for spectrum in feature.spectra:
        for at, intensity in zip(spectrum.mz, spectrum.intensity, strict=True):
            x, top = at / most * width, height - 20 - intensity * (height - 34)
            formula = explained.get((np.float32(at), np.float32(intensity)), "")
            found.append(
                f'<line class="peak{" explained" * bool(formula)}" x1="{x:.1f}" x2="{x:.1f}" '
                f'y1="{height - 20}" y2="{top:.1f}"><title>m/z {at:.4f} {formula}</title></line>'
            )
    step = 10 ** math.floor(math.log10(most)) / (1 if most > 300 else 2)
    ticks = np.arange(step, most, step)
    found += [
        f'<text x="{tick / most * width:.1f}" y="{height - 8}">{tick:g}</text>' for tick in ticks
    ]
    return "".join(found)


def _fingerprint(followed: Trace, width: int = 460, height: int = 150) -> str:
    """The likeliest bits of the predicted fingerprint, those of the finished molecules apart."""
    order = np.argsort(-followed.fingerprint, kind="stable")[:_BITS]
    rows = [one.molecules[0].bits for one in followed.becomes if one.molecules]
    has = unfold_bits(rows, len(followed.fingerprint)).mean(0) if rows else None
    each = width / max(1, len(order))
    found = [f'<line class="axis" x1="0" y1="{height - 20}" x2="{width}" y2="{height - 20}"/>']
    for number, bit in enumerate(order):
        tall = float(followed.fingerprint[bit]) * (height - 34)
        share = 0.0 if has is None else float(has[bit])
        found.append(
            f'<rect class="bit{" has" * (share >= 0.5)}" x="{number * each:.1f}" '
            f'y="{height - 20 - tall:.1f}" width="{each * 0.8:.1f}" height="{tall:.1f}">'
            f"<title>bit {bit}: {followed.fingerprint[bit]:.2f}, in {share:.0%} of the molecules"
            "</title></rect>"
        )
    return "".join(found)


def _chosen(followed: Trace, most: int) -> list[int]:
    """Steps evenly apart, first and last included."""
    last = len(followed.steps) - 1
    return sorted({round(number * last / max(1, most - 1)) for number in range(most)})


def _picture(followed: Trace) -> str:
    """All samples in rows, chosen steps in columns, spectrum and fingerprint below, as one SVG."""
    steps, words = _chosen(followed, _STRIP), _words(followed)
    width, row = len(steps) * _SIDE, _SIDE + 22
    below = 24 + len(words) * row
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {below + 175}" '
        f'width="{width}" height="{below + 175}">{_STYLE}<rect width="100%" height="100%" '
        'fill="#fff"/>'
    ]
    for column, step in enumerate(steps):
        text = f"t = {followed.steps[step].t}"
        pieces.append(f'<text x="{(column + 0.5) * _SIDE}" y="12">{text}</text>')
        pieces += [
            f'<g transform="translate({column * _SIDE} {24 + sample * row})">'
            f"{_frame(followed, sample, step)}</g>"
            for sample in range(len(words))
        ]
    pieces += [
        f'<text x="{width / 2}" y="{24 + sample * row + _SIDE + 8}">{escape(text)}</text>'
        for sample, text in enumerate(words)
    ]
    for left, drawn in ((30, _spectrum(followed)), (width / 2 + 30, _fingerprint(followed))):
        pieces.append(f'<g transform="translate({left} {below})">{drawn}</g>')
    return "".join(pieces) + "</svg>\n"


def _animate(followed: Trace, output: Path) -> None:
    """A GIF: all samples side by side, a frame for every step, the last one longer."""
    frames = [_image(followed, step) for step in range(len(followed.steps))]
    times = [max(80, 4000 // len(frames))] * (len(frames) - 1) + [2500]
    with replaced(output) as temporary:
        frames[0].save(
            temporary, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0
        )


def _image(followed: Trace, step: int) -> Image.Image:
    samples = len(followed.becomes)
    image = Image.new("RGB", (samples * _SIDE, _SIDE + 24), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    for sample in range(samples):
        left = sample * _SIDE
        for one in _lines(followed, sample, step):
            strength = one.opacity
            base = (180, 186, 192) if one.name == "noisy" else (31, 98, 181)
            colour = tuple(round(255 + (part - 255) * strength) for part in base)
            x1, y1, x2, y2 = one.ends
            ends = (x1 + left, y1, x2 + left, y2)
            pen.line(ends, fill=colour, width=max(1, round(one.width)))
        for symbol, (x, y) in zip(_symbols(followed), _places(followed, sample), strict=True):
            if symbol == "C":
                pen.ellipse((x + left - 2, y - 2, x + left + 2, y + 2), fill="#1c2329")
                continue
            pen.ellipse((x + left - 7, y - 7, x + left + 7, y + 7), fill="white")
            colour_name = _COLOURS.get(symbol, _OTHERS)
            pen.text((x + left, y), symbol, fill=colour_name, font=font, anchor="mm")
    pen.text((8, _SIDE + 6), f"t = {followed.steps[step].t}", fill="#1c2329", font=font)
    return image
