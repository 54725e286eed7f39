"""A walk from noise to molecules as a page with a slider, a strip of pictures or an animation.

Every step is drawn in the layout of the finished graph: solid lines are the bonds that the network
expects, as wide as they are probable; dashed ones those of the noisy graph it looks at. What is
drawn is a list of shapes, which become SVG or pixels.
"""

import math
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from duallgd_cli.chem.elements import SYMBOLS
from duallgd_cli.chem.hydrogens import Rejection
from duallgd_cli.chem.identity import unfold_bits
from duallgd_cli.chem.valence import pairs
from duallgd_cli.errors import UsageError
from duallgd_cli.files import replaced, write_atomically
from duallgd_cli.report import page
from duallgd_cli.report.contents import readable

if TYPE_CHECKING:  # what can be refused is, before torch is loaded
    from duallgd_cli.generator.trace import Trace

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
_FINER: Final = 4  # how much larger images are drawn than they will be, so that lines are smooth
_INK: Final = "#1c2329"
_BLUE: Final = "#1f62b5"
_GREY: Final = "#b4bac0"
_LINES: Final = (0, 1, 2, 3, 2)  # of each bond class; the second of an aromatic bond is dashed
_DASHED: Final = ("noisy", "expected aromatic")
# Of shapes by the class that a page's style sheet knows them by; elements stand by their symbols.
_COLOURS: Final = {
    **dict.fromkeys(("expected", "expected aromatic", "peak explained", "bit has"), _BLUE),
    **dict.fromkeys(("noisy", "peak", "bit"), _GREY),
    **{"axis": "#68737d", "dot": _INK, "disc": "#ffffff", "words": _INK},
    **{"N": "#2348c7", "O": "#c8201a", "S": "#8a6d00", "P": "#b45309"},
}
_OTHERS: Final = "#1b7f3b"
_STYLE: Final = """<style>
text { font: 11px sans-serif; fill: #1c2329; text-anchor: middle; dominant-baseline: central; }
.expected { stroke: #1f62b5; stroke-linecap: round; } .noisy { stroke: #b4bac0; }
.noisy, .aromatic { stroke-dasharray: 3 3; } .disc { fill: #fff; } .dot { fill: #1c2329; }
.bit { stroke: #c9ced3; } .bit.has { stroke: #1f62b5; } .peak { stroke: #b4bac0; }
.peak.explained { stroke: #1f62b5; } .axis { stroke: #68737d; }
</style>"""


class _Shape(NamedTuple):
    """A line between two points, else a disc, else a text, of a class of the style sheet.

    Attributes:
        name: Class, the symbol of an element, or ``words``.
        at: x and y of each point.
        size: Width of a line or radius of a disc; 0 for a text.
        words: A text, or what is said of a line under the pointer.
        opacity: Of a line.
    """

    name: str
    at: tuple[float, ...]
    size: float = 0.0
    words: str = ""
    opacity: float = 1.0

    def moved(self, x: float, y: float) -> "_Shape":
        """The same elsewhere."""
        points = np.add(np.reshape(self.at, (-1, 2)), (x, y))
        return self._replace(at=tuple(points.ravel().tolist()))

    def svg(self) -> str:
        """As an SVG element."""
        words = escape(self.words)
        if len(self.at) == 2 and self.size:
            x, y = self.at
            return f'<circle class="{self.name}" cx="{x:.1f}" cy="{y:.1f}" r="{self.size:g}"/>'
        if len(self.at) == 2:
            ink = "" if self.name == "words" else f' style="fill:{self.colour}"'
            x, y = self.at
            return f'<text class="{self.name}" x="{x:.1f}" y="{y:.1f}"{ink}>{words}</text>'
        ends = 'x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"'.format(*self.at)
        look = f'stroke-width="{self.size:.1f}" stroke-opacity="{self.opacity:.2f}"'
        title = f"<title>{words}</title>" if words else ""
        return f'<line class="{self.name}" {ends} {look}>{title}</line>'

    @property
    def colour(self) -> str:
        """Where no style sheet says which."""
        return _COLOURS.get(self.name, _OTHERS)

    def draw(self, pen: ImageDraw.ImageDraw) -> None:
        """As pixels, `_FINER` times as large."""
        ends = np.reshape(self.at, (-1, 2)) * _FINER
        if len(ends) == 1 and self.size:
            reach = self.size * _FINER
            pen.ellipse([*(ends[0] - reach), *(ends[0] + reach)], fill=self.colour)
        elif len(ends) == 1:
            font = ImageFont.load_default(12 * _FINER)
            pen.text(tuple(ends[0]), self.words, fill=self.colour, font=font, anchor="mm")
        else:
            dashes = math.dist(*ends) / (3 * _FINER) if self.name in _DASHED else 1
            shares = np.linspace(0, 1, max(1, round(dashes)) + 1)[:, None]
            points = ends[0] + (ends[1] - ends[0]) * shares
            base = (int(self.colour[place : place + 2], 16) for place in (1, 3, 5))
            colour = tuple(round(255 + (part - 255) * self.opacity) for part in base)
            for start, end in zip(points[::2], points[1::2], strict=False):
                width = max(1, round(self.size * _FINER))
                pen.line([*start, *end], fill=colour, width=width)


