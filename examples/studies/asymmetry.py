r"""What cross-attention looks at: how a pair shares its attention between its two end atoms.

The paper (section 4.5, label ``sec:cross_attn_interp``) looks at the weights of equation 6
(``eq:l_from_p``), which each pair gives its two atoms, and defines the asymmetry ratio

.. math:: r_{ij} = \alpha_{u_{ij}, i_{low}} / \alpha_{u_{ij}, i_{high}}

of the less over the more electronegative end. It does not say how heads, layers and noise levels
enter. Here the weights are averaged over heads, noise draws, layers and noise levels, which leaves
two weights a pair that still sum to one, and the ratio is taken once, of these means. Means over
all but layers, and all but noise levels, are kept beside it.

Letters: L layers, S noise levels, D noise draws, M pairs, H heads.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from layout import places
from networks import build as build_own
from numpy.typing import NDArray
from torch import Tensor, nn

from duallgd_cli.checkpoint import format as own_format
from duallgd_cli.checkpoint.format import is_reference
from duallgd_cli.chem.elements import HEAVY
from duallgd_cli.data.batches import MoleculeCollator
from duallgd_cli.data.peaks import prepared_batch
from duallgd_cli.data.prepared import (
    FOLDS,
    Molecules,
    PreparedSpectra,
    load_molecules,
    load_spectra,
    read_manifest,
)
from duallgd_cli.diffusion import alpha_bar, corrupt
from duallgd_cli.errors import UsageError
from duallgd_cli.model.duallgd import Condition, DualLGD, keep_bits
from duallgd_cli.model.encoder import PeakBatch
from duallgd_cli.model.line_graph import PairsFromAtoms, line_graph
from duallgd_cli.reference import weights_file as reference
from duallgd_cli.reference.denoiser import ReferenceDenoiser, StreamAttention
from duallgd_cli.reference.features import atoms_of
from duallgd_cli.reference.generator import bound
from duallgd_cli.reference.settings import ReferenceSettings

Denoise = Callable[[Tensor, int], object]
# Weights closer to 0 than this are float32's rounding of a sigmoid; log2 of the ratio stays finite.
_LEAST_WEIGHT: Final = 1e-7


@dataclass(frozen=True)
class NoiseLevels:
    """How the graphs are noised that the network looks at.

    Attributes:
        steps: Noise levels t.
        draws: Noisy graphs of each molecule at each level.
        seed: Of the noise.
    """

    steps: tuple[int, ...] = (50, 250, 500)
    draws: int = 2
    seed: int = 0


@dataclass(frozen=True, eq=False)
class KnownMolecule:
    """One molecule whose bonds are known; N heavy atoms, M = N (N - 1) / 2 pairs.

    Attributes:
        key: First block of its InChIKey.
        atom_class: Elements, sorted, int64 (N,).
        bond_class: True classes, int64 (M,).
        condition: Its formula and true fingerprint, a batch of one.
        peaks: One of its spectra, a batch of one; None where none was asked for.
    """

    key: str
    atom_class: NDArray[np.int64]
    bond_class: NDArray[np.int64]
    condition: Condition
    peaks: PeakBatch | None = None

    def places(self) -> NDArray[np.float64]:
        """Where a drawing puts its atoms, float64 (N, 2)."""
        return places(self.atom_class, self.bond_class)


@dataclass(frozen=True)
class Selection:
    """Which molecules of a folder are looked at.

    Attributes:
        fold: Their fold; "" takes val where there is one, else dev.
        limit: Number of molecules, always the same ones; None takes all.
        peaks: Whether a spectrum of each is needed.
        max_atoms: The largest, in heavy atoms.
    """

    fold: str = ""
    limit: int | None = None
    peaks: bool = False
    max_atoms: int = 100


def known_molecules(folder: Path, selection: Selection) -> tuple[list[KnownMolecule], str]:
    """Molecules of one fold, by the hash of their InChIKey, and the fold they are of.

    Raises:
        MissingInputError: The folder holds no prepared data.
        UnreadableError: They are broken.
        UsageError: No molecule is of that fold, or spectra are needed and there are none.
    """
    if selection.peaks and "spectrum_id" not in read_manifest(folder)["arrays"]:
        raise UsageError(f"{folder} holds no spectra; use the true fingerprints, or other data")
    spectra = load_spectra(folder) if selection.peaks else None
    molecules = load_molecules(folder) if spectra is None else spectra.molecules
    fold = selection.fold or ("val" if molecules.in_folds("val").any() else "dev")
    rows = _rows(molecules, fold, selection, folder)
    if spectra is not None:
        rows = rows[np.isin(rows, np.asarray(spectra.molecule))]
    order = sorted(rows.tolist(), key=lambda row: _hash(molecules.inchikey[row].tobytes()))
    collator = MoleculeCollator(molecules, None)
    return [_known(collator, row, spectra) for row in order[: selection.limit]], fold


def _rows(molecules: Molecules, fold: str, selection: Selection, folder: Path) -> NDArray[np.int64]:
    if fold not in FOLDS:
        raise UsageError(f"fold {fold!r} is unknown; choose one of {', '.join(FOLDS)}")
    fits = (molecules.n_heavy >= 2) & (molecules.n_heavy <= selection.max_atoms)
    rows = np.flatnonzero(fits & molecules.in_folds(fold))
    if not len(rows):
        present = ", ".join(FOLDS[number] for number in np.unique(molecules.fold))
        raise UsageError(f"{folder} holds no molecule of fold {fold}; its folds are {present}")
    return rows


def _known(collator: MoleculeCollator, row: int, spectra: PreparedSpectra | None) -> KnownMolecule:
    molecules, rows, unused = collator.molecules, np.array([row]), np.random.default_rng(0)
    size, peaks = int(molecules.n_heavy[row]), None
    if spectra is not None:
        own = np.flatnonzero(np.asarray(spectra.molecule) == row).tolist()
        chosen = min(own, key=lambda number: _hash(spectra.spectrum_id[number].tobytes()))
        peaks = prepared_batch(spectra, [chosen])
    return KnownMolecule(
        key=molecules.inchikey[row].decode(),
        atom_class=molecules.atom_class(row),
        bond_class=molecules.bond_class(row).astype(np.int64),
        condition=collator.condition(rows, size, unused),
        peaks=peaks,
    )


def _hash(name: bytes) -> bytes:
    return hashlib.blake2b(name, digest_size=8).digest()


def _first_weight(part: StreamAttention, pairs: Tensor, atoms: Tensor) -> Tensor:
    """What `PairsFromAtoms.first_weight` gives, of the authors' network."""
    line = line_graph(atoms.shape[1], atoms.device)
    query, key = (
        x.unflatten(-1, (part.heads, -1)) for x in (part.q_proj(pairs), part.k_proj(atoms))
    )
    apart = key[:, line.first] - key[:, line.second]
    return torch.sigmoid((query * apart).sum(-1) * query.shape[-1] ** -0.5)


