"""A walk from noise to molecules as a page with a slider, a strip of pictures or an animation.

Every step is drawn in the layout of the finished graph: solid lines are the bonds that the network
expects, as wide as they are probable; dashed ones those of the noisy graph it looks at.
"""

import math
from collections.abc import Iterator, Sequence
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
_WIDE: Final = 460  # of spectrum and fingerprint
_TALL: Final = 150
_FLOOR: Final = 130  # where 0 is
_ENDINGS: Final = (".html", ".svg", ".png", ".gif")
_SPECTRUM: Final = "Spectrum (m/z); blue peaks are explained by the formula"
_FINGERPRINT: Final = "Predicted fingerprint, likeliest bits; blue ones are in most molecules"
_FINER: Final = 4  # how much larger images are drawn
_INK: Final = "#1c2329"
_BLUE: Final = "#1f62b5"
_GREY: Final = "#b4bac0"
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


class _Bar(NamedTuple):
    """A peak or a bit: where it stands, how high it reaches, whether it is explained, in words."""

    x: float
    top: float
    is_met: bool
    words: str


class _Line(NamedTuple):
    """A line of a drawing: its ends (x1, y1, x2, y2), width, opacity and what it stands for."""

    ends: tuple[float, ...]
    width: float
    opacity: float
    name: str


