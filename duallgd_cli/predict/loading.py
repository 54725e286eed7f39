"""Loading weights: from a file to a model that predicts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import Checkpoint, require_trained
from duallgd_cli.checkpoint.format import load as load_checkpoint
from duallgd_cli.checkpoint.plugins import plugin_for
from duallgd_cli.chem.building_blocks import NO_BLOCKS
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.peaks import from_annotated, peak_batch
from duallgd_cli.diffusion.process import parse_schedule
from duallgd_cli.diffusion.sampler import Sampler, on_one_thread
from duallgd_cli.errors import ConfigError, WeightsError
from duallgd_cli.files import sha256
from duallgd_cli.model.duallgd import parameter_counts
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.fragment_kernel import FragmentKernel
from duallgd_cli.model.rewritten import for_inference, rewritten_for
from duallgd_cli.predict.model import Encoded, LoadedModel
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.runtime import Runtime
from duallgd_cli.scores.fragments import FragmentScorer
from duallgd_cli.scores.substructures import fitted_scores
from duallgd_cli.sources import CandidateSource
from duallgd_cli.sources.collection import Collection
from duallgd_cli.sources.enumerated import Enumerated
from duallgd_cli.sources.given import AnalogueSource, DatabaseSource, LibrarySource
from duallgd_cli.sources.network import Noise, Templates
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
    again = None if runtime.device.type == "mps" else partial(_alone, path, runtime)
    return replace(model, sha256=sha256(path), again=again)


def _alone(path: Path, runtime: Runtime) -> LoadedModel:
    """The same on one thread of another process."""
    own = Runtime.resolve(str(runtime.device), runtime.precision, threads=1)
    return load_model(path, own)


def model_of(checkpoint: Checkpoint, path: Path, runtime: Runtime) -> LoadedModel:
    """What predicts with the content of a weights file, each part of it checked.

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
            f"weights {path} hold spectra of known molecules without these; fetch or copy them "
            "again"
        )
    blocks = NO_BLOCKS if collection is None else collection.blocks
    arrays = {name: tensor.numpy() for name, tensor in checkpoint.reranker.items()}
    scores, fragments = fitted_scores(arrays, blocks.ends)
    kernel = None
    if checkpoint.kernel and collection is not None:
        known = collection.molecules
        kernel = FragmentKernel.of(checkpoint.kernel, known.bit_offset, known.bits)
        kernel = kernel.to(runtime.device)
    if (isomers := checkpoint.contrast_encoder()) is not None:
        isomers = isomers.to(runtime.device)
    ranking = _ranking(checkpoint.ranking, path)
    database = _ranking(checkpoint.database, path) if checkpoint.database else None
    built = checkpoint.build()
    rewritten = rewritten_for(built, runtime)
    network = for_inference(built, runtime)
    sampler = Sampler(network, runtime, rewritten)
    return LoadedModel(
        encode=Encoder(network.encoder, runtime, kernel, isomers),
        sources=sources_of(sampler, collection, fragments),
        scores=scores,
        ranking=ranking,
        database=database,
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
    listed: tuple[CandidateSource, ...] = (
        LibrarySource(),
        DatabaseSource(fragments),
        AnalogueSource(sampler, collection, fragments),
    )
    if collection is not None:
        listed += (Enumerated(collection, fragments), Templates(sampler, collection))
    return (*listed, Noise(sampler))


def _ranking(values: Mapping[str, Any], path: Path) -> RankingModel:
    try:
        return RankingModel.stored(values)
    except ConfigError as error:
        raise WeightsError(
            f"the ranking in weights {path} is of another version ({error}); take the weights that "
            "come with this one"
        ) from None
