"""What fragments speak for a candidate: whether cleaving it gives the measured peaks.

K peaks, C fragments, H hydrogen shifts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.identity import canonical_smiles
from duallgd_cli.chem.molecule import Disassembled, Mol, read_back
from duallgd_cli.data.fragmentation import (
    BY_CHANCE,
    CARRIED,
    FOUND,
    MISSED,
    N_INPUTS,
    SHIFTS,
    Ion,
    fragment_features,
    fragments,
    measured_intensity,
)
from duallgd_cli.data.molecular_graph import graph_of_bonds
from duallgd_cli.errors import WeightsError
from duallgd_cli.sources import Query
from duallgd_cli.spectra.types import AnnotatedSpectrum, instrument_index

Floats = NDArray[np.float32]

DIGITS: Final = 4  # other orders of the same sums differ in later ones
_NAMES: Final = ("hidden.0", "hidden.2", "presence", "worth")
BROKEN: Final = "the re-ranker in the weights is broken; fetch or copy the weights again"


@dataclass(frozen=True, eq=False)
class FragmentScorer:
    """Says what fragments that are peaks, and fragments that are none, speak for a molecule.

    Attributes:
        layers: Weights (out, in) and biases of two linear maps with a ReLU each, and of two that
            take what these give: of a `train.scorers.ScorerModel`.
    """

    layers: tuple[tuple[Floats, Floats], ...]

    @classmethod
    def of(cls, tensors: Mapping[str, NDArray[Any]]) -> "FragmentScorer":
        """From the arrays of a weights file.

        Raises:
            KeyError: One is missing.
            WeightsError: It is broken, or fragments were described otherwise when it was fitted.
        """
        layers = tuple((tensors[f"{n}.weight"], tensors[f"{n}.bias"]) for n in _NAMES)
        if layers[0][0].shape[1:] != (N_INPUTS,):
            raise WeightsError(
                "the re-ranker in the weights was fitted by another version of duallgd; use that "
                "version, or the weights that come with this one"
            )
        outputs = [bias.size for _, bias in layers]
        inputs = [N_INPUTS, *outputs[:2], outputs[1]]  # of two heads on two hidden layers
        expected = [((n, m), (n,)) for n, m in zip(outputs, inputs, strict=True)]
        fits = [(weight.shape, bias.shape) for weight, bias in layers] == expected
        if not fits or outputs[2:] != [len(SHIFTS), 2 * len(SHIFTS)]:
            raise WeightsError(BROKEN)
        return cls(layers)

    def worth(self, features: Floats) -> tuple[Floats, Floats]:
        """What a fragment speaks for a molecule, by `fragment_features`; both (C, H).

        Returns:
            If it is a peak, and if it is not, with each hydrogen shift.
        """
        (first, a), (second, b), (presence, c), (worth, d) = self.layers
        hidden = np.maximum(features @ first.T + a, 0)
        hidden = np.maximum(hidden @ second.T + b, 0)
        log_odds = hidden @ presence.T + c
        found, missed = np.split(hidden @ worth.T + d, 2, axis=1)
        absent = np.logaddexp(0, log_odds)
        found = found + FOUND * (log_odds - absent - BY_CHANCE)
        return found, missed * np.exp(log_odds - absent) - MISSED * absent

    def peaks(self, query: Query, mol: Mol) -> tuple[float, float]:
        """What fragments that are peaks speak for a molecule, and what absent ones do.

        Each is a sum over fragments, the mean over collision energies; 0 where the ion's fragments
        are not understood.
        """
        return query.once(
            f"peaks of {canonical_smiles(mol)}", lambda: self._peaks(query, read_back(mol))
        )

    def _peaks(self, query: Query, parts: Disassembled) -> tuple[float, float]:
        measured = query.once("measured", lambda: _measured(query.annotated))
        if not measured or not parts.bond_class.any():
            return 0.0, 0.0
        graph = graph_of_bonds(parts.formula, parts.bond_class)
        drawn = fragments(graph, np.random.default_rng(0))  # a fixed seed for every molecule
        sums = []
        for ion, subformula, intensity in measured:
            shown, hidden = self.worth(fragment_features(drawn, ion))
            there = measured_intensity(drawn, ion, subformula, intensity) > 0
            sums.append((shown[there].sum(dtype=np.float64), hidden[~there].sum(dtype=np.float64)))
        matched, absent = np.mean(sums, axis=0).round(DIGITS).tolist()
        return matched, absent


def _measured(annotated: AnnotatedSpectrum) -> list[tuple[Ion, NDArray[np.int16], Floats]]:
    """Sub-formulas (K, N_ELEMENTS) and intensities (K,) of the explained peaks by collision energy.

    Those that kept a metal are left out.
    """
    adduct = annotated.hypothesis.adduct.index
    bare = annotated.carrier == 0
    if adduct not in CARRIED or not bare.any():
        return []
    instrument = instrument_index(annotated.hypothesis.feature.first.instrument)
    energy, intensity = annotated.energy_ev[bare], annotated.intensity[bare]
    subformula = annotated.subformula[bare]
    measured = []
    for value in np.unique(energy):  # all that are not known count as one
        same = (energy == value) | (np.isnan(energy) & np.isnan(value))
        ion = Ion(adduct, instrument, float(value))
        measured.append((ion, subformula[same], intensity[same]))
    return measured
