"""An encoder that says what each fingerprint bit speaks for a molecule beside its isomers.

The chance of a bit says nothing of what it is worth among molecules of one formula: many bits go
together and count again and again, others all of the molecules have. So a copy of the encoder is
trained on with a contrastive loss: the bits of each molecule of fold train shall sum up to more
than those of its decoys, which are made like candidates.

B spectra, D the molecule itself and its decoys, F bits.
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
from duallgd_cli.model.encoder import FormulaTransformer, PackedBatch
from duallgd_cli.train.encoder import SpectrumSampler
from duallgd_cli.train.settings import OptimiserSettings, TrainingSettings
from duallgd_cli.train.trainer import fit

# Log-odds of bits, summed up, are about ten times too sure of a molecule.
_SHRUNK: Final = 0.1
_SPECTRA: Final = 128
# The encoder knows the molecules it was trained on; what is left out keeps it from leaning on that.
_DROPOUT, _PEAK_DROPOUT = 0.25, 0.3
_RATES: Final = OptimiserSettings(
    "adamw", 3e-4, warmup_share=0.2, final_share=0.0, weight_decay=0.05, beta2=0.999, clip=5.0
)


def fit_isomer_encoder(
    encoder: FormulaTransformer,
    spectra: PreparedSpectra,
    decoys: Mapping[int, Sequence[Rival]],
    seed: int = 1,
    advance: Callable[[int], None] = lambda steps: None,
    *,
    steps: int = 450,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Train a copy of an encoder to tell molecules of fold train from others of their formula.

    Its logits are log-odds of bits. The decoys stand by the row of a molecule, itself first; the
    molecules that have none are left out.

    Returns:
        Tensors of the copy, whose logits are what bits speak for a molecule, and what to keep on
        record; nothing where no molecule has decoys.
    """
    sampler = SpectrumSampler(spectra)
    rows = enumerate(sampler.molecules.tolist())
    able = [place for place, row in rows if len(decoys.get(row, ())) > 1]
    if not able:
        return {}, {}
    # Less sure from the start, and it forgets more of each spectrum.
    model = copy.deepcopy(encoder).requires_grad_()
    for tensor in model.fingerprint.parameters():
        tensor.data *= _SHRUNK
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = _DROPOUT
    came_first: list[bool] = []

    def batch_of(step: int) -> tuple[PackedBatch, list[list[NDArray[np.uint16]]]]:
        generator = np.random.default_rng((seed, step))
        places = generator.choice(able, _SPECTRA).tolist()
        drawn = (sampler.draw_from(place, generator) for place in places)
        molecules, numbers = zip(*drawn, strict=True)
        peaks = packed_batch([(spectra, numbers, _PEAK_DROPOUT)], generator)
        return peaks, [[molecule.bits for molecule in decoys[row]] for row in molecules]

    def loss(
        model: FormulaTransformer, batch: tuple[PackedBatch, list[list[NDArray[np.uint16]]]]
    ) -> tuple[Tensor, Tensor]:
        peaks, bits = batch
        scores = bit_sums(model(peaks), bits)
        came_first[:] = [int(molecules.argmax()) == 0 for molecules in scores]
        entropy = torch.stack([molecules.logsumexp(0) - molecules[0] for molecules in scores])
        return entropy.sum(), entropy.new_tensor(len(entropy))

    fit(model, batch_of, loss, TrainingSettings(seed=seed, steps=steps, optimiser=_RATES), advance)
    record = {"contrasted": steps * _SPECTRA, "first_of_isomers": float(np.mean(came_first))}
    return dict(model.state_dict()), record


def bit_sums(bit_scores: Tensor, bits: Sequence[Sequence[NDArray[np.uint16]]]) -> list[Tensor]:
    """Sums of bits' scores (B, F) over those that each of B lists of D molecules has set: (D,)."""
    n_bits, sizes = bit_scores.shape[1], [len(molecules) for molecules in bits]
    every = [own for molecules in bits for own in molecules]
    length = np.array([len(own) for own in every])
    spectrum = np.repeat(np.repeat(np.arange(len(bits)), sizes), length)
    place = torch.from_numpy(spectrum * n_bits + np.concatenate(every).astype(np.int64))
    start = torch.from_numpy(np.cumsum(length) - length)
    sums = embedding_bag(place, bit_scores.float().reshape(-1, 1), start, mode="sum")[:, 0]
    return list(sums.split(sizes))
