"""Predictions as pictures for a notebook: HTML with drawings in it, no script, no server."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from duallgd_cli.predict.prediction import Candidate, Prediction

_WIDTH, _HEIGHT = 220, 180  # of a drawing, pixels
_MOST: Final = 20  # spectra shown; a notebook is no place for thousands


class Html(str):
    """A piece of HTML that a notebook shows as such."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


def html(predictions: Iterable[Prediction], candidates: int) -> Html:
    """The first candidates of the first spectra, drawn, with formula and confidence.

    Args:
        predictions: In order.
        candidates: Drawn of each spectrum.
    """
    shown = list(predictions)
    pieces = [_section(one, one.candidates[:candidates]) for one in shown[:_MOST]]
    if len(shown) > _MOST:
        pieces.append(f"<p>and {len(shown) - _MOST} more spectra</p>")
    return Html("\n".join(pieces))


def _section(prediction: Prediction, candidates: Sequence[Candidate]) -> str:
    precursor = prediction.precursor_mz
    words = [
        f"<b>{escape(prediction.spectrum_id)}</b>",
        "" if precursor is None else f"m/z {precursor:.4f}",
        escape(prediction.formula),
        escape(prediction.adduct),
        "" if candidates else escape(f"{prediction.status}: {prediction.message}"),
    ]
    title = " · ".join(word for word in words if word)
    return f"<p>{title}</p>\n{_drawn(candidates) if candidates else ''}"


def _drawn(candidates: Sequence[Candidate]) -> str:
    """One SVG with the candidates side by side."""
    from rdkit import Chem  # its drawing code loads only here
    from rdkit.Chem.Draw import rdMolDraw2D

    canvas = rdMolDraw2D.MolDraw2DSVG(_WIDTH * len(candidates), _HEIGHT, _WIDTH, _HEIGHT)
    canvas.DrawMolecules(
        [Chem.MolFromSmiles(one.smiles) for one in candidates],
        legends=[f"{one.rank}: {one.confidence:.2g}" for one in candidates],
    )
    canvas.FinishDrawing()
    return str(canvas.GetDrawingText()).partition("?>")[2]
