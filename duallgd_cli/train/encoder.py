"""The encoder stage: predict the Morgan fingerprint from annotated peaks.

Bits are learnt one by one, and together by what they are for: to tell the molecule from structures
of the same formula. Cross entropy alone went on falling without a better choice among these.

What the spectra of known molecules hold is kept beside the encoder (`model.fragment_kernel`).

B spectra, I isomers of all spectra of a batch, F fingerprint bits.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from duallgd_cli.chem.elements import MASSES_DA
from duallgd_cli.data.imitation import by_mass, dense_bits
from duallgd_cli.data.peaks import packed_batch, prepared_batch
from duallgd_cli.data.prepared import FOLDS, Decoys, Molecules, PreparedSpectra
from duallgd_cli.errors import UnreadableError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.encoder import FormulaTransformer, PackedBatch, PeakBatch
from duallgd_cli.model.fragment_kernel import (
    N_PLACES,
    UNMIXED,
    FragmentKernel,
    fitted_mixing,
    places,
)
from duallgd_cli.train.settings import OptimiserSettings, TrainingSettings
from duallgd_cli.train.trainer import fit

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
# Places of one known molecule, by weight and rarity; more change little and make the file larger.
_KEPT: Final = 100
_AT_ONCE: Final = 250  # spectra
_UPPER: Final = 2  # layers that the contrastive fit changes
_CONTRASTED: Final = 128  # spectra in a step of the contrastive fit
# Log-odds of bits, summed up, are about ten times too sure of a molecule.
_SURE: Final = 0.1
# What is left out keeps the encoder from leaning on the molecules that it knows.
_DROPOUT, _PEAK_DROPOUT = 0.25, 0.3
_CONTRAST_RATES: Final = OptimiserSettings(
    "adamw", 3e-4, warmup_share=0.2, final_share=0.0, weight_decay=0.05, beta2=0.999, clip=5.0
)
# Spectra, the rows of the molecule of each and of its decoys, and how many these are.
_Contrast: TypeAlias = tuple[PackedBatch, NDArray[np.int64], list[int]]


class Isomers:
    """Prepared structures of fold train by their formulas."""

    def __init__(self, molecules: Molecules) -> None:
        self.molecules = molecules
        self.rows = by_mass(molecules)
        self.mass = molecules.atom_counts[self.rows] @ np.array(MASSES_DA)
        self._bits: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def draw(
        self,
        counts: NDArray[np.uint8],
        keys: NDArray[np.bytes_],
        most: int,
        generator: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Structures that molecules are to be told from, at most so many of each, at random.

        Molecules are element counts, (B, N_ELEMENTS), and first blocks, (B,). Rows of structures
        come with the number of the molecule that each is an isomer of, ascending; both int64 (I,).
        """
        mass = (counts @ np.array(MASSES_DA))[:, None]
        first, end = (self.mass.searchsorted(mass + sign * _SAME_MASS_DA) for sign in (-1, 1))
        n, place = end - first, np.arange(most)
        # One of each of as many parts of a ring that is cut anywhere: none twice, all as often.
        low, high = place * n // most, (place + 1) * n // most
        within = np.floor(generator.random((len(keys), most)) * (high - low))
        cut = np.floor(generator.random((len(keys), 1)) * n)
        at_random = (low + within + cut) % np.maximum(n, 1)
        chosen = first + np.where(n > most, at_random, place).astype(np.int64)
        owner, column = np.nonzero(place < n)
        isomer = self.rows[chosen[owner, column]]
        differs = self.molecules.inchikey[isomer] != keys[owner]
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
        return bit_sums(logits, owner, which, bits[index].long())


def bit_sums(logits: Tensor, owner: Tensor, which: Tensor, bits: Tensor) -> Tensor:
    """Sums of logits (B, F), each of one of B, over the bits that molecules have, (I,).

    Bits of all of them come with the molecule that each is of, int64 both.
    """
    own = logits.flatten()[owner[which] * logits.shape[1] + bits]
    return own.new_zeros(len(owner)).index_add(0, which, own)


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
    """Draws spectra of fold train: a molecule first, then one or more of its spectra of one ion."""

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
        peaks, none = packed_batch(sources, generator), torch.zeros(0, dtype=torch.int64)
        if self.isomers is None:
            return EncoderBatch(peaks, none, none)
        own = [(s.molecules, s.molecule[[group[0] for group in some]]) for s, some, _ in sources]
        counts = np.concatenate([molecules.atom_counts[rows] for molecules, rows in own])
        keys = np.concatenate([molecules.inchikey[rows] for molecules, rows in own])
        return EncoderBatch(peaks, *self.isomers.draw(counts, keys, data.isomers, generator))

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
        device = next(model.parameters()).device
        predicted = [
            model.encoder(peaks.to(device)).float().cpu()
            for _, peaks in _batches(self.spectra, self.validation)
        ]
        logits, truth = torch.cat(predicted), true_bits(self.spectra, self.validation)
        figures = fingerprint_figures(torch.sigmoid(logits), truth)
        if self.isomers is None:
            return figures
        molecules, rows = self.spectra.molecules, self.spectra.molecule[self.validation]
        isomer, owner = self.isomers.draw(
            molecules.atom_counts[rows], molecules.inchikey[rows], _LOOKED_AT,
            np.random.default_rng(VALIDATION_SEED),
        )  # fmt: skip
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
    return dense_bits(spectra.molecules, spectra.molecule[rows], torch.device("cpu"))


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