class _Picture(NamedTuple):
    """Shapes on a white sheet."""

    width: int
    height: int
    shapes: list[_Shape]

    def svg(self) -> str:
        """As an SVG file."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}">{_STYLE}<rect width="100%" '
            f'height="100%" fill="#fff"/>{_svg(self.shapes)}</svg>\n'
        )

    def image(self, times: int = 1) -> Image.Image:
        """As an image, so many times as large, in few colours."""
        drawn = Image.new("RGB", (self.width * _FINER, self.height * _FINER), "white")
        pen = ImageDraw.Draw(drawn)
        for shape in self.shapes:
            shape.draw(pen)
        size = (self.width * times, self.height * times)
        small = drawn.resize(size, Image.Resampling.LANCZOS)
        return small.quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


def _svg(shapes: Iterable[_Shape]) -> str:
    return "".join(shape.svg() for shape in shapes)


def write_trace(followed: "Trace", output: Path) -> None:
    """Write a walk; the ending decides how: .html, .svg, .png or .gif.

    Args:
        followed: The walk.
        output: File to write, whole or not at all.

    Raises:
        UsageError: Another ending, or the file cannot be written.
    """
    require_ending(output)
    match output.suffix.lower():
        case ".gif":
            _animate(followed, output)
        case ".png":
            with replaced(output) as temporary:
                _strip(followed).image(2).save(temporary, "PNG", optimize=True)
        case ".svg":
            write_atomically(output, [_strip(followed).svg()])
        case _:
            write_atomically(output, page("trace", _values(followed)))


def require_ending(output: Path) -> None:
    """Refuse a file of another kind, before anything is computed.

    Raises:
        UsageError: Its ending is not known.
    """
    if output.suffix.lower() not in _ENDINGS:
        raise UsageError(f"{output} must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}")


def _values(followed: "Trace") -> dict[str, Any]:
    """All that the template shows."""
    first = followed.annotated.hypothesis.feature.first
    steps = range(len(followed.steps))
    return {
        "title": readable(first.feature_id or first.spectrum_id),
        "file": readable(first.source.file),
        "mz": first.precursor_mz,
        "formula": str(followed.annotated.hypothesis.formula),
        "adduct": followed.annotated.hypothesis.adduct.name,
        "times": [step.t for step in followed.steps],
        "side": _SIDE,
        "samples": [
            {"frames": [_svg(_frame(followed, number, step)) for step in steps], "words": words}
            for number, words in enumerate(_words(followed))
        ],
        "spectrum": _svg(_spectrum(followed)),
        "fingerprint": _svg(_fingerprint(followed)),
    }


def _words(followed: "Trace") -> list[str]:
    """What became of each sample, in words."""
    found = []
    for result in followed.becomes:
        if isinstance(result, Rejection):
            found.append(f"no molecule: {result.reason}")
            continue
        after = " (after repair)" if result[0].is_repaired else ""
        found.append(f"{result[0].smiles}{after}")
    return found


def _frame(followed: "Trace", sample: int, step: int) -> Iterator[_Shape]:
    """The noisy and the expected bonds of a sample at a step, and its atoms."""
    here, at = followed.steps[step], _positions(followed, sample)
    low, high = pairs(len(at))
    noisy = here.bond_class[sample] > 0 if here.t else np.zeros(len(low), bool)
    for one, other in zip(low[noisy], high[noisy], strict=True):
        yield _Shape("noisy", (*at[one], *at[other]), 1.0, opacity=0.9)
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
            yield _Shape(name, ends, width, opacity=float(bonded[pair]))
    atoms = followed.annotated.hypothesis.formula.atom_class
    for symbol, (x, y) in zip((SYMBOLS[atom] for atom in atoms), at.tolist(), strict=True):
        if symbol == "C":
            yield _Shape("dot", (x, y), 2)
        else:
            yield from (_Shape("disc", (x, y), 7), _Shape(symbol, (x, y), words=symbol))


def _positions(followed: "Trace", sample: int) -> NDArray[np.float64]:
    """Where the atoms are drawn, in a square of the side `_SIDE`, (N, 2)."""
    at = followed.places[sample] * (1, -1)
    low, high = at.min(0), at.max(0)
    scale = min(30.0, (_SIDE - 2 * _MARGIN) / max(1e-6, float((high - low).max())))
    return np.asarray((at - (low + high) / 2) * scale + _SIDE / 2)


def _axis() -> _Shape:
    return _Shape("axis", (0, _FLOOR, _WIDE, _FLOOR), 1)


def _spectrum(followed: "Trace") -> Iterator[_Shape]:
    """The peaks of the feature, explained ones apart, on their axis."""
    feature = followed.annotated.hypothesis.feature
    mz = np.concatenate([one.mz for one in feature.spectra])
    last = max(float(mz.max()), feature.first.precursor_mz or 0.0) * 1.02
    peaks = followed.result.peaks
    explained = {(np.float32(one.mz), np.float32(one.intensity)): one.formula for one in peaks}
    yield _axis()
    for spectrum in feature.spectra:
        for at, intensity in zip(spectrum.mz, spectrum.intensity, strict=True):
            formula = explained.get((np.float32(at), np.float32(intensity)), "")
            x, top = at / last * _WIDE, _FLOOR - intensity * (_FLOOR - 14)
            name = "peak explained" if formula else "peak"
            yield _Shape(name, (x, _FLOOR, x, top), 1.5, f"m/z {at:.4f} {formula}")
    step = 10 ** math.floor(math.log10(last)) / (1 if last > 300 else 2)
    for tick in np.arange(step, last, step):
        yield _Shape("words", (tick / last * _WIDE, _TALL - 8), words=f"{tick:g}")


def _fingerprint(followed: "Trace") -> Iterator[_Shape]:
    """The likeliest bits of the predicted fingerprint, those of the finished molecules apart."""
    order = np.argsort(-followed.fingerprint, kind="stable")[:_BITS]
    rows = [one[0].bits for one in followed.becomes if not isinstance(one, Rejection)]
    has = unfold_bits(rows, len(followed.fingerprint)).mean(0) if rows else None
    yield _axis()
    for number, bit in enumerate(order):
        probability, share = float(followed.fingerprint[bit]), 0.0 if has is None else has[bit]
        words = f"bit {bit}: {probability:.2f}, in {share:.0%} of the molecules"
        x, top = (number + 0.4) * _WIDE / _BITS, _FLOOR - probability * (_FLOOR - 14)
        name = "bit has" if share >= 0.5 else "bit"
        yield _Shape(name, (x, _FLOOR, x, top), 0.8 * _WIDE / _BITS, words)


def _height(followed: "Trace") -> int:
    """How much of the height of a square the tallest drawing needs."""
    spans = (np.ptp(_positions(followed, sample)[:, 1]) for sample in range(len(followed.becomes)))
    return min(_SIDE, round(float(max(spans))) + 2 * _MARGIN)


def _strip(followed: "Trace") -> _Picture:
    """Samples in rows, steps evenly apart in columns, spectrum and fingerprint below."""
    words, tall, last = _words(followed), _height(followed), len(followed.steps) - 1
    steps = sorted({round(number * last / (_STRIP - 1)) for number in range(_STRIP)})
    width, row = len(steps) * _SIDE, tall + 22
    below, shapes = 30 + len(words) * row, []
    for column, step in enumerate(steps):
        text = f"t = {followed.steps[step].t}"
        shapes.append(_Shape("words", ((column + 0.5) * _SIDE, 12), words=text))
        for sample in range(len(words)):
            corner = (column * _SIDE, 24 + sample * row - (_SIDE - tall) / 2)
            shapes += [shape.moved(*corner) for shape in _frame(followed, sample, step)]
    for sample, text in enumerate(words):
        shapes.append(_Shape("words", (width / 2, 24 + sample * row + tall + 8), words=text))
    beside = ((1, _spectrum(followed), _SPECTRUM), (3, _fingerprint(followed), _FINGERPRINT))
    for quarter, drawn, text in beside:
        middle = quarter * width / 4
        shapes += [shape.moved(middle - _WIDE / 2, below) for shape in drawn]
        shapes.append(_Shape("words", (middle, below + _TALL + 10), words=text))
    return _Picture(width, below + _TALL + 26, shapes)


def _animate(followed: "Trace", output: Path) -> None:
    """A GIF: all samples side by side, a frame for every step, the last one longer."""
    samples, tall, frames = len(followed.becomes), _height(followed), []
    for number, step in enumerate(followed.steps):
        shapes = [
            shape.moved(sample * _SIDE, (tall - _SIDE) / 2)
            for sample in range(samples)
            for shape in _frame(followed, sample, number)
        ]
        shapes.append(_Shape("words", (34, tall + 12), words=f"t = {step.t}"))
        frames.append(_Picture(samples * _SIDE, tall + 24, shapes).image())
    times = [max(80, 4000 // len(frames))] * (len(frames) - 1) + [2500]
    with replaced(output) as temporary:
        frames[0].save(
            temporary, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0
        )
