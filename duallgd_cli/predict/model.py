"""A loaded model: what encodes a spectrum, proposes molecules, scores them and ranks them."""

import logging
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import Checkpoint, require_trained
from duallgd_cli.checkpoint.format import load as load_checkpoint
from duallgd_cli.checkpoint.plugins import plugin_for
from duallgd_cli.chem.building_blocks import NO_BLOCKS
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.config import SamplingSettings, dump, parse
from duallgd_cli.data.peaks import from_annotated
from duallgd_cli.diffusion.sampler import Sampler, on_one_thread
from duallgd_cli.errors import ConfigError, WeightsError, counted
from duallgd_cli.files import sha256
from duallgd_cli.model.duallgd import parameter_counts
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.fragment_kernel import FragmentKernel
from duallgd_cli.model.rewritten import for_inference, rewritten_for
from duallgd_cli.ranking.one_list import FITTED, Membership, Ranking
from duallgd_cli.ranking.ranking import FEATURES, RankingModel
from duallgd_cli.runtime import Runtime
from duallgd_cli.scores import FragmentScorer, Score, fitted_scores
from duallgd_cli.sources import BUILT_IN, CandidateSource
from duallgd_cli.sources.collection import Collection
from duallgd_cli.sources.enumerated import AnalogueSource, DatabaseSource, Enumerated, LibrarySource
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.sources.network import Noise, Templates
from duallgd_cli.spectra.types import AnnotatedSpectrum

if TYPE_CHECKING:
    from duallgd_cli.predict.api import Predictions, Spectra
    from duallgd_cli.predict.settings import PredictSettings

logger = logging.getLogger(__name__)

_BY_DEFAULT: Final = SamplingSettings()

# From explained peaks to the predicted probability of each Morgan bit, float32 (F,), and what each
# speaks for a molecule beside its isomers, likewise or None.
Encoded = tuple[NDArray[np.float32], NDArray[np.float32] | None]
Encode = Callable[[AnnotatedSpectrum], Encoded]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """All that predicting takes, with what its checkpoint says about itself."""

    # predicts a fingerprint from explained peaks. May raise RefusedError: the weights were not
    # made for this formula or adduct.
    encode: Encode
    sources: tuple[CandidateSource, ...]  # propose molecules, in this order; see `sources.propose`
    scores: tuple[Score, ...]  # of every candidate
    ranking: RankingModel  # weights and calibration fitted for this checkpoint
    name: str  # what the user called the weights
    sha256: str  # of the weights file; part of a journal's identity
    max_heavy_atoms: int = 100  # largest molecule that it accepts
    record: Mapping[str, Any] = field(default_factory=dict)  # of the training, for reports
    parameters: Mapping[str, int] = field(default_factory=dict)  # their number by part, likewise
    remark: str = ""  # must accompany whatever it predicts; part of a journal's identity
    database: RankingModel | None = None  # as `ranking`, fitted for structures of a database
    membership: Membership = FITTED  # says whether the molecule is in a database
    # loads it once more on one thread, in a process of its own; None where it must not be
    again: "Callable[[], LoadedModel] | None" = None
    # first InChIKey blocks of the molecules of the weights: none may be a test molecule
    known: tuple[str, ...] = ()
    synchronise: Callable[[], None] = lambda: None  # waits for the device before a look at a clock
    sampler: Sampler | None = None  # draws with the network, for benches and studies

    @property
    def own(self) -> list[str]:
        """Names of sources and scores that are the user's own."""
        names = [one.name for one in self.sources if one.name not in BUILT_IN]
        return [*names, *(one.name for one in self.scores if one.name not in FEATURES)]

    def added(
        self, sources: Sequence[CandidateSource], scores: Sequence[Score] = ()
    ) -> "LoadedModel":
        """The model with further ones, in other processes too if they can be sent."""
        again = self.again and partial(_again_with, self.again, sources, scores)
        try:
            pickle.dumps(again)
        except Exception as error:  # noqa: BLE001  whatever foreign code raises
            logger.warning("own sources or scores cannot be sent to other processes: %s", error)
            again = None
        sources, scores = (*self.sources, *sources), (*self.scores, *scores)
        return replace(self, sources=sources, scores=scores, again=again)

    def identity(self, ranking: Ranking) -> dict[str, Any]:
        """What predicts, for the header of a journal and the record of a run."""
        about = {"name": self.name, "sha256": self.sha256, "ranking": dump(ranking.generated)}
        if ranking.database is not None:
            about |= {"database": dump(ranking.database), "membership": dump(ranking.membership)}
        more = {"remark": self.remark, "own": self.own}
        return about | {name: value for name, value in more.items() if value}

    def ranking_for(self, settings: "PredictSettings", files: GuideFiles | None = None) -> Ranking:
        """The ranking of a run with these settings, and files that say what is known.

        A warning says where its confidence was not calibrated.
        """
        sampling, fitted, reasons = settings.sampling, self.ranking, list[str]()
        steps, samples = sampling.steps, sampling.samples
        has_database = files is not None and bool(files.databases)
        share = sampling.database_share if has_database else 0.0
        if has_database and self.database is None:
            reasons.append("structures of a database")
        least, most = fitted.least_samples, fitted.most_samples
        is_within = least <= samples <= most and fitted.least_steps <= steps <= fitted.most_steps
        if share == 1:
            logger.warning("confidence is for the case that the structure is in the database")
        elif not is_within:
            reasons.append(
                f"{counted(samples, 'sample')} and {counted(steps, 'step')} (but {least} to {most} "
                f"samples and {fitted.least_steps} to {fitted.most_steps} steps)"
            )
        if share != 1 and sampling.sources != _BY_DEFAULT.sources:
            reasons.append(f"sources {sampling.sources}")
        is_guided = files is not None and (files.analogues or files.libraries or files.tables)
        if settings.guide is not None or is_guided:
            reasons.append(
                "a core, parts or analogues that are known (with right ones it is too low)"
            )
        if not fitted.n_spectra:
            logger.warning(
                "the ranking of these weights was never fitted: confidence means nothing"
            )
        elif reasons:
            said = "confidence was not calibrated for %s: take it as a rough guide"
            logger.warning(said, " and ".join(reasons))
        generated = replace(fitted, steps=steps)
        if not has_database:
            return Ranking(generated)
        database = replace(self.database or fitted, steps=steps)
        return Ranking(generated, database, self.membership, share)

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


