"""What speaks for a molecule besides the samples: familiar parts, and peaks that it explains.

A denoiser draws bonds and a fingerprint compares parts with what the encoder saw. Neither asks
whether molecules have such parts at all, nor whether cutting this molecule gives these peaks. Both
are asked here, of every molecule alike, by a table and a small network in plain arrays: processes
that assemble need nothing else. C fragments, H hydrogen shifts, K peaks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import FINGERPRINT_BITS, HYDROGEN
from duallgd_cli.chem.skeleton import bonds_of
from duallgd_cli.data.fragment_rows import (
    CARRIED,
    N_INPUTS,
    SHIFTS,
    Ion,
    fragment_features,
    measured_intensity,
)
from duallgd_cli.data.fragmentation import fragments
from duallgd_cli.data.molecular_graph import MolecularGraph
from duallgd_cli.errors import WeightsError
from duallgd_cli.spectra.types import AnnotatedSpectrum, instrument_index

if TYPE_CHECKING:  # it needs rdkit, which a network that only draws does without
    from duallgd_cli.chem.molecule import Disassembled

Floats = NDArray[np.float32]

# Log-chance of a peak at a place that nothing explains: what an explained one is measured against.
_BY_CHANCE: Final = -4.0
# Other orders of the same sums differ in later digits.
_DIGITS: Final = 4
_NAMES: Final = ("hidden.0", "hidden.2", "presence")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Of one molecule under one spectrum.

    Attributes:
        familiarity: Mean log share, over its Morgan bits, of known molecules with that bit.
        peaks_found: Log-likelihood of the peaks that its fragments explain, above that of peaks by
            chance, summed; mean over collision energies.
        peaks_missed: Log-likelihood that its other fragments give no peak, summed; likewise.
    """

    familiarity: float
    peaks_found: float
    peaks_missed: float


@dataclass(frozen=True, eq=False)
class EvidenceModel:
    """A table of bits and the presence half of a fragment model.

    Attributes:
        log_prevalence: Of each Morgan bit among known molecules, (4096,).
        layers: Weights (out, in) and biases of three linear maps, ReLU between them.
    """

    log_prevalence: Floats
    layers: tuple[tuple[Floats, Floats], ...]

    @classmethod
    def of(cls, tensors: Mapping[str, Floats]) -> "EvidenceModel":
        """From the arrays of a weights file.

        Raises:
            WeightsError: One is missing, or fragments were described otherwise when it was fitted.
        """
        try:
            layers = tuple((tensors[f"{n}.weight"], tensors[f"{n}.bias"]) for n in _NAMES)
            log_prevalence = tensors["log_prevalence"]
        except KeyError as error:
            raise WeightsError(
                f"the weights hold no {error} of evidence; run 'duallgd weights evidence'"
            ) from None
        if layers[0][0].shape[1:] != (N_INPUTS,):
            raise WeightsError(
                "the evidence in the weights was fitted by another version of duallgd; use that "
                "version, or fit it anew with 'duallgd weights evidence'"
            )
        outputs = [bias.size for _, bias in layers]
        inputs = [N_INPUTS, *outputs[:-1]]
        expected = [((n, m), (n,)) for n, m in zip(outputs, inputs, strict=True)]
        fits = [(weight.shape, bias.shape) for weight, bias in layers] == expected
        known = (outputs[-1], log_prevalence.shape) == (len(SHIFTS), (FINGERPRINT_BITS,))
        if not fits or not known:
            raise WeightsError(
                "the evidence in the weights is broken; fetch or copy the weights again"
            )
        return cls(log_prevalence, layers)

    def log_odds(self, features: Floats) -> Floats:
        """Of a peak of each fragment and hydrogen shift, (C, H), by `fragment_features`."""
        (first, a), (second, b), (last, c) = self.layers
        hidden = np.maximum(features @ first.T + a, 0)
        hidden = np.maximum(hidden @ second.T + b, 0)
        return np.asarray(hidden @ last.T + c, np.float32)


@dataclass(frozen=True, eq=False)
class _Measured:
    """Peaks of one collision energy: sub-formulas (K, N_ELEMENTS) and intensities (K,)."""

    ion: Ion
    subformula: NDArray[np.int16]
    intensity: Floats


@dataclass(frozen=True, eq=False)
class Witness:
    """Questions molecules about one spectrum; small enough to be sent to other processes.

    Attributes:
        model: Table and network.
        measured: By collision energy; none where the ion's fragments are not understood.
    """

    model: EvidenceModel
    measured: tuple[_Measured, ...]

    @classmethod
    def of(cls, model: EvidenceModel, annotated: AnnotatedSpectrum) -> "Witness":
        """For an annotated spectrum; peaks that kept a metal are left out."""
        adduct = annotated.hypothesis.adduct.index
        bare = annotated.carrier == 0
        if adduct not in CARRIED or not bare.any():
            return cls(model, ())
        instrument = instrument_index(annotated.hypothesis.feature.first.instrument)
        energy = annotated.energy_ev[bare]
        measured = []
        for value in np.unique(energy):  # all that are not known count as one
            same = (energy == value) | (np.isnan(energy) & np.isnan(value))
            ion = Ion(adduct, instrument, float(value))
            subformula, intensity = annotated.subformula[bare][same], annotated.intensity[bare]
            measured.append(_Measured(ion, subformula, intensity[same]))
        return cls(model, tuple(measured))

    def ask(self, parts: "Disassembled", bits: NDArray[np.uint16]) -> Evidence:
        """What speaks for a molecule.

        Args:
            parts: The molecule.
            bits: Its set Morgan bits.
        """
        known = self.model.log_prevalence[bits]
        familiarity = round(float(known.mean()), _DIGITS) if known.size else 0.0
        bonds = np.array(bonds_of(len(parts.atom_class), parts.bond_class)).reshape(-1, 3)
        if not self.measured or not len(bonds):
            return Evidence(familiarity, 0.0, 0.0)
        hydrogens = int(parts.formula.array[HYDROGEN])
        graph = MolecularGraph(parts.atom_class, bonds[:, :2], bonds[:, 2], hydrogens)
        found = fragments(graph, np.random.default_rng(0))  # every molecule with the same luck
        sums = []
        for one in self.measured:
            log_odds = self.model.log_odds(fragment_features(found, one.ion))
            there = measured_intensity(found, one.ion, one.subformula, one.intensity) > 0
            shown = -np.logaddexp(0, -log_odds[there]) - _BY_CHANCE
            hidden = -np.logaddexp(0, log_odds[~there])
            sums.append((shown.sum(dtype=np.float64), hidden.sum(dtype=np.float64)))
        peaks_found, peaks_missed = np.mean(sums, axis=0).round(_DIGITS).tolist()
        return Evidence(familiarity, peaks_found, peaks_missed)
