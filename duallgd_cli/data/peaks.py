"""Annotated peaks, from a prediction, from prepared data or simulated, as a batch."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.chem.elements import N_ELEMENTS
from duallgd_cli.data.prepared import PreparedSpectra
from duallgd_cli.model.encoder import BY_ROW, PackedBatch, PeakBatch
from duallgd_cli.spectra.annotation import index_ranges
from duallgd_cli.spectra.types import AnnotatedSpectrum, as_trained, instrument_index

MAX_ROWS: Final = 64
# Noise of `packed_batch`: of log intensities, of masses; how often energy or instrument is unknown.
JITTER, NOISE_PPM, ENERGY_DROP, INSTRUMENT_DROP = 0.3, 1.0, 0.2, 0.1


def from_annotated(annotated: AnnotatedSpectrum) -> PeakBatch:
    """A spectrum to be predicted, the most intense `MAX_ROWS` kept, as a batch of its own."""
    hypothesis = annotated.hypothesis
    rows, carrier, parent = as_trained(annotated)
    kept = rows[most_intense(annotated.intensity[rows])]
    columns = (
        annotated.intensity, annotated.ppm, annotated.mz, annotated.share, annotated.energy_ev,
    )  # fmt: skip
    numbers = torch.from_numpy(np.stack(columns)[:, kept].astype(np.float32))
    intensity, ppm, mz, share, energy = numbers
    subformula = annotated.subformula[kept].astype(np.float32).reshape(-1, N_ELEMENTS)
    return PeakBatch(
        torch.from_numpy(subformula), intensity, ppm, mz, share,
        torch.from_numpy(carrier[kept]), energy, torch.zeros(len(kept), dtype=torch.int64),
        torch.from_numpy(parent.astype(np.float32))[None],
        torch.tensor([hypothesis.adduct.index]),
        torch.tensor([instrument_index(hypothesis.feature.first.instrument)]),
        torch.tensor([0, 1 + len(kept)], dtype=torch.int32), 1 + len(kept),
    )  # fmt: skip


def most_intense(intensity: NDArray[np.floating]) -> NDArray[np.int64]:
    """Rows of the `MAX_ROWS` most intense peaks, ascending."""
    order = np.argsort(-intensity.astype(np.float32), kind="stable")
    return np.sort(order[:MAX_ROWS])


def prepared_batch(spectra: PreparedSpectra, rows: Iterable[int]) -> PeakBatch:
    """Prepared spectra, each by itself as a prediction would see it, as one batch."""
    return PeakBatch(**_joined([_arrays(spectra, [[int(row)] for row in rows])]))


def packed_batch(
    sources: Iterable[tuple[PreparedSpectra, Sequence[Sequence[int]], float]],
    generator: np.random.Generator,
) -> PackedBatch:
    """Prepared spectra to train on, made to look like a lab's own run.

    Peaks go missing, intensities wobble, masses are off, energy or instrument are not recorded. A
    source is prepared spectra, for each spectrum of the batch the numbers of one or more of the
    same ion, of all of whose peaks the most intense count, and the largest share of rows to drop.
    """
    parts = []
    for spectra, groups, dropout in sources:
        if len(groups):
            molecule = spectra.molecule[[group[0] for group in groups]]
            owner, bit = spectra.molecules.bits_of(molecule)
            arrays = _noised(_arrays(spectra, groups), dropout, generator)
            parts.append(arrays | {"bit": bit, "bit_spectrum": owner})
    return PackedBatch(**_joined(parts))


def _joined(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, Any]:
    """A batch of the spectra of all parts, see `_arrays`, by the names of its attributes."""
    n_before = np.cumsum([0, *(len(part["adduct"]) for part in parts)])
    for part, before in zip(parts, n_before.tolist(), strict=False):
        for name in part.keys() & {"spectrum", "bit_spectrum"}:
            part[name] += before
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    n_tokens = 1 + np.bincount(joined["spectrum"], minlength=n_before[-1])
    joined["start"] = np.concatenate([[0], np.cumsum(n_tokens)]).astype(np.int32)
    tensors = {name: torch.from_numpy(values) for name, values in joined.items()}
    return tensors | {"longest": int(n_tokens.max())}


def _arrays(spectra: PreparedSpectra, groups: Sequence[Sequence[int]]) -> dict[str, NDArray[Any]]:
    """Arrays of some spectra, the most intense `MAX_ROWS` of each after those of the one before."""
    first = np.array([group[0] for group in groups])
    numbers = np.array([number for group in groups for number in group])
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    own, index = index_ranges(spectra.peak_offset[numbers], spectra.peak_offset[numbers + 1])
    owner = owner[own]
    if (np.bincount(owner, minlength=len(groups)) > MAX_ROWS).any():
        brightest = np.lexsort((-spectra.intensity[index].astype(np.float32), owner))
        place = np.arange(len(owner)) - np.searchsorted(owner, owner)[brightest]
        kept = np.sort(brightest[place < MAX_ROWS])
        owner, index = owner[kept], index[kept]
    adduct = spectra.adduct[first].astype(np.int64)
    change = np.array([one.change for one in ADDUCTS], np.float32)
    counts = spectra.molecules.atom_counts[spectra.molecule[first]].astype(np.float32)
    columns = {name: getattr(spectra, name) for name in ("intensity", "ppm", "mz", "share")}
    columns["energy_ev"] = spectra.peak_energy_ev
    return {
        **{name: values[index].astype(np.float32) for name, values in columns.items()},
        "subformula": spectra.subformula[index],
        "carrier": spectra.carrier[index].astype(np.int64),
        "spectrum": owner,
        "parent": counts + change[adduct],
        "adduct": adduct,
        "instrument": spectra.instrument[first].astype(np.int64),
    }


def _noised(
    arrays: dict[str, NDArray[Any]], dropout: float, generator: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Arrays of spectra with noise, in place but for rows that go missing."""
    n = len(arrays["adduct"])
    lost = generator.random(n, np.float32) * dropout
    owner = arrays["spectrum"]
    seen = generator.random(len(owner), np.float32) >= lost[owner]
    arrays |= {name: arrays[name][seen] for name in (*BY_ROW, "spectrum")}
    owner, intensity = arrays["spectrum"], arrays["intensity"]
    intensity *= np.exp(JITTER * generator.standard_normal(len(owner), np.float32))
    brightest_of = np.zeros(n, np.float32)
    np.maximum.at(brightest_of, owner, intensity)
    intensity /= np.maximum(brightest_of, 1e-6)[owner]
    off = NOISE_PPM * generator.standard_normal(n, np.float32)
    arrays["ppm"] += NOISE_PPM * generator.standard_normal(len(owner), np.float32) + off[owner]
    arrays["energy_ev"][(generator.random(n) < ENERGY_DROP)[owner]] = np.nan
    arrays["instrument"][generator.random(n) < INSTRUMENT_DROP] = 0
    return arrays
