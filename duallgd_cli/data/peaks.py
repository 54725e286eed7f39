"""Annotated peaks, from a prediction, from prepared data or simulated, as one padded batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.chem.elements import N_ELEMENTS
from duallgd_cli.data.prepared import PreparedSpectra
from duallgd_cli.model.encoder import PackedBatch, PeakBatch
from duallgd_cli.spectra.annotation import index_ranges
from duallgd_cli.spectra.types import AnnotatedSpectrum, as_trained, instrument_index

MAX_ROWS: Final = 64
# Noise of `packed_batch`: of log intensities, of masses; how often energy or instrument is unknown.
JITTER, NOISE_PPM, ENERGY_DROP, INSTRUMENT_DROP = 0.3, 1.0, 0.2, 0.1


@dataclass(frozen=True, eq=False)
class PeakRows:
    """One spectrum as the encoder sees it; K rows."""

    subformula: NDArray[np.float32]  # (K, N_ELEMENTS)
    # Intensity, ppm, m/z, share and energy in eV (NaN if missing), float32 (K, 5).
    numbers: NDArray[np.float32]
    carrier: NDArray[np.int64]  # (K,)
    parent: NDArray[np.float32]  # counts of the whole ion, (N_ELEMENTS,)
    adduct: int  # index into `ADDUCTS`
    instrument: int  # index into `INSTRUMENTS`


def from_annotated(annotated: AnnotatedSpectrum) -> PeakRows:
    """Rows of a spectrum to be predicted, the most intense `MAX_ROWS` kept."""
    hypothesis = annotated.hypothesis
    rows, carrier, parent = as_trained(annotated)
    columns = (
        annotated.intensity, annotated.ppm, annotated.mz, annotated.share, annotated.energy_ev,
    )  # fmt: skip
    kept = rows[most_intense(annotated.intensity[rows])]
    return PeakRows(
        annotated.subformula[kept].astype(np.float32).reshape(-1, N_ELEMENTS),
        np.stack(columns, 1)[kept].astype(np.float32).reshape(-1, 5),
        carrier[kept],
        parent.astype(np.float32),
        hypothesis.adduct.index,
        instrument_index(hypothesis.feature.first.instrument),
    )


def from_prepared(spectra: PreparedSpectra, numbers: Sequence[int]) -> PeakRows:
    """Rows of one or more prepared spectra of the same ion, the most intense `MAX_ROWS` kept."""
    chosen = np.asarray(numbers)
    _, index = index_ranges(spectra.peak_offset[chosen], spectra.peak_offset[chosen + 1])
    index = index[most_intense(spectra.intensity[index])]
    first = numbers[0]
    molecule = int(spectra.molecule[first])
    change = np.asarray(ADDUCTS[int(spectra.adduct[first])].change, np.float32)
    return PeakRows(
        spectra.subformula[index].astype(np.float32),
        _numbers(spectra, index),
        spectra.carrier[index].astype(np.int64),
        spectra.molecules.atom_counts[molecule].astype(np.float32) + change,
        int(spectra.adduct[first]),
        int(spectra.instrument[first]),
    )


def _numbers(spectra: PreparedSpectra, index: NDArray[np.int64]) -> NDArray[np.float32]:
    """Some peak rows as `PeakRows.numbers`."""
    names = ("intensity", "ppm", "mz", "share", "peak_energy_ev")
    return np.stack([getattr(spectra, name)[index].astype(np.float32) for name in names], 1)


def prepared_batch(spectra: PreparedSpectra, rows: Iterable[int]) -> PeakBatch:
    """Prepared spectra, each by itself, as one batch."""
    return peak_batch([from_prepared(spectra, [int(row)]) for row in rows])


def most_intense(intensity: NDArray[np.floating]) -> NDArray[np.int64]:
    """Rows of the `MAX_ROWS` most intense peaks, ascending."""
    order = np.argsort(-intensity.astype(np.float32), kind="stable")
    return np.sort(order[:MAX_ROWS])


def peak_batch(spectra: Sequence[PeakRows]) -> PeakBatch:
    """Pad rows of several spectra to one batch, of one row at least."""

    def padded(rows: Iterable[NDArray[Any]]) -> Tensor:
        columns = list(map(torch.from_numpy, rows))
        columns.append(columns[0].new_zeros(1, *columns[0].shape[1:]))
        return pad_sequence(columns, batch_first=True)[:-1]

    carrier = padded(s.carrier for s in spectra)
    n_rows = torch.tensor([len(s.carrier) for s in spectra])
    numbers = padded(s.numbers for s in spectra).unbind(-1)
    intensity, ppm, mz, share, energy = (column.contiguous() for column in numbers)
    return PeakBatch(
        padded(s.subformula for s in spectra), intensity, ppm, mz, share, carrier, energy,
        torch.arange(carrier.shape[1]) < n_rows[:, None],
        torch.from_numpy(np.stack([s.parent for s in spectra])),
        torch.tensor([s.adduct for s in spectra]), torch.tensor([s.instrument for s in spectra]),
    )  # fmt: skip


def packed_batch(
    sources: Iterable[tuple[PreparedSpectra, Sequence[Sequence[int]], float]],
    generator: np.random.Generator,
) -> PackedBatch:
    """Prepared spectra without padding, made to look like a lab's own run.

    Each is what `from_prepared` gives, but peaks go missing, intensities wobble, masses are off,
    energy or instrument are not recorded. A source is prepared spectra, for each spectrum of the
    batch the numbers of one or more of the same ion, and the largest share of rows to drop.
    """
    parts = [_packed(*source, generator) for source in sources if len(source[1])]
    n_before = np.cumsum([0, *(len(part["adduct"]) for part in parts)])
    for part, before in zip(parts, n_before.tolist(), strict=False):
        part["spectrum"] += before
        part["bit_spectrum"] += before
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    n_tokens = 1 + np.bincount(joined["spectrum"], minlength=n_before[-1])
    start = np.concatenate([[0], np.cumsum(n_tokens)]).astype(np.int32)
    t = {name: torch.from_numpy(values) for name, values in joined.items()}
    intensity, ppm, mz, share, energy = t["numbers"].T.contiguous().unsqueeze(-1)
    none, real = torch.zeros(1, dtype=torch.int64), torch.ones(len(mz), 1, dtype=torch.bool)
    rows = PeakBatch(
        t["subformula"][:, None], intensity, ppm, mz, share, t["carrier"][:, None], energy,
        real, none, none, none,
    )  # fmt: skip
    return PackedBatch(
        rows, t["spectrum"], t["parent"], t["adduct"], t["instrument"], torch.from_numpy(start),
        int(n_tokens.max()), t["bit"], t["bit_spectrum"],
    )  # fmt: skip


def _packed(
    spectra: PreparedSpectra,
    groups: Sequence[Sequence[int]],
    dropout: float,
    generator: np.random.Generator,
) -> dict[str, NDArray[Any]]:
    """Arrays of some spectra, rows of each after those of the one before."""
    numbers = np.array([number for group in groups for number in group])
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    first = np.array([group[0] for group in groups])
    own, index = index_ranges(spectra.peak_offset[numbers], spectra.peak_offset[numbers + 1])
    owner = owner[own]
    if (np.bincount(owner, minlength=len(groups)) > MAX_ROWS).any():
        brightest = np.lexsort((-spectra.intensity[index].astype(np.float32), owner))
        place = np.arange(len(owner)) - np.searchsorted(owner, owner)[brightest]
        kept = np.sort(brightest[place < MAX_ROWS])
        owner, index = owner[kept], index[kept]
    lost = generator.random(len(groups), np.float32) * dropout
    seen = generator.random(len(owner), np.float32) >= lost[owner]
    owner, index = owner[seen], index[seen]
    values = _numbers(spectra, index)
    values[:, 0] *= np.exp(JITTER * generator.standard_normal(len(owner), np.float32))
    brightest_of = np.zeros(len(groups), np.float32)
    np.maximum.at(brightest_of, owner, values[:, 0])
    values[:, 0] /= np.maximum(brightest_of, 1e-6)[owner]
    off = NOISE_PPM * generator.standard_normal(len(groups), np.float32)
    values[:, 1] += NOISE_PPM * generator.standard_normal(len(owner), np.float32) + off[owner]
    values[(generator.random(len(groups)) < ENERGY_DROP)[owner], 4] = np.nan
    molecule, adduct = spectra.molecule[first], spectra.adduct[first].astype(np.int64)
    change = np.array([one.change for one in ADDUCTS], np.float32)
    bit_spectrum, bit = spectra.molecules.bits_of(molecule)
    nameless = generator.random(len(groups)) < INSTRUMENT_DROP
    return {
        "subformula": spectra.subformula[index],
        "numbers": values,
        "carrier": spectra.carrier[index].astype(np.int64),
        "spectrum": owner,
        "parent": spectra.molecules.atom_counts[molecule].astype(np.float32) + change[adduct],
        "adduct": adduct,
        "instrument": np.where(nameless, 0, spectra.instrument[first].astype(np.int64)),
        "bit": bit,
        "bit_spectrum": bit_spectrum,
    }
