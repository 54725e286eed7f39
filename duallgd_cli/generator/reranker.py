"""Scores of a candidate besides its samples: a substructure prior and a fragmentation score.

A denoiser draws bonds and a fingerprint compares substructures with what the encoder predicts.
Neither asks whether molecules have such substructures at all, nor whether cleaving this molecule
gives these peaks. A table and a small network in plain arrays do, for every candidate alike;
processes that assemble need nothing else. C fragments, H hydrogen shifts, K peaks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.building_blocks import KnownEnds
from duallgd_cli.chem.elements import FINGERPRINT_BITS
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
from duallgd_cli.spectra.types import AnnotatedSpectrum, instrument_index

if TYPE_CHECKING:  # it needs rdkit, which a network that only draws does without
    from duallgd_cli.chem.molecule import Disassembled, Mol

Floats = NDArray[np.float32]

# Other orders of the same sums differ in later digits.
_DIGITS: Final = 4
_NAMES: Final = ("hidden.0", "hidden.2", "presence", "worth")


@dataclass(frozen=True, eq=False)
class Reranker:
    """How common substructures are, and what fragments speak for.

    Attributes:
        log_prevalence: Log share of known molecules with each Morgan bit, (4096,).
        environments: Filter of those that known structures have, see `chem.environments`, uint8
            (B,); None in weights without.
        layers: Weights (out, in) and biases of two linear maps with a ReLU each, and of two that
            take what these give: of a `train.evidence.Judge`.
    """

    log_prevalence: Floats
    environments: NDArray[np.uint8] | None
    layers: tuple[tuple[Floats, Floats], ...]

    @classmethod
    def of(cls, tensors: Mapping[str, NDArray[Any]]) -> "Reranker":
        """From the arrays of a weights file.

        Raises:
            WeightsError: One is missing, or fragments were described otherwise when it was fitted.
        """
        try:
            layers = tuple((tensors[f"{n}.weight"], tensors[f"{n}.bias"]) for n in _NAMES)
            log_prevalence, known = tensors["log_prevalence"], tensors.get("environments")
        except KeyError as error:
            raise WeightsError(
                f"the weights hold no {error} of a re-ranker; take the weights that come with this "
                "version, or run 'duallgd weights evidence'"
            ) from None
        if layers[0][0].shape[1:] != (N_INPUTS,):
            raise WeightsError(
                "the re-ranker in the weights was fitted by another version of duallgd; use that "
                "version, or fit it anew with 'duallgd weights evidence'"
            )
        outputs = [bias.size for _, bias in layers]
        inputs = [N_INPUTS, *outputs[:2], outputs[1]]  # of two heads on two hidden layers
        expected = [((n, m), (n,)) for n, m in zip(outputs, inputs, strict=True)]
        fits = [(weight.shape, bias.shape) for weight, bias in layers] == expected
        heads = outputs[2:] == [len(SHIFTS), 2 * len(SHIFTS)]
        counted = heads and log_prevalence.shape == (FINGERPRINT_BITS,)
        if not fits or not counted or (known is not None and not _is_filter(known)):
            raise WeightsError(
                "the re-ranker in the weights is broken; fetch or copy the weights again"
            )
        return cls(log_prevalence, known, layers)

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


@dataclass(frozen=True, eq=False)
class CandidateScorer:
    """Scores candidates for one spectrum; small enough to be sent to other processes.

    Attributes:
        reranker: Table and network.
        ends: Of known molecules.
        contrast: What each Morgan bit speaks for a molecule of the spectrum, by an encoder that
            was fitted to tell isomers apart, float32 (4096,); None without one.
        measured: Ion, sub-formulas int16 (K, N_ELEMENTS) and intensities (K,) of the explained
            peaks, by collision energy; none where the ion's fragments are not understood.
    """

    reranker: Reranker
    ends: KnownEnds
    contrast: Floats | None = None
    measured: tuple[tuple[Ion, NDArray[np.int16], Floats], ...] = ()

    @classmethod
    def of(
        cls,
        reranker: Reranker,
        ends: KnownEnds,
        annotated: AnnotatedSpectrum,
        contrast: Floats | None = None,
    ) -> "CandidateScorer":
        """For an annotated spectrum; peaks that kept a metal are left out."""
        adduct = annotated.hypothesis.adduct.index
        bare = annotated.carrier == 0
        if adduct not in CARRIED or not bare.any():
            return cls(reranker, ends, contrast)
        instrument = instrument_index(annotated.hypothesis.feature.first.instrument)
        energy, intensity = annotated.energy_ev[bare], annotated.intensity[bare]
        subformula = annotated.subformula[bare]
        measured = []
        for value in np.unique(energy):  # all that are not known count as one
            same = (energy == value) | (np.isnan(energy) & np.isnan(value))
            ion = Ion(adduct, instrument, float(value))
            measured.append((ion, subformula[same], intensity[same]))
        return cls(reranker, ends, contrast, tuple(measured))

    def scores(
        self, mol: "Mol", parts: "Disassembled", bits: NDArray[np.uint16]
    ) -> dict[str, float]:
        """What speaks for a candidate.

        Args:
            mol: The candidate.
            parts: The same, in arrays.
            bits: Its set Morgan bits.

        Returns:
            ``familiarity``, the substructure prior: mean log share of known molecules with each of
            its Morgan bits. ``contrast``: what these bits speak for it, summed. ``peaks_found``:
            what its fragments that are peaks speak for it, the sum, mean over collision energies.
            ``peaks_missed``: the same of those that are absent. ``known_halves``: see
            `chem.joining.known_halves`. ``known_environments``: 0, less 1 for each environment of
            an atom that no known structure has; not there in weights that do not know.
        """
        from duallgd_cli.chem.environments import unknown_environments
        from duallgd_cli.chem.joining import known_halves  # whoever has a molecule has rdkit

        known = self.reranker.log_prevalence[bits]
        told = 0.0 if self.contrast is None else float(self.contrast[bits].sum(dtype=np.float64))
        scores = {
            "familiarity": round(float(known.mean()), _DIGITS) if known.size else 0.0,
            "known_halves": round(known_halves(mol, self.ends), _DIGITS),
            "contrast": round(told, _DIGITS),
        }
        if self.reranker.environments is not None:
            new = unknown_environments(mol, self.reranker.environments)
            scores["known_environments"] = float(-new)  # 0, not the -0 of JSON
        found, missed = self.peaks(parts)
        return scores | {"peaks_found": found, "peaks_missed": missed}

    def peaks(self, parts: "Disassembled") -> tuple[float, float]:
        """``peaks_found`` and ``peaks_missed`` of a candidate; see `scores`."""
        if not self.measured or not parts.bond_class.any():
            return 0.0, 0.0
        graph = graph_of_bonds(parts.formula, parts.bond_class)
        found = fragments(graph, np.random.default_rng(0))  # a fixed seed for every molecule
        sums = []
        for ion, subformula, intensity in self.measured:
            shown, hidden = self.reranker.worth(fragment_features(found, ion))
            there = measured_intensity(found, ion, subformula, intensity) > 0
            sums.append((shown[there].sum(dtype=np.float64), hidden[~there].sum(dtype=np.float64)))
        matched, absent = np.mean(sums, axis=0).round(_DIGITS).tolist()
        return matched, absent


def _is_filter(table: NDArray[Any]) -> bool:
    size = table.size
    return table.dtype == np.uint8 and table.ndim == 1 and size > 0 and not size & (size - 1)