def known_spectra(spectra: PreparedSpectra, known: Molecules) -> dict[str, Tensor]:
    """Fragments and losses of known molecules, each at its brightest in any spectrum of fold train.

    They are all that `FragmentKernel` takes but ``mixing``.
    """
    row_of = {key: row for row, key in enumerate(known.inchikey.tolist())}
    owner = np.array([row_of.get(key, -1) for key in spectra.molecules.inchikey.tolist()])
    owner = owner[spectra.molecule]
    chosen = np.flatnonzero((owner >= 0) & (spectra.spectrum_fold == FOLDS.index("train")))
    kept, weights = list[Tensor](), list[Tensor]()
    for part, peaks in _batches(spectra, chosen):
        place, weight, spectrum = places(peaks)
        key, inverse = (spectrum * N_PLACES + place)[weight > 0].unique(return_inverse=True)
        weights.append(torch.zeros(len(key)).index_add(0, inverse, weight[weight > 0]))
        molecule = torch.from_numpy(owner[part])[key // N_PLACES]
        kept.append(molecule * N_PLACES + key % N_PLACES)
    key, inverse = torch.cat(kept).unique(return_inverse=True)
    weight = torch.zeros(len(key)).scatter_reduce(0, inverse, torch.cat(weights), "amax")
    # Those of each molecule that weigh most and are rarest, by molecule and place.
    row, place, n_known = key // N_PLACES, key % N_PLACES, len(known)
    often = torch.bincount(place, minlength=N_PLACES)[place]
    telling = weight * torch.log((n_known + 1) / (often + 1)).sqrt()
    order = torch.argsort(-telling, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    start = torch.searchsorted(row[order], torch.arange(n_known))
    best = order[torch.arange(len(order)) - start[row[order]] < _KEPT].sort().values
    return {
        "n_places": torch.bincount(row[best], minlength=n_known).short(),
        "place": place[best].int(),
        "weight": weight[best],
    }


def fit_kernel(
    encoder: FormulaTransformer, spectra: PreparedSpectra, known: Molecules
) -> dict[str, Tensor]:
    """Arrays of a weights file for `FragmentKernel`, mixed with an encoder as suits fold val.

    The encoder is in evaluation mode, on the CPU; no spectra are read but of fold train and val.
    """
    tensors = known_spectra(spectra, known) | {"mixing": UNMIXED}
    chosen = validation_spectra(spectra)
    if not len(chosen):
        return tensors
    kernel = FragmentKernel.of(tensors, known.bit_offset, known.bits)
    logits, chance = [], []
    with torch.no_grad():
        for _, peaks in _batches(spectra, chosen):
            logits.append(encoder(peaks))
            chance.append(kernel.chance(peaks))
    truth = true_bits(spectra, chosen)
    return tensors | {"mixing": fitted_mixing(torch.cat(logits), torch.cat(chance), truth)}


def _batches(
    spectra: PreparedSpectra, chosen: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], PeakBatch]]:
    """Some spectra, a few hundred rows at a time, and their peaks."""
    for part in np.array_split(chosen, max(1, len(chosen) // _AT_ONCE)):
        yield part, prepared_batch(spectra, part)


def fit_isomer_encoder(
    encoder: FormulaTransformer,
    spectra: PreparedSpectra,
    decoys: Decoys,
    seed: int = 1,
    advance: Callable[[int], None] = lambda steps: None,
    *,
    steps: int = 450,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Train the upper layers of an encoder to tell molecules of fold train from their isomers.

    The chance of a fingerprint bit says nothing of what it is worth among molecules of one formula:
    many bits go together and count again and again, others all of the molecules have. So the loss
    is contrastive, on sums of bits of a molecule and of its decoys, which are by its row. Tensors
    of these layers come with what to keep on record; nothing where no molecule has decoys.
    """
    sampler = SpectrumSampler(spectra)
    able = np.flatnonzero(np.diff(decoys.start)[sampler.molecules] > 1)
    if not len(able):
        return {}, {}
    # Less sure from the start, and it forgets more of each spectrum.
    model = copy.deepcopy(encoder).requires_grad_(False)
    upper = model.layers[-_UPPER:], model.norm, model.pool, model.hidden, model.fingerprint
    for part in upper:
        part.requires_grad_()
    for tensor in model.fingerprint.parameters():
        tensor.data *= _SURE
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = _DROPOUT
    came_first: list[bool] = []

    def batch_of(step: int) -> _Contrast:
        generator = np.random.default_rng((seed, step))
        places = generator.choice(able, _CONTRASTED).tolist()
        drawn = (sampler.draw_from(place, generator) for place in places)
        molecules, numbers = zip(*drawn, strict=True)
        peaks = packed_batch([(spectra, numbers, _PEAK_DROPOUT)], generator)
        rows = [decoys.rows(row) for row in molecules]
        return peaks, np.concatenate(rows), list(map(len, rows))

    def loss(model: FormulaTransformer, batch: _Contrast) -> tuple[Tensor, Tensor]:
        peaks, rows, sizes = batch
        owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        which, bits = map(torch.from_numpy, decoys.molecules.bits_of(rows))
        scores = bit_sums(model(peaks), owner, which, bits).split(sizes)
        came_first[:] = [int(molecules.argmax()) == 0 for molecules in scores]
        entropy = torch.stack([molecules.logsumexp(0) - molecules[0] for molecules in scores])
        return entropy.sum(), entropy.new_tensor(len(entropy))

    settings = TrainingSettings(seed=seed, steps=steps, optimiser=_CONTRAST_RATES)
    fit(model, batch_of, loss, settings, advance)
    record = {"contrasted": steps * _CONTRASTED, "first_of_isomers": float(np.mean(came_first))}
    trained = {name for name, tensor in model.named_parameters() if tensor.requires_grad}
    return {name: model.state_dict()[name] for name in sorted(trained)}, record
