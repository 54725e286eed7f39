"""The decoder given the true fingerprint: what a perfect encoder would be worth.

It knows the answer, so its candidates are a bound and never a result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem import identity
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.tables import Truth
from duallgd_cli.generator.network import ModelGenerator
from duallgd_cli.predict.generation import LoadedModel
from duallgd_cli.spectra.types import AnnotatedSpectrum


@dataclass(frozen=True, eq=False)
class TrueFingerprints(ModelGenerator):
    """The network's decoder behind an encoder that knows the answer.

    Attributes:
        bits: Set Morgan bits of the true molecule, by spectrum.
    """

    bits: Mapping[str, NDArray[np.uint16]] = field(kw_only=True)

    def fingerprint(self, annotated: AnnotatedSpectrum) -> Tensor:
        """Zeros and ones of the true molecule, float32 (4096,)."""
        dense = torch.zeros(FINGERPRINT_BITS)
        on = self.bits[annotated.hypothesis.feature.first.spectrum_id]
        dense[torch.from_numpy(on.astype(np.int64))] = 1.0
        return dense


def decoder_of(model: LoadedModel) -> ModelGenerator:
    """What draws a model's molecules from a fingerprint.

    Raises:
        UsageError: The model has no encoder that could be replaced.
    """
    if not isinstance(model.generator, ModelGenerator):
        raise UsageError(f"{model.name} has no fingerprint encoder; leave out --decompose")
    return model.generator


def true_fingerprints(model: LoadedModel, truths: Sequence[Truth]) -> LoadedModel:
    """The decoder of a model, which is given the true fingerprints.

    Args:
        model: Whose decoder is asked.
        truths: What the spectra are.

    Raises:
        UsageError: The model has no encoder that could be replaced.
    """
    own = decoder_of(model)
    bits = {
        truth.spectrum_id: identity.fingerprint(identity.parse_smiles(truth.smiles))
        for truth in truths
    }
    return replace(
        model,
        generator=TrueFingerprints(
            own.model, own.runtime, own.reranker, own.templates, own.rewritten, bits=bits
        ),
        name=f"{model.name} with true fingerprints",
    )
