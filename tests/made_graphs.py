"""Made molecules, conditions, noisy graphs and small networks; torch and numpy, no chemistry."""

import itertools
import math
import string
from dataclasses import replace

import numpy as np
import torch

from duallgd_cli.chem.elements import HYDROGEN, LOWEST_VALENCES, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.prepared import Molecules
from duallgd_cli.model.duallgd import Condition, DualLGD
from duallgd_cli.model.encoder import BY_ROW, PeakBatch
from duallgd_cli.model.settings import DenoiserSettings, EncoderSettings, ModelSettings

N_BITS = 4096
FORMULAS = ("C6H12O6", "C9H8O4", "C4H7NO2S", "C7H5ClN2", "C12H10")


def small_settings(**denoiser):
    """A network of a few thousand parameters a layer."""
    sizes = {
        "layers": 2, "atom_width": 24, "pair_width": 16, "global_width": 20, "cross_width": 16,
        "atom_heads": 4, "pair_heads": 2, "cross_heads": 4, "pair_features": 8,
    }  # fmt: skip
    return ModelSettings(
        denoiser=DenoiserSettings(**(sizes | denoiser)),
        encoder=EncoderSettings(layers=2, width=16, heads=4),
    )


def stirred(settings, seed=1, share=0.3):
    """A network none of whose parameters is zero, so that nothing is the same by default."""
    torch.manual_seed(seed)
    model = DualLGD(settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += share * torch.randn_like(parameter) / max(1, parameter.shape[-1]) ** 0.5
    return model.eval()


def condition(formulas, size=None, seed=1, n_bits=12):
    """Formulas with fingerprints drawn at random, padded to `size` atoms."""
    parsed = [Formula.parse(text) for text in formulas]
    size = size or max(formula.n_heavy for formula in parsed)
    atom_class = torch.zeros(len(parsed), size, dtype=torch.long)
    n_heavy = torch.tensor([formula.n_heavy for formula in parsed])
    mask = torch.arange(size) < n_heavy[:, None]
    atom_class[mask] = torch.from_numpy(np.concatenate([f.atom_class for f in parsed]))
    generator = torch.Generator().manual_seed(seed)
    bit = torch.stack([torch.randperm(N_BITS, generator=generator)[:n_bits] for _ in parsed])
    return Condition(
        atom_class=atom_class,
        atom_mask=mask,
        formula=torch.from_numpy(np.stack([f.array for f in parsed]).astype(np.float32)),
        charge=torch.tensor([float(f.charge) for f in parsed]),
        bit=bit,
        bit_log_prob=torch.rand(bit.shape, generator=generator).clamp_min(0.02).log(),
    )


def rows_of(known, rows):
    """Some rows of a condition."""
    return Condition(*(getattr(known, name)[rows] for name in known.__dataclass_fields__))


def noisy_bonds(n_atoms, size=None, seed=1):
    """Random bond classes of one graph, int64 (M,), padded to `size` atoms with none."""
    generator = torch.Generator().manual_seed(seed)
    square = torch.randint(0, 5, (n_atoms, n_atoms), generator=generator)
    square *= torch.rand(n_atoms, n_atoms, generator=generator) < 0.4
    return pad_bonds(square[tuple(torch.triu_indices(n_atoms, n_atoms, 1))], n_atoms, size)


def pad_bonds(pairs, n_atoms, size=None):
    """Pairs of `n_atoms` atoms among those of `size` atoms."""
    low, high = torch.triu_indices(size or n_atoms, size or n_atoms, 1)
    padded = pairs.new_zeros(len(low), *pairs.shape[1:])
    padded[(low < n_atoms) & (high < n_atoms)] = pairs
    return padded


def real_pairs(values, n_atoms, size):
    """Of values for the pairs of `size` atoms those among the first `n_atoms`."""
    low, high = torch.triu_indices(size, size, 1)
    return values[(low < n_atoms) & (high < n_atoms)]


def made_molecules(count, seed=1, smallest=3, largest=9, fold=None):
    """Random trees with hydrogens to fill them up, as prepared arrays."""
    rng = np.random.default_rng(seed)
    counts, pairs, bits, n_bonds = np.zeros((count, N_ELEMENTS), np.uint8), [], [], []
    for row in counts:
        n = int(rng.integers(smallest, largest + 1))
        elements = np.sort(rng.choice([0, 0, 0, 0, 1, 2, 4], n))
        pairs += [(int(rng.integers(b)), b) for b in range(1, n)]
        n_bonds.append(n - 1)
        row[:] = np.bincount(elements, minlength=N_ELEMENTS)
        row[HYDROGEN] = max(0, sum(LOWEST_VALENCES[e] for e in elements) - 2 * (n - 1))
        bits.append(np.sort(rng.choice(N_BITS, int(rng.integers(4, 12)), replace=False)))
    keys = itertools.islice(itertools.product(string.ascii_uppercase, repeat=14), count)
    return Molecules(
        atom_counts=counts,
        charge=np.zeros(count, np.int8),
        bond_offset=np.cumsum([0, *n_bonds]),
        bond_pair=np.array(pairs, np.uint8),
        bond_type=rng.integers(1, 5, len(pairs)).astype(np.uint8),
        bit_offset=np.cumsum([0, *map(len, bits)]),
        bits=np.concatenate(bits).astype(np.uint16),
        fold=np.zeros(count, np.uint8) if fold is None else np.asarray(fold, np.uint8),
        inchikey=np.array(list(map("".join, keys)), "S14"),
    )


def made_peaks(n_rows, seed=1):
    """A made spectrum, a batch of its own: fragments of an ion that holds them all."""
    rng = np.random.default_rng(seed)
    parent = rng.integers(1, 20, N_ELEMENTS).astype(np.float32)
    subformula = np.floor(parent * rng.random((n_rows, N_ELEMENTS))).astype(np.float32)
    numbers = (rng.random((n_rows, 5)) * [1, 5, 500, 1, 60]).astype(np.float32)
    carrier, ion = rng.integers(0, 3, n_rows), (int(rng.integers(5)), int(rng.integers(3)))
    intensity, ppm, mz, share, energy = torch.from_numpy(numbers.T.copy())
    return PeakBatch(
        torch.from_numpy(subformula), intensity, ppm, mz, share, torch.from_numpy(carrier), energy,
        torch.zeros(n_rows, dtype=torch.int64), torch.from_numpy(parent)[None],
        *(torch.tensor([index]) for index in ion),
        torch.tensor([0, 1 + n_rows], dtype=torch.int32), 1 + n_rows,
    )  # fmt: skip


def some_rows(spectrum, index):
    """Some rows of a spectrum, in this order."""
    n, parts = len(index), {name: getattr(spectrum, name)[index] for name in BY_ROW}
    of_one = torch.zeros(n, dtype=torch.int64), torch.tensor([0, 1 + n], dtype=torch.int32)
    return replace(spectrum, **parts, spectrum=of_one[0], start=of_one[1], longest=1 + n)


def peak_batch(spectra):
    """Several spectra, each a batch of its own, as one."""
    names = (*BY_ROW, "parent", "adduct", "instrument")
    parts = {name: torch.cat([getattr(s, name) for s in spectra]) for name in names}
    n_rows = torch.tensor([len(s.mz) for s in spectra])
    start = torch.nn.functional.pad((1 + n_rows).cumsum(0), (1, 0)).int()
    spectrum = torch.arange(len(spectra)).repeat_interleave(n_rows)
    return PeakBatch(**parts, spectrum=spectrum, start=start, longest=1 + int(n_rows.max()))


def transition_matrix(alpha, marginal):
    """Q(alpha), rows = from, columns = to: the shape of alpha followed by (C, C)."""
    alpha = alpha[..., None, None]
    eye = torch.eye(marginal.numel(), dtype=marginal.dtype, device=marginal.device)
    return alpha * eye + (1 - alpha) * marginal


def dense_attention(query, key, value, mask, heads):
    """softmax(Q K^T / sqrt(D)) V of each head under a mask, (rows, columns) or (B, ...)."""
    query, key, value = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))
    score = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    weight = torch.softmax(score.masked_fill(~mask.unsqueeze(-3), -torch.inf), -1)
    return (weight @ value).transpose(1, 2).flatten(2)


def incidence(n):
    """The paper's (N, M) matrix: true where an atom belongs to a pair."""
    return (torch.arange(n)[:, None, None] == torch.triu_indices(n, n, 1)).any(1)