@contextmanager
def watched(network: nn.Module) -> Iterator[list[Tensor | None]]:
    """What every attention of pairs to their atoms gave the lower atom last, (D, M, H), by layer.

    None where a layer's attention was not asked, or not for two atoms alone (some ablations).
    The network is the same before and after, so prediction pays nothing for the study.

    Raises:
        UsageError: The network has no such attention (some of the paper's ablations).
    """
    theirs = [part for part in network.modules() if isinstance(part, ReferenceDenoiser)]
    told = {child for part in theirs for child in getattr(part, "d_from_p", ())}
    parts = [p for p in network.modules() if isinstance(p, PairsFromAtoms) or p in told]
    if not parts:
        raise UsageError("in this network pairs do not attend to their two atoms")
    first: list[Tensor | None] = [None] * len(parts)

    def look(layer: int, part: Any, given: tuple[Any, ...]) -> None:  # noqa: ANN401
        pairs, atoms, seen = given
        if isinstance(part, PairsFromAtoms):
            first[layer] = part.first_weight(pairs, atoms, seen)
        elif seen.shape[1] > 1:  # a row for each pair, else none is hidden from any
            first[layer] = _first_weight(part, pairs, atoms)

    hooks = [
        part.register_forward_pre_hook(partial(look, layer)) for layer, part in enumerate(parts)
    ]
    try:
        yield first
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True, eq=False)
class Studied:
    """A network that is looked at, ours or the authors'.

    Attributes:
        network: With the denoiser.
        device: Where it lies.
        n_steps: T.
        marginal: Share of each bond class among pairs.
        symbols: Elements that it knows.
        bind: From such a network, a molecule and a number of noise draws D to a function of noisy
            classes (D, M) at a step t.
        fresh: Makes such a network before training.
    """

    network: nn.Module
    device: torch.device
    n_steps: int
    marginal: tuple[float, ...]
    symbols: tuple[str, ...]
    bind: Callable[[Any, KnownMolecule, int], Denoise]
    fresh: Callable[[], nn.Module]

    def knows(self, molecule: KnownMolecule) -> bool:
        """Whether all elements are in its vocabulary."""
        return {HEAVY[e] for e in molecule.atom_class} <= set(self.symbols)

    def denoiser(self, molecule: KnownMolecule, draws: int) -> Denoise:
        """Of noisy classes (D, M) at a step t of one molecule."""
        return self.bind(self.network, molecule, draws)

    def untrained(self, seed: int) -> "Studied":
        """The same network before training; the global generator of numbers is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return replace(self, network=self.fresh().to(self.device).eval())


def ours(model: DualLGD, device: torch.device, predicted: bool = False) -> Studied:
    """The default network, conditioned on true fingerprints or on those that it predicts."""
    settings = model.settings

    def bind(network: DualLGD, molecule: KnownMolecule, draws: int) -> Denoise:
        known = molecule.condition
        if predicted and molecule.peaks is not None:
            logits = network.encoder(molecule.peaks.to(device)).float().cpu()
            bit, log_prob = keep_bits(torch.sigmoid(logits), settings.memory_bits)
            known = replace(known, bit=bit, bit_log_prob=log_prob)
        context = network.denoiser.context(known.to(device)).expand(draws)

        def denoise(bond_class: Tensor, t: int) -> object:
            return network.denoiser(bond_class, torch.full((draws,), t, device=device), context)

        return denoise

    process, fresh = settings.diffusion, partial(build_own, settings)
    return Studied(model, device, process.n_steps, process.marginal, HEAVY, bind, fresh)


def authors(
    network: ReferenceDenoiser,
    projection: nn.Linear | None,
    settings: ReferenceSettings,
    device: torch.device,
) -> Studied:
    """The authors' network, conditioned on true fingerprints, its atoms in our formula order.

    Args:
        network: The denoiser.
        projection: Of the fingerprint in a fine-tuned system; None for a pre-trained decoder,
            which reads the bits themselves, folded to the width of its condition.
        settings: Of the whole system.
        device: Where both lie.
    """

    def bind(network: ReferenceDenoiser, molecule: KnownMolecule, draws: int) -> Denoise:
        del draws
        symbols = [HEAVY[element] for element in molecule.atom_class]
        bit, width = molecule.condition.bit[0], settings.denoiser.condition_width
        if projection is None:
            condition = torch.zeros(1, width).index_fill_(1, bit % width, 1.0)
        else:
            dense = torch.zeros(1, projection.in_features).index_fill_(1, bit, 1.0)
            condition = projection(dense.to(device))
        return bound(network, settings, atoms_of(symbols, settings, device), condition.to(device))

    known, fresh = settings.atom_symbols, partial(ReferenceDenoiser, settings.denoiser)
    return Studied(network, device, settings.n_steps, settings.marginal, known, bind, fresh)


def load_studied(weights: Path, device: torch.device, predicted: bool) -> Studied:
    """The network of a weights file, ours or a converted one of the authors.

    Args:
        weights: The file.
        device: Where it shall lie.
        predicted: Condition on fingerprints that its encoder predicts.

    Raises:
        WeightsError: Missing, broken, or without a denoiser.
        UsageError: Predicted fingerprints are asked for of the reference network.
    """
    if not is_reference(weights):
        model = own_format.load(weights).build(build_own).to(device)
        return ours(model, device, predicted)
    if predicted:
        raise UsageError(
            "prepared spectra are annotated for the default network; study the reference network "
            "with --condition true"
        )
    checkpoint = reference.load(weights)
    network = checkpoint.build([p for p in checkpoint.parts if p != "encoder"]).to(device)
    projection = network.projection if "projection" in checkpoint.parts else None
    return authors(network.denoiser, projection, checkpoint.settings, device)


@torch.inference_mode()
def first_weights(
    studied: Studied, molecule: KnownMolecule, noise: NoiseLevels, layers: Sequence[int]
) -> NDArray[np.float64]:
    """Attention that each pair gives its lower atom, the mean over heads and noise draws.

    Args:
        studied: The network.
        molecule: Its bonds are noised, its fingerprint is the condition.
        noise: Levels, draws and seed; the noise depends on these and the molecule's key alone.
        layers: Those to look at, from 0.

    Returns:
        float64 (L, S, M), each between 1e-7 and 1 - 1e-7; the higher atom gets the rest.
    """
    device = studied.device
    clean = torch.from_numpy(molecule.bond_class).expand(noise.draws, -1).to(device)
    number = int.from_bytes(_hash(molecule.key.encode()))
    generator = np.random.default_rng((noise.seed, number))
    uniform = generator.random((len(noise.steps), *clean.shape), np.float32)
    marginal = torch.tensor(studied.marginal, device=device)
    share = alpha_bar(studied.n_steps)
    denoise = studied.denoiser(molecule, noise.draws)
    seen: list[list[Tensor]] = []
    with watched(studied.network) as first:
        for t, drawn in zip(noise.steps, torch.from_numpy(uniform).to(device), strict=True):
            kept = share[t].to(device).expand(noise.draws)
            denoise(corrupt(clean, kept, marginal, drawn), t)
            seen.append([_mean_weight(first[layer], layer) for layer in layers])
    found = torch.stack([torch.stack(step) for step in seen], 1).cpu()
    return found.clamp(_LEAST_WEIGHT, 1 - _LEAST_WEIGHT).numpy()


def check(studied: Studied, steps: Sequence[int], layers: Sequence[int] | None) -> list[int]:
    """Layers to look at, from 0; all of them if None.

    Args:
        studied: The network.
        steps: Noise levels that are asked for.
        layers: Layers that are asked for, from 1.

    Raises:
        UsageError: A level is not in 1 to T, or there is no such layer.
    """
    wrong = [t for t in steps if not 1 <= t <= studied.n_steps]
    if wrong or not steps:
        raise UsageError(f"noise levels must be 1 to {studied.n_steps}, not {wrong or 'none'}")
    with watched(studied.network) as first:
        count = len(first)
    chosen = list(range(1, count + 1)) if layers is None else sorted(set(layers))
    if not chosen or not 1 <= chosen[0] <= chosen[-1] <= count:
        raise UsageError(f"layers must be 1 to {count}, not {chosen}")
    return [layer - 1 for layer in chosen]


def _mean_weight(first: Tensor | None, layer: int) -> Tensor:
    """Mean over draws and heads, (D, M, H) to float64 (M,)."""
    if first is None:  # an ablation: other readout, or no incidence mask
        raise UsageError(f"in layer {layer + 1} of this network no pair attends to its two atoms")
    return first.double().mean((0, 2))
