"""The seam between the predict use case and a model: what a generator is asked and what it answers.

S samples, N heavy atoms, M = N (N - 1) / 2 pairs in row-major order of the strict upper triangle.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import SamplingSettings
from duallgd_cli.generator.reranker import CandidateScorer
from duallgd_cli.guide import Known
from duallgd_cli.predict.ranking import RankingModel
from duallgd_cli.spectra.types import AnnotatedSpectrum, Hypothesis

if TYPE_CHECKING:
    from duallgd_cli.predict.api import Predictions, Rescore, Spectra
    from duallgd_cli.predict.settings import PredictSettings

_SEED_BYTES: Final = 8
_ROUND_BITS: Final = 8  # the seeds of one round are so many apart that no other's are among them
_MOST_SEED: Final = (1 << 63) - 1


class OutOfTimeError(Exception):
    """One spectrum used up its time; raised between steps and turned into status ``timeout``."""


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """Bond matrices drawn for one hypothesis.

    Attributes:
        bond_class: Bond classes over `Formula.atom_class`, int8 (S, M).
        log_likelihood: Log-probability of each clean graph along its trajectory, float32 (S,).
        bond_log_prob: Clean-bond log-probabilities of the last step, float16 (S, M, 5), for repair;
            None where the generator does not keep them.
        fingerprint: Predicted probability of each Morgan bit, float32 (4096,), or None.
        scorer: Scores candidates for the spectrum, or None.
        notes: Sentences for the run record, such as a chunk halved after running out of memory.
        message: Sentence that must accompany the candidates, "" for none.
    """

    bond_class: NDArray[np.int8]
    log_likelihood: NDArray[np.float32]
    bond_log_prob: NDArray[np.float16] | None = None
    fingerprint: NDArray[np.float32] | None = None
    scorer: CandidateScorer | None = None
    notes: tuple[str, ...] = ()
    message: str = ""

    def __post_init__(self) -> None:
        samples = len(self.bond_class)
        if self.log_likelihood.shape != (samples,):
            raise ValueError(f"log_likelihood {self.log_likelihood.shape}, expected ({samples},)")
        if not np.isfinite(self.log_likelihood).all():
            raise ValueError("a log-likelihood is not finite: the generator is broken")
        expected = (*self.bond_class.shape, 5)
        if self.bond_log_prob is not None and self.bond_log_prob.shape != expected:
            raise ValueError(f"bond_log_prob {self.bond_log_prob.shape}, expected {expected}")


class Generator(Protocol):
    """Draws molecules for a spectrum; a trained model, or a stand-in for tests."""

    def generate(
        self,
        annotated: AnnotatedSpectrum,
        settings: SamplingSettings,
        seed: int,
        known: Known | None = None,
    ) -> Generated:
        """Draw `settings.samples` bond matrices; a function of the arguments and nothing else.

        Args:
            annotated: Explained peaks with formula and adduct.
            settings: Steps, samples, temperature, memory; `timeout_s` counts from this call.
            seed: Of the noise, from `noise_seed`.
            known: Molecules of the user to start from, if there are any.

        Raises:
            OutOfTimeError: `settings.timeout_s` passed; looked at between steps.
            RefusedError: The weights were not made for this formula or adduct.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A generator with what its checkpoint says about itself.

    Attributes:
        generator: Draws the molecules.
        ranking: Weights and calibration fitted for this checkpoint.
        name: What the user called the weights.
        sha256: Of the weights file; part of a journal's identity.
        max_heavy_atoms: Largest molecule the generator accepts.
        record: Training record of the checkpoint, for reports.
        parameters: Trainable parameters by part of the network, for reports.
        draws_aside: Whether drawing leaves this process idle: then it goes on beside other work.
        remark: Sentence that must accompany whatever it predicts; part of a journal's identity.
        known: First blocks of the InChIKeys of molecules that come with the weights, from which
            samples start: none of them may be a test molecule.
        engine: What evaluates the network, ``torch`` or ``openvino``; part of a journal's identity.
    """

    generator: Generator
    ranking: RankingModel
    name: str
    sha256: str
    max_heavy_atoms: int = 100
    record: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    remark: str = ""
    draws_aside: bool = False
    known: tuple[str, ...] = ()
    engine: str = "torch"

    def predict(
        self,
        spectra: "Spectra",
        settings: "PredictSettings | None" = None,
        *,
        formulas: Path | None = None,
        workers: int = 1,
        rescore: "Rescore | None" = None,
        **changes: object,
    ) -> "Predictions":
        """Predict structures for spectra; see `api.predictions`.

        Example:
            >>> model.predict("spectra.mgf", samples=20, formula="C8H10N4O2").to_dataframe()
        """
        from duallgd_cli.predict.api import predictions  # which builds on this module

        return predictions(self, spectra, settings, formulas, workers, rescore, changes)


def noise_seed(seed: int, hypothesis: Hypothesis, drawn: int = 0) -> int:
    """Seed of the noise of one hypothesis of which so much is drawn already, 0 to 2^63 - 1.

    A hash of the user's seed, the peaks of the (cleaned) spectra, the formula and the adduct: where
    the spectrum stands, what it is called and what else is in the run play no part, nor does the
    order of a feature's spectra.
    """
    total = hashlib.blake2b(digest_size=_SEED_BYTES)
    total.update(f"{seed}|{hypothesis.formula}|{hypothesis.adduct.name}".encode())
    peaks = (
        hashlib.blake2b(
            np.ascontiguousarray([spectrum.mz, spectrum.intensity], dtype="<f8").tobytes()
        ).digest()
        for spectrum in hypothesis.feature.spectra
    )
    for digest in sorted(peaks):
        total.update(digest)
    first = int.from_bytes(total.digest(), "little") >> 1
    return (first + (drawn << _ROUND_BITS)) & _MOST_SEED