def _again_with(
    again: Callable[[], LoadedModel], sources: Sequence[CandidateSource], scores: Sequence[Score]
) -> LoadedModel:
    return again().added(sources, scores)


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """Predicts the fingerprint of a spectrum's molecule."""

    network: FormulaTransformer  # the formula transformer of the trained network
    runtime: Runtime  # device and precision
    kernel: FragmentKernel | None = None  # what known molecules with like spectra say, or None
    isomers: FormulaTransformer | None = None  # what bits speak for a molecule beside isomers

    @torch.inference_mode()
    def __call__(self, annotated: AnnotatedSpectrum) -> Encoded:
        """See `Encode`."""
        with on_one_thread():
            peaks = from_annotated(annotated).to(self.runtime.device)
            with self.runtime.autocast():
                logits = self.network(peaks)
                odds = None if self.isomers is None else self.isomers(peaks)[0].float()
            if self.kernel is not None:
                logits = self.kernel.mixed(logits, peaks)
            fingerprint = torch.sigmoid(logits.float())[0].cpu().numpy()
            return fingerprint, None if odds is None else odds.cpu().numpy()


def load_model(weights: str | Path | None, runtime: Runtime) -> LoadedModel:
    """Load weights for prediction, from a file or a name; None takes the shipped ones.

    Raises:
        WeightsError: Missing, broken, of another shape, or a file that no plug-in reads.
    """
    path = resolve_weights(weights)
    if (plugin := plugin_for(path)) is not None:
        return plugin.load(path, runtime)
    checkpoint = load_checkpoint(path)
    require_trained(checkpoint.record, path)
    model = model_of(checkpoint, path, runtime)
    device = str(runtime.device)
    again = None if device == "mps" else partial(_on_one_thread, path, device, runtime.precision)
    return replace(model, sha256=sha256(path), again=again)


def _on_one_thread(path: Path, device: str, precision: str) -> LoadedModel:
    return load_model(path, Runtime.resolve(device, precision, threads=1))


def model_of(checkpoint: Checkpoint, path: Path, runtime: Runtime) -> LoadedModel:
    """What predicts with the content of a weights file, each part of it checked.

    Raises:
        WeightsError: A part is broken or does not fit the others.
    """
    bits = checkpoint.settings.encoder.fingerprint_bits
    if bits != FINGERPRINT_BITS:
        raise WeightsError(
            f"weights {path} predict {bits} fingerprint bits, molecules have {FINGERPRINT_BITS}; "
            "train with the default fingerprint_bits"
        )
    collection = Collection.of(checkpoint.templates) if checkpoint.templates else None
    blocks = NO_BLOCKS if collection is None else collection.blocks
    arrays = {name: tensor.numpy() for name, tensor in checkpoint.reranker.items()}
    scores, fragments = fitted_scores(arrays, blocks.ends)
    kernel = None
    if checkpoint.kernel:
        if collection is None:
            raise WeightsError(
                f"weights {path} hold spectra of known molecules without these; fetch or copy "
                "them again"
            )
        known = collection.molecules
        kernel = FragmentKernel.of(checkpoint.kernel, known.bit_offset, known.bits)
        kernel = kernel.to(runtime.device)
    if (isomers := checkpoint.contrast_encoder()) is not None:
        isomers = isomers.to(runtime.device)
    try:
        ranking = RankingModel.stored(checkpoint.ranking)
        database = RankingModel.stored(checkpoint.database) if checkpoint.database else None
        membership = parse(Membership, checkpoint.membership or dump(FITTED))
    except ConfigError as error:
        raise WeightsError(
            f"the ranking in weights {path} is of another version ({error}); take the weights that "
            "come with this one"
        ) from None
    built = checkpoint.build()
    rewritten, network = rewritten_for(built, runtime), for_inference(built, runtime)
    sampler = Sampler(network, runtime, rewritten)
    return LoadedModel(
        encode=Encoder(network.encoder, runtime, kernel, isomers),
        sources=sources_of(sampler, collection, fragments),
        scores=scores,
        ranking=ranking,
        database=database,
        membership=membership,
        name=path.name,
        sha256="",
        record=checkpoint.record,
        parameters=parameter_counts(network),
        known=() if collection is None else collection.names,
        synchronise=runtime.synchronise,
        sampler=sampler,
    )


def sources_of(
    sampler: Sampler, collection: Collection | None = None, fragments: FragmentScorer | None = None
) -> tuple[CandidateSource, ...]:
    """The sources of a network with a collection of known molecules, in their order."""
    of_user = LibrarySource(), DatabaseSource(fragments)
    analogues = AnalogueSource(sampler, collection, fragments)
    if collection is None:
        return *of_user, analogues, Noise(sampler)
    enumerated, templates = Enumerated(collection, fragments), Templates(sampler, collection)
    return *of_user, analogues, enumerated, templates, Noise(sampler)
