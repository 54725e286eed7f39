"""The encoder stage: predict the Morgan fingerprint from annotated peaks.

Bits are learnt one by one, and together by what they are for: to tell the molecule from structures
of the same formula. Cross entropy alone went on falling without a better choice among these.

B spectra, I isomers of all spectra of a batch, F fingerprint bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from duallgd_cli.chem.elements import FINGERPRINT_BITS, MASSES_DA
from duallgd_cli.data.imitation import by_mass
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
_SAME_MASS_DA: Final = 1e-6  # hardly ever of another formula
_LOOKED_AT: Final = 200  # isomers of each validation spectrum
# Summed log-odds of bits are seven times too sure of a molecule: learnt, the factor stays at 0.14.
_SHRUNK: Final = 0.14
# Of the cross entropy among isomers next to that of some fifty set bits: half as much a spectrum.
_OF_ISOMERS: Final = 25.0


class Isomers:
    """Prepared structures of fold train by their formulas."""

    def __init__(self, molecules: Molecules) -> None:
        self.molecules = molecules
        self.rows = by_mass(molecules)
        self.mass = molecules.atom_counts[self.rows] @ np.array(MASSES_DA)
        self._bits: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def draw(
        self,
        molecules: Molecules,
        rows: NDArray[np.int64],
        most: int,
        generator: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Structures that molecules are to be told from, at most so many of each, at random.

        Returns:
            Rows of the structures, and the number of the molecule that each is an isomer of,
            ascending; both int64 (I,).
        """
        mass = (molecules.atom_counts[rows] @ np.array(MASSES_DA))[:, None]
        first, end = (self.mass.searchsorted(mass + sign * _SAME_MASS_DA) for sign in (-1, 1))
        n, place = end - first, np.arange(most)
        at_random = (generator.random((len(rows), most)) * n).astype(np.int64)
        chosen = first + np.where(n > most, at_random, place)
        owner, column = np.nonzero(place < n)
        isomer = self.rows[chosen[owner, column]]
        differs = self.molecules.inchikey[isomer] != molecules.inchikey[rows][owner]
        return torch.from_numpy(isomer[differs]), torch.from_numpy(owner[differs])

    def sums(self, logits: Tensor, isomer: Tensor, owner: Tensor) -> Tensor:
        """Sums of logits (B, F) over the bits of each isomer, (I,)."""
        device = logits.device
        if device not in self._bits:
            known = self.molecules
            offset = torch.from_numpy(np.array(known.bit_offset))
            bits = torch.from_numpy(known.bits.astype(np.int16))  # below 4,096
            self._bits[device] = offset.to(device), bits.to(device)
        offset, bits = self._bits[device]
        length = offset[isomer + 1] - offset[isomer]
        which = torch.arange(len(isomer), device=device).repeat_interleave(length)
        before = length.cumsum(0) - length
        index = torch.arange(len(which), device=device) + (offset[isomer] - before)[which]
        own = logits.flatten()[owner[which] * logits.shape[1] + bits[index].long()]
        return own.new_zeros(len(isomer)).index_add(0, which, own)


@dataclass(frozen=True, eq=False)
class EncoderBatch:
    """Spectra, and isomers as `Isomers.draw` gives them."""

    spectra: PackedBatch
    isomer: Tensor
    owner: Tensor

    @property
    def n_samples(self) -> int:
        """Number of spectra."""
        return self.spectra.n_samples


def isomer_entropy(own: Tensor, others: Tensor, owner: Tensor) -> Tensor:
    """Summed cross entropy of molecules among their isomers by a softmax of sums of log-odds.

    Sums are those of the molecules, (B,), and of the isomers, (I,), each of one of the molecules.
    """
    own, others = _SHRUNK * own, _SHRUNK * others
    most = own.detach().scatter_reduce(0, owner, others.detach(), "amax")
    total = torch.exp(own - most).index_add(0, owner, torch.exp(others - most[owner]))
    return (total.log() + most - own).sum()


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
    """Fingerprint prediction, from measured spectra of fold train and simulated ones, if any.

    With prepared structures molecules are told from those of their formula, too.
    """

    def __init__(
        self,
        spectra: PreparedSpectra,
        simulated: PreparedSpectra | None,
        settings: TrainingSettings,
        ranks: tuple[int, int] = (0, 1),
        structures: Molecules | None = None,
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
        self.isomers = Isomers(structures) if structures is not None and data.isomers else None

    def plan(self, first_step: int) -> Iterator[None]:
        """Nothing: spectra are drawn with each batch."""
        del first_step
        return repeat(None)

    def collate(self, planned: None, step: int) -> EncoderBatch:
        """Measured and simulated spectra, with isomers: a function of seed, step and rank."""
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
        peaks = packed_batch(sources, generator)
        return EncoderBatch(peaks, *self._isomers([source[:2] for source in sources], generator))

    def _isomers(
        self,
        sources: Sequence[tuple[PreparedSpectra, Sequence[Sequence[int]]]],
        generator: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Isomers of the molecules of a batch, see `Isomers.draw`; none without structures."""
        drawn, before = [(torch.zeros(0, dtype=torch.int64),) * 2], 0
        if self.isomers is None:
            return drawn[0]
        for spectra, groups in sources:
            rows = spectra.molecule[[group[0] for group in groups]].astype(np.int64)
            most = self.settings.data.isomers
            isomer, owner = self.isomers.draw(spectra.molecules, rows, most, generator)
            drawn.append((isomer, owner + before))
            before += len(groups)
        isomer, owner = map(torch.cat, zip(*drawn, strict=True))
        return isomer, owner

    def loss(self, model: DualLGD, batch: EncoderBatch) -> tuple[Tensor, Tensor]:
        """Summed cross entropy of bits and among isomers, and the number of bits that are set."""
        logits = model.encoder(batch.spectra).float()
        truth = batch.spectra.truth(logits.shape[1])
        entropy = binary_cross_entropy_with_logits(logits, truth, reduction="sum")
        if self.isomers is not None:
            others = self.isomers.sums(logits, batch.isomer, batch.owner)
            own = (logits * truth).sum(1)
            entropy = entropy + _OF_ISOMERS * isomer_entropy(own, others, batch.owner)
        return entropy, truth.sum()

    @torch.no_grad()
    def validate(self, model: DualLGD) -> dict[str, float]:
        """Cross entropy and Tanimoto on single spectra of fold val, if there are any.

        With structures ``isomers_first``, too: how often the truth is the likeliest of its formula.
        """
        if not len(self.validation):
            return {}
        device, predicted = next(model.parameters()).device, []
        for part in np.array_split(self.validation, max(1, len(self.validation) // 100)):
            peaks = prepared_batch(self.spectra, part).to(device)
            predicted.append(model.encoder(peaks).float().cpu())
        logits, truth = torch.cat(predicted), true_bits(self.spectra, self.validation)
        figures = fingerprint_figures(torch.sigmoid(logits), truth)
        if self.isomers is None:
            return figures
        rows = self.spectra.molecule[self.validation].astype(np.int64)
        generator = np.random.default_rng(VALIDATION_SEED)
        isomer, owner = self.isomers.draw(self.spectra.molecules, rows, _LOOKED_AT, generator)
        others, own = self.isomers.sums(logits, isomer, owner), (logits * truth).sum(1)
        beaten = torch.zeros(len(rows)).index_add(0, owner, (others > own[owner] + 1e-3).float())
        has_any = torch.bincount(owner, minlength=len(rows)) > 0
        if has_any.any():
            figures["isomers_first"] = float((beaten[has_any] == 0).float().mean())
        return figures


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
