"""The authors' trained network behind the seam of `predict.generation`.

S samples, N heavy atoms, M = N (N - 1) / 2 pairs.
"""

from collections.abc import Callable
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
    SYMBOLS,
    AnnotatedSpectrum,
    Denoise,
    Failure,
    Generated,
    Hypothesis,
    Known,
    LoadedModel,
    RankingModel,
    RefusedError,
    Runtime,
    Samples,
    SamplingSettings,
    UnsupportedElementError,
    deadline,
    draw_in_chunks,
    on_one_thread,
    parameter_counts,
    samples_at_once,
    sampling_task,
    sha256,
)
from duallgd_authors_network.denoiser import NO_CLASS, ReferenceDenoiser
from duallgd_authors_network.encoder import FormulaPeaks, reference_peaks
from duallgd_authors_network.features import atoms_of, with_features
from duallgd_authors_network.settings import ReferenceSettings
from duallgd_authors_network.weights_file import ReferenceDualLGD

BYTES_PER_PAIR: Final = 24_576
# Reference: candidates are ranked by how often they were drawn. Those drawn equally often, which
# the authors leave to chance, are ordered by their likelihood as all ties are.
BY_FREQUENCY: Final = RankingModel(fingerprint_tanimoto=0.0)


@dataclass(frozen=True, eq=False)
class ReferenceGenerator:
    """Draws bond matrices with the authors' network.

    Attributes:
        model: On the runtime's device, in evaluation mode.
        runtime: Device and precision.
    """

    model: ReferenceDualLGD
    runtime: Runtime

    def generate(
        self,
        annotated: AnnotatedSpectrum,
        settings: SamplingSettings,
        seed: int,
        known: Known | None = None,
    ) -> Generated:
        """Draw `settings.samples` bond matrices; see `predict.generation.Generator`."""
        given = known is not None and bool(known.analogues or known.databases)
        if settings.core is not None or given:
            message = (
                "the authors' networks take no core, no analogues and no database; use duallgd's "
                "weights"
            )
            raise RefusedError(Failure("core_mismatch", message, "sample"))
        check = deadline(settings.timeout_s, self.runtime.synchronise)
        atoms, peaks = self._read(annotated.hypothesis)
        with on_one_thread():
            samples, notes = self._draw(atoms, peaks, settings, seed, check)
        log_prob = samples.bond_log_prob.clamp_min(-60_000)
        return Generated(
            bond_class=samples.bond_class.numpy().astype(np.int8),
            log_likelihood=samples.log_likelihood.numpy(),
            bond_log_prob=log_prob.numpy().astype(np.float16),
            notes=notes,
        )

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
            raise RefusedError(Failure(status, str(error), "sample")) from None
        return atoms, peaks.to(device)

    @torch.inference_mode()
    def _draw(
        self,
        atoms: Tensor,
        peaks: FormulaPeaks,
        settings: SamplingSettings,
        seed: int,
        check: Callable[[], None],
    ) -> tuple[Samples, tuple[str, ...]]:
        """Draw in the order of `atoms`; the condition is computed once for all samples."""
        device, process = self.runtime.device, self.model.settings
        autocast = self.runtime.autocast
        with autocast():
            condition = self.model.condition(peaks)
        denoise = bound(self.model.denoiser, process, atoms, condition.float(), autocast)
        n_atoms = atoms.shape[1]
        n_pairs = n_atoms * (n_atoms - 1) // 2
        # Reference: the last step is drawn like the others.
        task = sampling_task(process.process, settings, seed, n_pairs, device, last_jump="draw")
        chunk = samples_at_once(n_pairs, settings, device, BYTES_PER_PAIR)
        at_once = self.runtime.chunks_at_once
        return draw_in_chunks(lambda _: denoise, [task], lambda _: chunk, check, at_once)


def bound(
    denoiser: ReferenceDenoiser,
    settings: ReferenceSettings,
    atom_class: Tensor,
    condition: Tensor,
    precision: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Denoise:
    """The denoiser of one ion: noisy classes (S, M) and a step t to logits (S, M, classes).

    Args:
        denoiser: On the device of the condition.
        settings: Of the whole system.
        atom_class: Atoms of one graph as `atoms_of` gives them, (1, N), on that device.
        condition: Its projected fingerprint, (1, condition_width).
        precision: Context of the network's own products; the features, which are counts and
            eigenvectors, stay in float32.
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

    Args:
        path: As the command `convert` writes it.
        runtime: Where to run.

    Raises:
        WeightsError: Broken, or only an encoder or only a decoder.
    """
    checkpoint = reference.load(path)
    model = checkpoint.build().to(runtime.device)
    return LoadedModel(
        generator=ReferenceGenerator(model, runtime),
        ranking=BY_FREQUENCY,
        name=path.name,
        sha256=sha256(path),
        max_heavy_atoms=checkpoint.settings.max_atoms,
        record=checkpoint.record,
        parameters=parameter_counts(model),
    )
