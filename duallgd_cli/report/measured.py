"""The spectra of a finished run, read again: what the journal does not hold of them."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli import config
from duallgd_cli.errors import UnreadableError, printable
from duallgd_cli.results import Results, references
from duallgd_cli.spectra.cleaning import CleaningSettings, clean
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.run import FeatureSettings
from duallgd_cli.spectra.types import IsotopePattern, Source

LONGEST_TEXT: Final = 300
_LONGEST_LABEL: Final = 40
Key = tuple[float, float]


def readable(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text from a file on one line, without what steers a reader's eye.

    Args:
        text: Anything.
        longest: Characters kept; what is cut off is told by an ellipsis.
    """
    return printable(text[:longest]) + ("…" if len(text) > longest else "")


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredPeaks:
    """A cleaned spectrum: what it is called, m/z and intensity, (P,) each."""

    label: str
    mz: NDArray[np.float64]
    intensity: NDArray[np.float64]

    def identities(self) -> list[Key]:
        """What the journal knows each peak by: single precision."""
        return [key_of(*peak) for peak in zip(self.mz, self.intensity, strict=True)]

    def values(self) -> dict[str, Any]:
        """For the page."""
        mz, intensity = self.mz.round(5).tolist(), self.intensity.round(5).tolist()
        return {"label": self.label, "mz": mz, "intensity": intensity}


def key_of(mz: float, intensity: float) -> Key:
    """A peak by the single precision that explanations are kept in."""
    return float(np.float32(mz)), float(np.float32(intensity))


class Measurement(NamedTuple):
    """Of one feature, as far as its input is still there.

    Attributes:
        spectra: With peaks.
        intensity: Of the precursor.
        isotopes: Of its ion, as MS1 shows them.
    """

    spectra: Sequence[MeasuredPeaks] = ()
    intensity: float | None = None
    isotopes: IsotopePattern | None = None

    def shown(self, results: Results) -> Sequence[MeasuredPeaks]:
        """The spectra, or explained peaks alone where the input is gone, and the label says so."""
        explained = {key_of(p.mz, p.intensity): p for result in results for p in result.peaks}
        measured = {key for spectrum in self.spectra for key in spectrum.identities()}
        if self.spectra and measured >= explained.keys():
            return self.spectra
        peaks = sorted((peak.mz, peak.intensity) for peak in explained.values())
        columns = map(np.array, zip(*peaks, strict=True))
        return [MeasuredPeaks("explained peaks only", *columns)] if peaks else []


class Measured:
    """Cleaned spectra of features, read on as they are asked for: what is held is asked for later.

    Features are those of the run, so a consensus spectrum is what it was when it was explained.

    Attributes:
        gone: Inputs that are no longer there.
        changed: Inputs that are no longer what they were.
    """

    def __init__(self, inputs: Iterable[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
        self.gone, self.changed = list[str](), list[str]()
        same = list[str]()
        for entry in inputs:
            name = str(entry["name"])
            try:
                is_same = Path(name).is_file() and Inputs((name,)).identity() == (entry,)
            except UnreadableError:
                is_same = False
            kind = same if is_same else self.changed if Path(name).exists() else self.gone
            kind.append(name if is_same else readable(name))
        self._names, self._settings = tuple(same), settings
        self._cleaning = config.parse(CleaningSettings, settings["cleaning"])
        of_runs = config.parse(FeatureSettings, settings.get("features", {}))
        by, adduct = settings.get("group_by", "feature"), settings.get("adduct")
        reading = Inputs(self._names, level=logging.DEBUG)
        self._features = reading.features(by, adduct, of_runs)
        self._held: dict[Source, Measurement] = {}

    def take(self, sources: Sequence[Source]) -> Measurement:
        """What was measured of the feature read from these; it can be had once."""
        while sources[0].file in self._names and sources[0] not in self._held:
            feature = next(self._features, None)
            if feature is None:
                break
            spectra = []
            for one in (clean(spectrum, self._cleaning) for spectrum in feature.spectra):
                energy = one.collision_energy_ev
                text = one.collision_energy_text if energy is None else f"{energy:.3g} eV"
                label = readable(text, _LONGEST_LABEL) or f"spectrum {one.source.index}"
                if one.failure is None:
                    spectra.append(MeasuredPeaks(label, one.mz, one.intensity))
            first = references(feature.spectra)[0].source
            intensity = feature.precursor_intensity
            self._held[first] = Measurement(spectra, intensity, feature.isotopes)
        return self._held.pop(sources[0], Measurement())
