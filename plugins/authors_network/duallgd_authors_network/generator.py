"""The authors' trained network as a source of candidates.

S samples, N heavy atoms, M = N (N - 1) / 2 pairs.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from duallgd_authors_network import weights_file as reference
from duallgd_authors_network.core import (
    BOND_NONE,
    FINGERPRINT_BITS,
    SYMBOLS,
    AnnotatedSpectrum,
    ConfigError,
    Denoise,
    Encoded,
    Failure,
    Hypothesis,
    LoadedModel,
    Proposal,
    Query,
    RankingModel,
    RefusedError,
    Runtime,
    Samples,
    SamplingSettings,
    SamplingTask,
    UnsupportedElementError,
    alpha_bar,
    assembled,
    on_one_thread,
    parameter_counts,
    sample,
    sha256,
)
from duallgd_authors_network.denoiser import NO_CLASS, ReferenceDenoiser
from duallgd_authors_network.encoder import FormulaPeaks, reference_peaks
from duallgd_authors_network.features import atoms_of, with_features
from duallgd_authors_network.settings import ReferenceSettings
from duallgd_authors_network.weights_file import ReferenceDualLGD

BYTES_PER_PAIR: Final = 24_576
MOST_PAIRS_ON_CPU: Final = 8_192
# Reference: candidates are ranked by how often they were drawn. Those drawn equally often, which
# the authors leave to chance, are ordered by their likelihood as all ties are.
BY_FREQUENCY: Final = RankingModel(fingerprint_tanimoto=0.0)


def evenly_spaced(n_steps: int, evaluations: int) -> tuple[int, ...]:
    """J evaluations from T to 0, each step rounded to the nearest (half to even).

    Raises:
        ConfigError: More evaluations than steps.
    """
    if evaluations > n_steps:
        raise ConfigError(f"steps must be 1 to {n_steps}, not {evaluations}")
    visited = [round(n_steps - i * n_steps / evaluations) for i in range(evaluations)]
    return (*visited, 0)


@dataclass(frozen=True, eq=False)
class AuthorsNoise:
    """A source that draws bond matrices with the authors' network."""

    model: ReferenceDualLGD  # on the runtime's device, in evaluation mode
    runtime: Runtime
    name: str = "noise"

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """Draw n graphs; every one is a proposal, molecule or not."""
        return iter(assembled(self.name, query, self.draw(query, n, seed)))

    def encode(self, annotated: AnnotatedSpectrum) -> Encoded:
        """Whether the network takes a spectrum; trained on bonds alone, it gives no fingerprint."""
        self._read(annotated.hypothesis)
        return np.zeros(FINGERPRINT_BITS, np.float32), None

    def symbols(self, hypothesis: Hypothesis) -> list[str]:
        """Elements of the atoms as the network sees them: sorted, an order that any user has.

        Reference: the network reads the order.
        """
        return [SYMBOLS[element] for element in hypothesis.formula.atom_class]

    def _read(self, hypothesis: Hypothesis) -> tuple[Tensor, FormulaPeaks]:
        """What the network sees of a hypothesis, on its device; refused if it is not its kind."""
        spectra, device = hypothesis.feature.spectra, self.runtime.device
        try:
            atoms = atoms_of(self.symbols(hypothesis), self.model.settings, device)
            peaks = reference_peaks(
                hypothesis.formula,
                hypothesis.adduct,
                np.concatenate([spectrum.mz for spectrum in spectra]),
                np.concatenate([spectrum.intensity for spectrum in spectra]),
                spectra[0].precursor_mz,
            )
        except ValueError as error:
            is_element = isinstance(error, UnsupportedElementError)
            status = "unsupported_element" if is_element else "unsupported_adduct"
            raise RefusedError(Failure(status, str(error))) from None
        return atoms, peaks.to(device)

    @torch.inference_mode()
    def draw(self, query: Query, n: int, seed: int) -> Samples:
        """Draw n graphs in the order of `symbols`; the condition is computed once for all."""
        atoms, peaks = self._read(query.annotated.hypothesis)
        settings, process, device = query.sampling, self.model.settings.process, self.runtime.device
        n_pairs = atoms.shape[1] * (atoms.shape[1] - 1) // 2
        task = SamplingTask(
            plan=evenly_spaced(process.n_steps, settings.steps),
            marginal=torch.tensor(process.marginal, device=device),
            alpha_bar=alpha_bar(process.n_steps).to(device),
            seed=seed,
            samples=n,
            n_pairs=n_pairs,
            last_jump="draw",  # Reference: the last step is drawn like the others.
        )
        at_once = chunk_size(n_pairs, settings, device)
        with on_one_thread():
            with self.runtime.autocast():
                condition = self.model.condition(peaks)
            autocast = self.runtime.autocast
            denoise = bound(
                self.model.denoiser, self.model.settings, atoms, condition.float(), autocast
            )
            rows = (slice(first, min(first + at_once, n)) for first in range(0, n, at_once))
            return Samples.join([sample(denoise, task, own, query.check).cpu() for own in rows])


def chunk_size(n_pairs: int, settings: SamplingSettings, device: torch.device) -> int:
    """Samples drawn together."""
    pairs = settings.max_memory_mib * (1 << 20) // BYTES_PER_PAIR
    if device.type == "cpu":
        pairs = min(pairs, MOST_PAIRS_ON_CPU)
    return max(1, pairs // n_pairs)


def bound(
    denoiser: ReferenceDenoiser,
    settings: ReferenceSettings,
    atom_class: Tensor,
    condition: Tensor,
    precision: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Denoise:
    """The denoiser of one ion: noisy classes (S, M) and a step t to logits (S, M, classes).

    Atoms are as `atoms_of` gives them, (1, N). The precision is that of the network's own products;
    the features, which are counts and eigenvectors, stay in float32.
    """

    def denoise(bond_class: Tensor, t: int) -> Tensor:
        atoms = atom_class.expand(len(bond_class), -1)
        mask = torch.ones_like(atoms, dtype=torch.bool)
        time = torch.full((len(atoms),), t / settings.n_steps, device=condition.device)
        # Reference: before the first draw the diagonal is empty, afterwards it says "none".
        diagonal = NO_CLASS if t == settings.n_steps else BOND_NONE
        graphs = with_features(settings, atoms, mask, bond_class, time, condition, diagonal)
        with precision():
            return denoiser(graphs)

    return denoise


def load_for_prediction(path: Path, runtime: Runtime) -> LoadedModel:
    """Load converted weights of the authors' fine-tuned system for prediction.

    Raises:
        WeightsError: Broken, or only an encoder or only a decoder.
    """
    checkpoint = reference.load(path)
    model = checkpoint.build().to(runtime.device)
    source = AuthorsNoise(model, runtime)
    return LoadedModel(
        encode=source.encode,
        sources=(source,),
        scores=(),
        ranking=BY_FREQUENCY,
        name=path.name,
        sha256=sha256(path),
        max_heavy_atoms=checkpoint.settings.max_atoms,
        record=checkpoint.record,
        parameters=parameter_counts(model),
        synchronise=runtime.synchronise,
    )
