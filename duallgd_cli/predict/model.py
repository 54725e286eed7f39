"""A loaded model: what encodes a spectrum, proposes molecules, scores them and ranks them."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import SamplingSettings
from duallgd_cli.ranking.one_list import FITTED, Membership, Ranking
from duallgd_cli.ranking.ranking import FEATURES, RankingModel
from duallgd_cli.scores import Score
from duallgd_cli.sources import BUILT_IN, CandidateSource
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.spectra.types import AnnotatedSpectrum

if TYPE_CHECKING:
    from duallgd_cli.diffusion.sampler import Sampler
    from duallgd_cli.predict.api import Predictions, Spectra
    from duallgd_cli.predict.settings import PredictSettings

logger = logging.getLogger(__name__)

# From explained peaks to the predicted probability of each Morgan bit, float32 (F,), and what each
# speaks for a molecule beside its isomers, likewise or None.
Encoded = tuple[NDArray[np.float32], NDArray[np.float32] | None]
Encode = Callable[[AnnotatedSpectrum], Encoded]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """All that predicting takes, with what its checkpoint says about itself.

    Attributes:
        encode: Predicts a fingerprint from explained peaks. May raise RefusedError: the weights
            were not made for this formula or adduct.
        sources: Propose molecules, in this order; see `sources.propose`.
        scores: Of every candidate.
        ranking: Weights and calibration fitted for this checkpoint.
        name: What the user called the weights.
        sha256: Of the weights file; part of a journal's identity.
        max_heavy_atoms: Largest molecule that it accepts.
        record: Training record of the checkpoint, for reports.
        parameters: Trainable parameters by part of the network, for reports.
        again: Loads it once more on one thread, in a process of its own; None where it must not be.
        remark: Sentence that must accompany whatever it predicts; part of a journal's identity.
        database: Ranking and calibration fitted for structures of a database; None where they
            never were.
        membership: Says whether the molecule is in a database.
        known: First blocks of the InChIKeys of molecules that come with the weights, from which
            samples start: none of them may be a test molecule.
        synchronise: Waits for what the device was asked to do, before a look at the clock.
        sampler: Draws with the network, for benches and studies; None without one.
    """

    encode: Encode
    sources: tuple[CandidateSource, ...]
    scores: tuple[Score, ...]
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
    synchronise: Callable[[], None] = lambda: None
    sampler: "Sampler | None" = None

    @property
    def own(self) -> list[str]:
        """Names of sources and scores that are the user's own."""
        names = [one.name for one in self.sources if one.name not in BUILT_IN]
        return [*names, *(one.name for one in self.scores if one.name not in FEATURES)]

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
        **changes: object,
    ) -> "Predictions":
        """Predict structures for spectra; see `api.predictions`.

        Example:
            >>> model.predict("spectra.mgf", samples=20, formula="C8H10N4O2").to_dataframe()
        """
        from duallgd_cli.predict.api import predictions  # which builds on this module

        return predictions(self, spectra, settings, formulas, workers, changes)


def warn_uncalibrated(
    model: LoadedModel, settings: "PredictSettings", files: GuideFiles | None = None
) -> None:
    """Warn where the confidence of a run was not calibrated."""
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
    if sampling.temperature != 1:
        yield f"temperature {sampling.temperature:g}"
    if sampling.sources != SamplingSettings().sources:
        yield f"sources {sampling.sources}"