def write_trace(followed: Trace, output: Path) -> None:
    """Write a walk; the ending decides how: .html, .svg, .png or .gif.

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
        case ".png":
            with replaced(output) as temporary:
                _strip(followed).save(temporary, "PNG", optimize=True)
        case ".svg":
            write_atomically(output, [_picture(followed)])
        case _:
            write_atomically(output, page("trace", _values(followed)))


def check(output: Path) -> None:
    """Refuse a file that could not be written, before anything is computed.

    Raises:
        UsageError: Its ending is not known, or it cannot be written.
    """
    if output.suffix.lower() not in _ENDINGS:
        raise UsageError(f"{output} must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}")
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


def _peaks(followed: Trace) -> Iterator[_Bar]:
    """The peaks of the feature, explained ones apart."""
    peaks = followed.case.outcomes[0].peaks
    explained = {(np.float32(one.mz), np.float32(one.intensity)): one.formula for one in peaks}
    for spectrum in followed.annotated.hypothesis.feature.spectra:
        for at, intensity in zip(spectrum.mz, spectrum.intensity, strict=True):
            formula = explained.get((np.float32(at), np.float32(intensity)), "")
            x, top = at / _last(followed) * _WIDE, _FLOOR - intensity * (_FLOOR - 14)
            yield _Bar(x, top, bool(formula), f"m/z {at:.4f} {formula}")


def _last(followed: Trace) -> float:
    """Where the axis of the spectrum ends."""
    feature = followed.annotated.hypothesis.feature
    mz = np.concatenate([one.mz for one in feature.spectra])
    return max(float(mz.max()), feature.first.precursor_mz or 0.0) * 1.02


def _ticks(followed: Trace) -> list[tuple[float, str]]:
    """Places on the axis of the spectrum, and what is written there."""
    last = _last(followed)
    step = 10 ** math.floor(math.log10(last)) / (1 if last > 300 else 2)
    return [(tick / last * _WIDE, f"{tick:g}") for tick in np.arange(step, last, step)]


def _bits(followed: Trace) -> Iterator[_Bar]:
    """The likeliest bits of the predicted fingerprint, those of the finished molecules apart."""
    order = np.argsort(-followed.fingerprint, kind="stable")[:_BITS]
    rows = [one.molecules[0].bits for one in followed.becomes if one.molecules]
    has = unfold_bits(rows, len(followed.fingerprint)).mean(0) if rows else None
    for number, bit in enumerate(order):
        probability, share = float(followed.fingerprint[bit]), 0.0 if has is None else has[bit]
        words = f"bit {bit}: {probability:.2f}, in {share:.0%} of the molecules"
        top = _FLOOR - probability * (_FLOOR - 14)
        yield _Bar(number * _WIDE / _BITS, top, bool(share >= 0.5), words)


def _spectrum(followed: Trace) -> str:
    """The spectrum as SVG elements."""
    axis = f'<line class="axis" x1="0" y1="{_FLOOR}" x2="{_WIDE}" y2="{_FLOOR}"/>'
    peaks = (
        f'<line class="peak{" explained" * one.is_met}" x1="{one.x:.1f}" x2="{one.x:.1f}" '
        f'y1="{_FLOOR}" y2="{one.top:.1f}"><title>{one.words}</title></line>'
        for one in _peaks(followed)
    )
    ticks = (f'<text x="{x:.1f}" y="{_TALL - 8}">{words}</text>' for x, words in _ticks(followed))
    return "".join((axis, *peaks, *ticks))


def _fingerprint(followed: Trace) -> str:
    """The predicted fingerprint as SVG elements."""
    axis = f'<line class="axis" x1="0" y1="{_FLOOR}" x2="{_WIDE}" y2="{_FLOOR}"/>'
    bits = (
        f'<rect class="bit{" has" * one.is_met}" x="{one.x:.1f}" y="{one.top:.1f}" '
        f'width="{0.8 * _WIDE / _BITS:.1f}" height="{_FLOOR - one.top:.1f}">'
        f"<title>{one.words}</title></rect>"
        for one in _bits(followed)
    )
    return "".join((axis, *bits))


def _chosen(followed: Trace, most: int) -> list[int]:
    """Steps evenly apart, first and last included."""
    last = len(followed.steps) - 1
    return sorted({round(number * last / max(1, most - 1)) for number in range(most)})


def _height(followed: Trace) -> int:
    """How much of the height of a square the tallest drawing needs."""
    spans = (np.ptp(_places(followed, sample)[:, 1]) for sample in range(len(followed.becomes)))
    return min(_SIDE, round(float(max(spans))) + 2 * _MARGIN)


def _picture(followed: Trace) -> str:
    """All samples in rows, chosen steps in columns, spectrum and fingerprint below, as one SVG."""
    steps, words, tall = _chosen(followed, _STRIP), _words(followed), _height(followed)
    width, row = len(steps) * _SIDE, tall + 22
    below = 30 + len(words) * row
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {below + _TALL + 26}" '
        f'width="{width}" height="{below + _TALL + 26}">{_STYLE}<rect width="100%" height="100%" '
        'fill="#fff"/>'
    ]
    for column, step in enumerate(steps):
        text = f"t = {followed.steps[step].t}"
        pieces.append(f'<text x="{(column + 0.5) * _SIDE}" y="12">{text}</text>')
        pieces += [
            f'<g transform="translate({column * _SIDE} {24 + sample * row - (_SIDE - tall) / 2})">'
            f"{_frame(followed, sample, step)}</g>"
            for sample in range(len(words))
        ]
    pieces += [
        f'<text x="{width / 2}" y="{24 + sample * row + tall + 8}">{escape(text)}</text>'
        for sample, text in enumerate(words)
    ]
    beside = ((_spectrum(followed), _SPECTRUM), (_fingerprint(followed), _FINGERPRINT))
    for left, (drawn, text) in zip(_lefts(width), beside, strict=True):
        pieces.append(
            f'<g transform="translate({left} {below})">{drawn}'
            f'<text x="{_WIDE / 2}" y="{_TALL + 10}">{text}</text></g>'
        )
    return "".join(pieces) + "</svg>\n"


def _lefts(width: int) -> tuple[float, float]:
    """Where spectrum and fingerprint begin."""
    return width / 4 - _WIDE / 2, 3 * width / 4 - _WIDE / 2


class _Sheet:
    """A picture drawn larger than it will be, so that its lines are smooth."""

    def __init__(self, width: int, height: int) -> None:
        self._image = Image.new("RGB", (width * _FINER, height * _FINER), "white")
        self._pen = ImageDraw.Draw(self._image)

    def line(self, ends: Sequence[float], width: float, colour: str, dash: float = 0) -> None:
        """Draw a line, in pieces of the length of a dash if there is one."""
        start, end = np.array(ends[:2]), np.array(ends[2:])
        pieces = max(1, round(float(np.hypot(*(end - start))) / dash)) if dash else 1
        for piece in range(0, pieces, 2):
            both = [start + (end - start) * share / pieces for share in (piece, piece + 1)]
            where = tuple((np.concatenate(both) * _FINER).tolist())
            self._pen.line(where, fill=colour, width=max(1, round(width * _FINER)))

    def disc(self, x: float, y: float, radius: float, colour: str) -> None:
        """Draw a filled circle."""
        box = np.array([x - radius, y - radius, x + radius, y + radius]) * _FINER
        self._pen.ellipse(box.tolist(), fill=colour)

    def text(self, x: float, y: float, text: str, colour: str = _INK, anchor: str = "mm") -> None:
        """Write a text."""
        font = ImageFont.load_default(12 * _FINER)
        self._pen.text((x * _FINER, y * _FINER), text, fill=colour, font=font, anchor=anchor)

    def image(self, times: int = 1) -> Image.Image:
        """The picture, so many times as large as it was described, in few colours."""
        size = (self._image.width * times // _FINER, self._image.height * times // _FINER)
        small = self._image.resize(size, Image.Resampling.LANCZOS)
        return small.quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


def _draw(sheet: _Sheet, followed: Trace, number: tuple[int, int], at: tuple[float, float]) -> None:
    """Draw a sample at a step; `at` is where the corner of its square lies."""
    sample, step = number
    for one in _lines(followed, sample, step):
        base = (180, 186, 192) if one.name == "noisy" else (31, 98, 181)
        mixed = (round(255 + (part - 255) * one.opacity) for part in base)
        ends = np.array(one.ends) + np.tile(at, 2)
        dash = 3 if one.name in ("noisy", "expected aromatic") else 0
        sheet.line(ends.tolist(), one.width, "#{:02x}{:02x}{:02x}".format(*mixed), dash)
    for symbol, place in zip(_symbols(followed), _places(followed, sample), strict=True):
        x, y = (place + at).tolist()
        if symbol == "C":
            sheet.disc(x, y, 2, _INK)
            continue
        sheet.disc(x, y, 7, "white")
        sheet.text(x, y, symbol, _COLOURS.get(symbol, _OTHERS))


def _strip(followed: Trace) -> Image.Image:
    """What `_picture` shows, as an image for slides, twice as large."""
    steps, words, tall = _chosen(followed, _STRIP), _words(followed), _height(followed)
    width, row = len(steps) * _SIDE, tall + 22
    below = 30 + len(words) * row
    sheet = _Sheet(width, below + _TALL + 26)
    for column, step in enumerate(steps):
        sheet.text((column + 0.5) * _SIDE, 12, f"t = {followed.steps[step].t}")
        for sample in range(len(words)):
            corner = (column * _SIDE, 24 + sample * row - (_SIDE - tall) / 2)
            _draw(sheet, followed, (sample, step), corner)
    for sample, text in enumerate(words):
        sheet.text(width / 2, 24 + sample * row + tall + 8, text)
    beside = ((_peaks(followed), 1.5, _SPECTRUM), (_bits(followed), 3.0, _FINGERPRINT))
    for left, (bars, wide, text) in zip(_lefts(width), beside, strict=True):
        sheet.line((left, below + _FLOOR, left + _WIDE, below + _FLOOR), 1, _INK)
        for one in bars:
            ends = (left + one.x, below + _FLOOR, left + one.x, below + one.top)
            sheet.line(ends, wide, _BLUE if one.is_met else _GREY)
        sheet.text(left + _WIDE / 2, below + _TALL + 10, text)
    for x, tick in _ticks(followed):
        sheet.text(_lefts(width)[0] + x, below + _TALL - 8, tick)
    return sheet.image(2)


def _animate(followed: Trace, output: Path) -> None:
    """A GIF: all samples side by side, a frame for every step, the last one longer."""
    tall, frames = _height(followed), []
    for number, step in enumerate(followed.steps):
        sheet = _Sheet(len(followed.becomes) * _SIDE, tall + 24)
        for sample in range(len(followed.becomes)):
            _draw(sheet, followed, (sample, number), (sample * _SIDE, (tall - _SIDE) / 2))
        sheet.text(8, tall + 12, f"t = {step.t}", anchor="lm")
        frames.append(sheet.image())
    times = [max(80, 4000 // len(frames))] * (len(frames) - 1) + [2500]
    with replaced(output) as temporary:
        frames[0].save(
            temporary, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0
        )
