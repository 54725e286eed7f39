"""An encoder that says what each fingerprint bit speaks for a molecule beside its isomers.

The chance of a bit says nothing of what it is worth among molecules of one formula: many bits go
together and count again and again, others all of the molecules have. So a copy of the encoder is
trained on with a contrastive loss: the bits of each molecule of fold train shall sum up to more
than those of its rivals, which are made like candidates.

B spectra, R molecules of a formula, F bits.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from duallgd_cli.data.molecular_graph import Rival
from duallgd_cli.data.peaks import packed_batch
from duallgd_cli.data.prepared import PreparedSpectra
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.train.encoder import SpectrumSampler
from duallgd_cli.train.simulator import one_cycle

# Log-odds of bits, summed up, are about ten times too sure of a molecule.
_SHRUNK: Final = 0.1
_SPECTRA: Final = 128
# The encoder knows the molecules it was trained on; what is left out keeps it from leaning on that.
_DROPOUT, _PEAK_DROPOUT = 0.25, 0.3
_LEARNING_RATE, _WEIGHT_DECAY = 3e-4, 0.05


def fit_contrast(
    encoder: FormulaTransformer,
    spectra: PreparedSpectra,
    rivals: Mapping[int, Sequence[Rival]],
    seed: int = 1,
    advance: Callable[[int], None] = lambda steps: None,
    *,
    steps: int = 450,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Train a copy of an encoder to tell molecules of fold train from others of their formula.

    Args:
        encoder: Whose logits are log-odds of bits; it stays as it is.
        spectra: Prepared spectra.
        rivals: By row of a molecule, itself first; the molecules that have none are left out.
        seed: Random seed.
        advance: Told each step.
        steps: Optimiser steps.

    Returns:
        Tensors of the copy, whose logits are what bits speak for a molecule, and what to keep on
        record; nothing where no molecule has rivals.
    """
    torch.manual_seed(seed)
    generator, sampler = np.random.default_rng(seed), SpectrumSampler(spectra)
    able = [i for i, row in enumerate(sampler.molecules.tolist()) if len(rivals.get(row, ())) > 1]
    if not able:
        return {}, {}
    model = _shrunk(encoder)
    descend = one_cycle(model, _LEARNING_RATE, _WEIGHT_DECAY, steps, rising=0.2, steepest=5.0)
    first: list[bool] = []
    for _ in range(steps):
        drawn = (sampler.draw_from(i, generator) for i in generator.choice(able, _SPECTRA).tolist())
        molecules, numbers = zip(*drawn, strict=True)
        batch = packed_batch([(spectra, numbers, _PEAK_DROPOUT)], generator)
        bits = [[one.bits for one in rivals[molecule]] for molecule in molecules]
        scores = bit_sums(model(batch), bits)
        loss = torch.stack([one.logsumexp(0) - one[0] for one in scores]).mean()
        first = [int(one.argmax()) == 0 for one in scores]
        descend(loss)
        advance(1)
    record = {"contrasted": steps * _SPECTRA, "first_of_isomers": float(np.mean(first))}
    return dict(model.eval().state_dict()), record


def bit_sums(bit_scores: Tensor, bits: Sequence[Sequence[NDArray[np.uint16]]]) -> list[Tensor]:
    """Score of each molecule, the sum of its bits' scores.

    Args:
        bit_scores: Of each spectrum, (B, F).
        bits: Set bits of the molecules of each, B lists of R.

    Returns:
        For each spectrum (R,).
    """
    n_bits, sizes = bit_scores.shape[1], [len(molecules) for molecules in bits]
    every = [own for molecules in bits for own in molecules]
    length = np.array([len(own) for own in every])
    spectrum = np.repeat(np.repeat(np.arange(len(bits)), sizes), length)
    place = torch.from_numpy(spectrum * n_bits + np.concatenate(every).astype(np.int64))
    start = torch.from_numpy(np.cumsum(length) - length)
    sums = embedding_bag(place, bit_scores.float().reshape(-1, 1), start, mode="sum")[:, 0]
    return list(sums.split(sizes))


def _shrunk(encoder: FormulaTransformer) -> FormulaTransformer:
    """A copy to be trained on, that is less sure and forgets more of each spectrum."""
    model = copy.deepcopy(encoder).train().requires_grad_()
    for tensor in model.fingerprint.parameters():
        tensor.data *= _SHRUNK
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = _DROPOUT
    return model
