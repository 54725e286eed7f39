"""The encoder stage: predict the Morgan fingerprint from annotated peaks.

B spectra, F fingerprint bits.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.peaks import packed_batch, prepared_batch
from duallgd_cli.data.prepared import FOLDS, Molecules, PreparedSpectra
from duallgd_cli.errors import UnreadableError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.encoder import FormulaTransformer, PackedBatch
from duallgd_cli.train.settings import TrainingSettings

_MERGED: Final = 3
_VALIDATION_SPECTRA: Final = 1_000
# Not the run's own, so that figures of runs can be put side by side.
VALIDATION_SEED: Final = 0
_THRESHOLDS: Final = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)


class SpectrumSampler:
    """Draws spectra of fold train: a molecule first, then one or more of its spectra of one ion.

    Raises:
        UnreadableError: No spectrum is of that fold.
    """

    def __init__(self, spectra: PreparedSpectra) -> None:
        self.spectra = spectra
        members = np.flatnonzero(spectra.spectrum_fold == FOLDS.index("train"))
        if not len(members):
            raise UnreadableError("the prepared data hold no spectrum of fold train")
        self.molecules, self.members = by_molecule(spectra, members)

    def draw_from(self, index: int, generator: np.random.Generator) -> tuple[int, list[int]]:
        """A molecule by its place, and spectra that share adduct and instrument with the first."""
        own = self.members[index]
        first = int(own[generator.integers(len(own))])
        s = self.spectra
        alike = own[(s.adduct[own] == s.adduct[first]) & (s.instrument[own] == s.instrument[first])]
        more = generator.permutation(alike[alike != first])
        n_more = int(generator.integers(_MERGED + 1)) if generator.random() < 0.4 else 0
        return int(self.molecules[index]), [first, *more[:n_more].tolist()]

    def groups(self, n_spectra: int, generator: np.random.Generator) -> list[list[int]]:
        """Spectra of molecules at random, each as `draw_from` gives them."""
        drawn = generator.integers(len(self.molecules), size=n_spectra).tolist()
        return [self.draw_from(place, generator)[1] for place in drawn]


class EncoderStage:
    """Fingerprint prediction, from measured spectra of fold train and simulated ones, if any."""

    def __init__(
        self,
        spectra: PreparedSpectra,
        simulated: PreparedSpectra | None,
        settings: TrainingSettings,
        ranks: tuple[int, int] = (0, 1),
    ) -> None:
        self.spectra, self.settings, self.ranks = spectra, settings, ranks
        self.measured = SpectrumSampler(spectra)
        self.simulated = None if simulated is None else SpectrumSampler(simulated)
        data = settings.data
        share = 0.0 if simulated is None else data.simulated_share
        self.n_simulated = round(data.spectra_per_batch * share)
        # Until then none is measured.
        self.measured_from = 0 if simulated is None else round(settings.steps * data.measured_from)
        self.validation = validation_spectra(spectra)

    def plan(self, first_step: int) -> Iterator[None]:
        """Nothing: spectra are drawn with each batch."""
        del first_step
        return repeat(None)

    def collate(self, planned: None, step: int) -> PackedBatch:
        """Measured and simulated spectra: a function of seed, step and rank."""
        del planned
        generator = np.random.default_rng((self.settings.seed, step, self.ranks[0]))
        data = self.settings.data
        n_spectra = data.spectra_per_batch
        n_simulated = n_spectra if step < self.measured_from else self.n_simulated
        groups = self.measured.groups(n_spectra - n_simulated, generator)
        sources = [(self.spectra, groups, data.peak_dropout)]
        if self.simulated is not None:
            groups = self.simulated.groups(n_simulated, generator)
            dropout = data.simulated_dropout
            dropout = data.peak_dropout if dropout is None else dropout
            sources.append((self.simulated.spectra, groups, dropout))
        return packed_batch(sources, generator)

    def loss(self, model: DualLGD, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """Summed binary cross entropy, and the number of bits that are set."""
        logits = model.encoder(batch).float()
        truth = batch.truth(logits.shape[1])
        return binary_cross_entropy_with_logits(logits, truth, reduction="sum"), truth.sum()

    @torch.no_grad()
    def validate(self, model: DualLGD) -> dict[str, float]:
        """Cross entropy and Tanimoto on single spectra of fold val, if there are any."""
        if not len(self.validation):
            return {}
        device = next(model.parameters()).device
        probability = []
        for part in np.array_split(self.validation, max(1, len(self.validation) // 100)):
            peaks = prepared_batch(self.spectra, part).to(device)
            probability.append(torch.sigmoid(model.encoder(peaks).float()).cpu())
        return fingerprint_figures(torch.cat(probability), true_bits(self.spectra, self.validation))


def begin_with_frequencies(encoder: FormulaTransformer, molecules: Molecules) -> None:
    """Let a new encoder say how often each bit is set, which it would take many steps to learn."""
    n_bits = len(encoder.fingerprint.bias)
    often = np.bincount(molecules.bits, minlength=n_bits) / len(molecules)
    with torch.no_grad():
        encoder.fingerprint.bias.copy_(torch.logit(torch.from_numpy(often).clamp(1e-4, 1 - 1e-4)))


def validation_spectra(spectra: PreparedSpectra) -> NDArray[np.int64]:
    """Rows of up to 1,000 spectra of fold val, the same for every run, ascending; or none."""
    val = np.flatnonzero(spectra.spectrum_fold == FOLDS.index("val"))
    chosen = np.random.default_rng(VALIDATION_SEED).permutation(val)[:_VALIDATION_SPECTRA]
    return np.sort(chosen)


def by_molecule(
    spectra: PreparedSpectra, members: NDArray[np.int64]
) -> tuple[NDArray[np.int32], list[NDArray[np.int64]]]:
    """Molecules of some spectra, ascending, and the spectra of each."""
    order = members[np.argsort(spectra.molecule[members], kind="stable")]
    molecules, start = np.unique(spectra.molecule[order], return_index=True)
    return molecules, np.split(order, start)[1:]


def true_bits(spectra: PreparedSpectra, rows: NDArray[np.int64]) -> Tensor:
    """On-bits of the molecules of some spectra as float 0/1, (B, F)."""
    dense = torch.zeros(len(rows), FINGERPRINT_BITS)
    for b, molecule in enumerate(spectra.molecule[rows].tolist()):
        dense[b, spectra.molecules.fingerprint_bits(molecule).astype(np.int64)] = 1
    return dense


def fingerprint_figures(probability: Tensor, truth: Tensor) -> dict[str, float]:
    """Cross entropy per spectrum and Tanimoto, soft and at several thresholds."""

    def tanimoto(guess: Tensor) -> float:
        common = (guess * truth).sum(1)
        return float((common / (guess.sum(1) + truth.sum(1) - common).clamp_min(1e-6)).mean())

    clipped = probability.clamp(1e-6, 1 - 1e-6)
    entropy = -(truth * clipped.log() + (1 - truth) * (1 - clipped).log()).sum(1)
    best = {t: tanimoto((probability > t).float()) for t in _THRESHOLDS}
    threshold = max(best, key=lambda t: best[t])
    return {
        "fp_bce": float(entropy.mean()),
        "fp_soft": tanimoto(probability),
        "fp_tanimoto": best[threshold],
        "fp_threshold": threshold,
    }
