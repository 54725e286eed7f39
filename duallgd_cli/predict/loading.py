"""Loading weights: from a file to a model that predicts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import Checkpoint
from duallgd_cli.checkpoint.format import load as load_checkpoint
from duallgd_cli.checkpoint.lineage import require_trained
from duallgd_cli.checkpoint.plugins import plugin_for
from duallgd_cli.chem.building_blocks import NO_BLOCKS
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.peaks import from_annotated, peak_batch
from duallgd_cli.diffusion.process import parse_schedule
from duallgd_cli.diffusion.sampler import Sampler, on_one_thread
from duallgd_cli.errors import ConfigError, WeightsError
from duallgd_cli.files import sha256
from duallgd_cli.model.duallgd import DualLGD, parameter_counts
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.fragment_kernel import FragmentKernel
from duallgd_cli.model.rewritten import for_inference, rewritten_for
from duallgd_cli.predict.model import Encoded, LoadedModel
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.runtime import Runtime
from duallgd_cli.scores import Score
from duallgd_cli.scores.fragments import FragmentScorer
from duallgd_cli.scores.substructures import fitted_scores
from duallgd_cli.sources import CandidateSource
from duallgd_cli.sources.collection import Collection
from duallgd_cli.sources.enumerated import Enumerated
from duallgd_cli.sources.given import AnalogueSource, DatabaseSource, LibrarySource
from duallgd_cli.sources.network import Noise
from duallgd_cli.spectra.types import AnnotatedSpectrum


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """Predicts the fingerprint of a spectrum's molecule.

    Attributes:
        network: The formula transformer of the trained network.
        runtime: Device and precision.
        kernel: What known molecules with like spectra say of the fingerprint, or None.
        isomers: Says what each bit speaks for a molecule beside isomers, or None.
    """

    network: FormulaTransformer
    runtime: Runtime
    kernel: FragmentKernel | None = None
    isomers: FormulaTransformer | None = None

    @torch.inference_mode()
    def __call__(self, annotated: AnnotatedSpectrum) -> Encoded:
        """See `Encode`."""
        with on_one_thread():
            peaks = peak_batch([from_annotated(annotated)]).to(self.runtime.device)
            with self.runtime.autocast():
                logits = self.network(peaks)
            if self.kernel is not None:
                logits = self.kernel.mixed(logits, peaks)
            fingerprint = torch.sigmoid(logits.float())[0].cpu().numpy()
            if self.isomers is None:
                return fingerprint, None
            with self.runtime.autocast():
                odds = self.isomers(peaks)[0].float().cpu().numpy()
            return fingerprint, odds


def load_model(weights: str | Path | None, runtime: Runtime) -> LoadedModel:
    """Load weights for prediction.

    Args:
        weights: A file or a name; None takes the shipped ones.
        runtime: Where to run.

    Raises:
        WeightsError: Missing, broken, of another shape, or a file that no plug-in reads.
    """
    path = resolve_weights(weights)
    if (plugin := plugin_for(path)) is not None:
        return plugin.load(path, runtime)
    checkpoint = load_checkpoint(path)
    require_trained(checkpoint.record, path)
    parts = parts_of(checkpoint, path)
    rewritten = rewritten_for(parts.network, runtime)
    network = for_inference(parts.network, runtime)
    sampler = Sampler(network, runtime, rewritten)
    kernel = None if parts.kernel is None else parts.kernel.to(runtime.device)
    isomers = None if parts.contrast is None else parts.contrast.to(runtime.device)
    return LoadedModel(
        encode=Encoder(network.encoder, runtime, kernel, isomers),
        sources=sources_of(sampler, parts.collection, parts.fragments),
        scores=parts.scores,
        ranking=parts.ranking,
        database=parts.database,
        name=path.name,
        sha256=sha256(path),
        record=checkpoint.record,
        parameters=parameter_counts(network),
        again=None if runtime.device.type == "mps" else partial(_alone, path, runtime),
        known=() if parts.collection is None else parts.collection.names,
        synchronise=runtime.synchronise,
        sampler=sampler,
    )


def _alone(path: Path, runtime: Runtime) -> LoadedModel:
    """The same on one thread of another process."""
    own = Runtime.resolve(str(runtime.device), runtime.precision, threads=1)
    return load_model(path, own)


def sources_of(
    sampler: Sampler, collection: Collection | None = None, fragments: FragmentScorer | None = None
) -> tuple[CandidateSource, ...]:
    """The sources of a network with a collection of known molecules, in their order."""
    listed: tuple[CandidateSource, ...] = (
        LibrarySource(),
        DatabaseSource(fragments),
        AnalogueSource(sampler, collection, fragments),
    )
    if collection is not None:
        listed += (Enumerated(collection, fragments),)
    return (*listed, Noise(sampler))


class Parts(NamedTuple):
    """What predicting takes from a weights file."""

    network: DualLGD
    scores: tuple[Score, ...]
    fragments: FragmentScorer | None
    collection: Collection | None
    kernel: FragmentKernel | None
    contrast: FormulaTransformer | None
    ranking: RankingModel
    database: RankingModel | None


def parts_of(checkpoint: Checkpoint, path: Path) -> Parts:
    """All that predicting takes from a weights file, each part checked.

    Args:
        checkpoint: As read.
        path: Of the file, for messages.

    Raises:
        WeightsError: A part is broken or does not fit the others.
    """
    process, bits = checkpoint.settings.diffusion, checkpoint.settings.encoder.fingerprint_bits
    if bits != FINGERPRINT_BITS:
        raise WeightsError(
            f"weights {path} predict {bits} fingerprint bits, molecules have {FINGERPRINT_BITS}; "
            "train with the default fingerprint_bits"
        )
    try:
        parse_schedule(process.schedule, process.n_steps, 1)
    except ConfigError as error:
        raise WeightsError(f"weights {path} cannot be sampled from: {error}") from None
    collection = Collection.of(checkpoint.templates) if checkpoint.templates else None
    if checkpoint.kernel and collection is None:
        raise WeightsError(
            f"weights {path} hold spectra of known molecules without these; run 'duallgd weights "
            "analogues'"
        )
    blocks = NO_BLOCKS if collection is None else collection.blocks
    arrays = {name: tensor.numpy() for name, tensor in checkpoint.reranker.items()}
    scores, fragments = fitted_scores(arrays, blocks.ends)
    return Parts(
        checkpoint.build(),
        scores,
        fragments,
        collection,
        None
        if collection is None or not checkpoint.kernel
        else FragmentKernel.of(
            checkpoint.kernel, collection.molecules.bit_offset, collection.molecules.bits
        ),
        checkpoint.contrast_encoder(),
        _ranking(checkpoint.ranking, path),
        _ranking(checkpoint.database, path) if checkpoint.database else None,
    )


def _ranking(values: Mapping[str, Any], path: Path) -> RankingModel:
    try:
        return RankingModel.stored(values)
    except ConfigError as error:
        raise WeightsError(
            f"the ranking in weights {path} is of another version ({error}); take the weights that "
            "come with this one, or run 'duallgd weights evidence' and 'duallgd calibrate'"
        ) from None
