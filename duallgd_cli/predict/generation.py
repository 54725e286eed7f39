"""The seam between the predict use case and a model: what a generator is asked and what it answers.

S samples, N heavy atoms, M = N (N - 1) / 2 pairs in row-major order of the strict upper triangle.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import SamplingSettings
from duallgd_cli.generator.reranker import CandidateScorer
from duallgd_cli.guide import GuideFiles, Known
from duallgd_cli.predict.one_list import FITTED, Membership, Ranking
from duallgd_cli.predict.ranking import RankingModel
from duallgd_cli.spectra.types import AnnotatedSpectrum, Hypothesis

if TYPE_CHECKING:
    from duallgd_cli.chem.molecule import Mol
    from duallgd_cli.predict.api import Predictions, Rescore, Spectra
    from duallgd_cli.predict.settings import PredictSettings

logger = logging.getLogger(__name__)

_SEED_BYTES: Final = 8
_ROUND_BITS: Final = 8  # the seeds of one round are so many apart that no other's are among them
_MOST_SEED: Final = (1 << 63) - 1


class OutOfTimeError(Exception):
    """One spectrum used up its time; raised between steps and turned into status ``timeout``."""


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """What is proposed for one hypothesis: bond matrices that were drawn, and complete molecules.

    Attributes:
        bond_class: Bond classes over `Formula.atom_class`, int8 (S, M).
        log_likelihood: Log-probability of each clean graph along its trajectory, float32 (S,).
        bond_log_prob: Clean-bond log-probabilities of the last step, float16 (S, M, 5), for repair;
            None where the generator does not keep them.
        sources: Where each sample comes from, such as ``noise`` or ``templates``, (S,); empty if
            all come from noise.
        molecules: Source and molecule of those that needed no network; all of the formula.
        fingerprint: Predicted probability of each Morgan bit, float32 (4096,), or None.
        scorer: Scores candidates for the spectrum, or None.
        notes: Sentences for the run record, such as a chunk halved after running out of memory.
        message: Sentence that must accompany the candidates, "" for none.
        excluded: First blocks of the InChIKeys of molecules that are no candidates.
    """

    bond_class: NDArray[np.int8]
    log_likelihood: NDArray[np.float32]
    bond_log_prob: NDArray[np.float16] | None = None
    sources: tuple[str, ...] = ()
    molecules: "tuple[tuple[str, Mol], ...]" = ()
    fingerprint: NDArray[np.float32] | None = None
    scorer: CandidateScorer | None = None
    notes: tuple[str, ...] = ()
    message: str = ""
    excluded: frozenset[str] = frozenset()

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
            RefusedError: The weights were not made for this formula or adduct, or no database has
                a molecule of it.
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
        again: Loads it once more on one thread, in a process of its own; None where it must not be.
        remark: Sentence that must accompany whatever it predicts; part of a journal's identity.
        database: Ranking and calibration fitted for structures of a database; None where they
            never were.
        membership: Says whether the molecule is in a database.
        known: First blocks of the InChIKeys of molecules that come with the weights, from which
            samples start: none of them may be a test molecule.
    """

    generator: Generator
    ranking: RankingModel
    name: str
    sha256: str
    max_heavy_atoms: int = 100
    record: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    remark: str = ""
    database: RankingModel | None = None
    membership: Membership = FITTED
    again: "Callable[[], LoadedModel] | None" = None
    known: tuple[str, ...] = ()

    def ranking_for(self, settings: "PredictSettings", files: GuideFiles | None = None) -> Ranking:
        """The ranking of a run with these settings, and files that say what is known."""
        steps = settings.sampling.steps
        generated = replace(self.ranking, steps=steps)
        if files is None or not files.databases:
            return Ranking(generated)
        database = replace(self.database or self.ranking, steps=steps)
        return Ranking(generated, database, self.membership, settings.sampling.database_share)

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


def warn_uncalibrated(
    model: LoadedModel, settings: "PredictSettings", files: GuideFiles | None = None
) -> None:
    """Warn where the confidence of a run was not calibrated.

    Args:
        model: Draws and ranks.
        settings: Of the run.
        files: That say what is known of the molecules, if there are any.
    """
    ranking, reasons = model.ranking, list[str]()
    share = settings.sampling.database_share
    if files is not None and files.databases:
        reasons += ["structures of a database"] if model.database is None else []
        if share == 1:
            logger.warning("confidence is for the case that the structure is in the database")
    if files is None or not files.databases or share < 1:
        reasons += _uncalibrated_draws(ranking, settings.sampling)
    alike = files is not None and bool(files.analogues or files.libraries or files.tables)
    if settings.guide is not None or alike:
        reasons.append("a core, parts or analogues that are known (with right ones it is too low)")
    if not ranking.n_spectra:
        logger.warning("the ranking of these weights was never fitted: confidence means nothing")
    elif reasons:
        logger.warning(
            "confidence was not calibrated for %s: take it as a rough guide", " and ".join(reasons)
        )


def _uncalibrated_draws(ranking: RankingModel, sampling: SamplingSettings) -> Iterator[str]:
    """What of the way that samples are drawn the probabilities were not fitted on."""
    steps, samples = sampling.steps, sampling.samples
    least, most = ranking.least_samples, ranking.most_samples
    if not least <= samples <= most or not ranking.least_steps <= steps <= ranking.most_steps:
        yield (
            f"{samples} samples and {steps} steps (but {least} to {most} samples and "
            f"{ranking.least_steps} to {ranking.most_steps} steps)"
        )
    if sampling.schedule is not None:
        yield f"schedule {sampling.schedule}"
    if sampling.temperature != 1:
        yield f"temperature {sampling.temperature:g}"


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
