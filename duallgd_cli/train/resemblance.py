"""Whether simulated spectra resemble measured ones: both of the same molecules and ions.

What an encoder learns from simulated spectra holds for measured ones as far as they are alike.
K peaks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.data.fragment_rows import same_heavy_atoms
from duallgd_cli.data.fragmentation import Fragments, fragments
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.data.peaks import PeakRows, from_prepared
from duallgd_cli.data.prepared import PreparedSpectra
from duallgd_cli.data.simulation import Simulator
from duallgd_cli.spectra.subformula import excess
from duallgd_cli.train.fragment_model import ion_of, simulable

_MOLECULES: Final = 500
_FAINTEST: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Traits:
    """Of some spectra; shares are of peaks with a single sub-formula.

    Attributes:
        peaks: Explained ones of a spectrum, median.
        unpaired: Share whose ion has an unpaired electron.
        uncut: Share that no cut of up to three bonds gives.
        log_intensity: Relative to the base peak, natural logarithm, median.
    """

    peaks: float
    unpaired: float
    uncut: float
    log_intensity: float

    def __str__(self) -> str:
        """For a terminal."""
        return (
            f"{self.peaks:.0f} peaks a spectrum, {self.unpaired:.0%} with an unpaired electron, "
            f"{self.uncut:.0%} that no cut gives, median intensity {np.exp(self.log_intensity):.3f}"
        )


def compare(
    simulator: Simulator, spectra: PreparedSpectra, fold: str, seed: int
) -> dict[str, Traits]:
    """Traits of measured spectra, one a molecule, and of those simulated for the same ions.

    Args:
        simulator: Fitted.
        spectra: Prepared spectra.
        fold: Whose molecules; one that the simulator was not fitted on.
        seed: Of everything random.

    Returns:
        By the names ``measured`` and ``simulated``; nothing where the fold has no peaks.
    """
    generator, molecules = np.random.default_rng(seed), spectra.molecules
    rows: dict[str, list[NDArray[np.float64]]] = {"measured": [], "simulated": []}
    able = list(simulable(spectra, fold))
    for place in generator.permutation(len(able))[:_MOLECULES]:
        molecule, own = able[place]
        number = int(generator.choice(own))
        found = fragments(graph_of(molecules, molecule), generator)
        alone = Simulator(simulator.model, [ion_of(spectra, number)], np.ones(1))
        simulated = alone.spectrum(molecules, molecule, generator)
        rows["measured"].append(_described(from_prepared(spectra, [number]), found))
        rows["simulated"].append(_described(simulated, found))
    found_any = all(sum(map(len, own)) for own in rows.values())
    return {name: _traits(own) for name, own in rows.items()} if found_any else {}


def _described(peaks: PeakRows, found: Fragments) -> NDArray[np.float64]:
    """One row for each peak: single, unpaired, uncut, log intensity; (K, 4)."""
    bare = peaks.carrier == 0
    numbers, subformula = peaks.numbers[bare], peaks.subformula[bare]
    _, first = np.unique(numbers[:, 2], return_index=True)  # by m/z
    numbers, subformula = numbers[first], subformula[first]
    unpaired = excess(subformula) % 2 == 0
    uncut = ~same_heavy_atoms(subformula, found.counts)
    log_intensity = np.log(np.maximum(numbers[:, 0], _FAINTEST))
    return np.column_stack([numbers[:, 3] == 1, unpaired, uncut, log_intensity])


def _traits(spectra: Sequence[NDArray[np.float64]]) -> Traits:
    every = np.concatenate(spectra)
    single = every[every[:, 0] == 1]
    unpaired, uncut = single[:, 1:3].mean(0).tolist() if len(single) else (0.0, 0.0)
    peaks = float(np.median([len(one) for one in spectra]))
    return Traits(peaks, unpaired, uncut, float(np.median(every[:, 3])))
