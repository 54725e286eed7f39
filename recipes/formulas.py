"""Makes the two files by which `duallgd formulas` ranks.

    python recipes/formulas.py known DATA RUNS        # duallgd_cli/formulas/known.npz
    python recipes/formulas.py fit DATA RUNS          # duallgd_cli/formulas/model.npz

DATA holds massbank/massbank.tsv.xz and structures/structures.tsv.xz, RUNS is a folder for what lies
between. Fitted on fold train, sharpened on fold val; fold test is never read. The structure of a
spectrum is taken off the counts of known structures before it is ranked. About 40 minutes on one
core. `formula_accuracy.py` prints how good the ranking is.
"""

import argparse
import pickle
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from formula_files import save_known, save_model
from formula_spectra import Row, chosen, measured, rows, structures
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS, Adduct
from duallgd_cli.chem.elements import MASSES_DA
from duallgd_cli.chem.formula import Formula
from duallgd_cli.formulas import FormulaSettings, composition, possible_formulas, scoring
from duallgd_cli.formulas.composition import (
    FormulaSpace,
    KnownFormulas,
    are_possible,
    codes,
    decoded,
)
from duallgd_cli.formulas.peaks import explain, explanation_features, peaks_of
from duallgd_cli.formulas.scoring import FormulaModel, Network, Table
from duallgd_cli.spectra.types import Spectrum

_MASSES: Final = np.array(MASSES_DA)
_FOR_EXPLANATIONS: Final = 2000  # molecules of fold train; the scorer is fitted on the others
_DECOYS: Final = 20


class Example(NamedTuple):
    """What the scorer learns from, or is judged by: one spectrum and its candidates."""

    features: NDArray[np.float32]
    truth: int  # row of the right candidate, -1 where it is not there
    seconds: float
    isotopes: NDArray[np.float64]  # log weights, 0 without a pattern


# --- known structures ------------------------------------------------------------------------


def make_known(data: Path, runs: Path) -> None:
    """Count the known structures of each formula; those of fold train are among them."""
    from rdkit import Chem
    from rdkit.Chem.rdMolDescriptors import CalcMolFormula

    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    group_of: dict[str, int] = {}
    train = {spectra[0].smiles: spectra[0] for spectra in rows(data, "train").values()}
    for smiles, group in structures(data):
        counts[CalcMolFormula(Chem.MolFromSmiles(smiles))][group] += 1
        if smiles in train:
            group_of[smiles] = group
    atoms = {Formula.parse(text).counts: number for text, number in counts.items()}
    for smiles, row in train.items():
        if smiles not in group_of:
            group_of[smiles] = 1
            atoms.setdefault(tuple(row.formula.tolist()), [0, 0, 0])[1] += 1
    save_known(composition.FILE, np.array(list(atoms), np.int16), np.array(list(atoms.values())))
    (runs / "groups.pkl").write_bytes(pickle.dumps(group_of))


def without(table: KnownFormulas, row: Row, group: int | None) -> KnownFormulas:
    """The table as if the structure of a spectrum were unknown; a count of 255 may be more."""
    at = np.searchsorted(table.code[:-1], codes(row.formula[None]))[0]
    if group is None or not 0 < table.structures[at, group] < 255:
        return table
    structures = table.structures.copy()
    structures[at, group] -= 1
    return table._replace(structures=structures, total=structures.sum(axis=1, dtype=np.int64))


# --- the prior -------------------------------------------------------------------------------


def fit_prior(table: KnownFormulas, size: int = 14_000, decoys: int = 90) -> Network:
    """A network that tells formulas of exactly one known structure from others of their mass."""
    rng = np.random.default_rng(0)
    once = np.flatnonzero(table.structures[:-1].sum(axis=1) == 1)
    space, groups = FormulaSpace(table.rarer), []
    for formula in decoded(table.code[rng.choice(once, size, replace=False)]):
        mass = float(formula @ _MASSES)
        if mass > 1500 or not are_possible(formula[None], 0)[0]:
            continue
        others = space.find(mass * (1 + rng.normal(0, 1.5e-6)), 5e-6 * mass)
        others = others[(table.counts(others).sum(axis=1) == 0) & (others != formula).any(axis=1)]
        if not len(others):
            continue
        some = others[rng.permutation(len(others))[:decoys]]
        offset = np.full(len(some) + 1, np.log(len(others) / len(some)))
        offset[0] = 0.0
        groups.append(
            (composition.composition(table, np.concatenate([formula[None], some])), offset)
        )
    inputs = np.concatenate([inputs for inputs, _ in groups])
    mean, deviation = inputs.mean(axis=0), inputs.std(axis=0) + 1e-3
    batches = [
        (torch.tensor(scoring.standardised(x, mean, deviation)), torch.tensor(offset).float(), 0)
        for x, offset in groups
    ]
    network = perceptron([inputs.shape[1], 64, 24, 1], dropout=0.25)
    train_choice(network, batches, epochs=5, batch=64)
    return Network(mean, deviation, layers_of(network))


def perceptron(sizes: Sequence[int], dropout: float) -> torch.nn.Sequential:
    """Layers with rectifiers between them."""
    torch.manual_seed(0)
    parts: list[torch.nn.Module] = []
    for before, after in pairwise(sizes):
        parts += [torch.nn.Linear(before, after), torch.nn.ReLU(), torch.nn.Dropout(dropout)]
    return torch.nn.Sequential(*parts[:-2])


def layers_of(network: torch.nn.Sequential) -> tuple[tuple[Any, Any], ...]:
    """Weights and biases as `scoring.Network` holds them."""
    linear = [part for part in network if isinstance(part, torch.nn.Linear)]
    return tuple((p.weight.detach().numpy().T.copy(), p.bias.detach().numpy()) for p in linear)


def descend(
    network: torch.nn.Module,
    n: int,
    loss: Callable[[NDArray[np.int64]], torch.Tensor],
    epochs: int,
    batch: int,
) -> None:
    """Minimise a loss over numbered examples by AdamW, with a rate that falls to 0."""
    rng, optimiser = (
        np.random.default_rng(0),
        torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=3e-2),
    )
    total, step = epochs * -(-n // batch), 0
    network.train()
    for _ in range(epochs):
        order = rng.permutation(n)
        for start in range(0, n, batch):
            optimiser.param_groups[0]["lr"] = 3e-3 * (1 - step / total)
            step += 1
            optimiser.zero_grad()
            loss(np.sort(order[start : start + batch])).backward()
            optimiser.step()
    network.eval()


def train_choice(
    network: torch.nn.Module,
    groups: Sequence[tuple[torch.Tensor, torch.Tensor, int]],
    epochs: int,
    batch: int,
) -> None:
    """Fit scores so that the softmax over each group, offsets added, chooses its right row."""

    def loss(members: NDArray[np.int64]) -> torch.Tensor:
        taken = [groups[i] for i in members]
        scores = network(torch.cat([inputs for inputs, _, _ in taken]))[:, 0]
        parts = scores.split([len(inputs) for inputs, _, _ in taken])
        losses = [
            torch.logsumexp(part + offset, 0) - (part + offset)[truth]
            for part, (_, offset, truth) in zip(parts, taken, strict=True)
        ]
        return torch.stack(losses).mean()

    descend(network, len(groups), loss, epochs, batch)


# --- explanations of peaks -------------------------------------------------------------------


class Explained(NamedTuple):
    """Explanations of the peaks of one spectrum by its true formula and by decoys."""

    inputs: NDArray[np.float32]
    candidate: NDArray[np.int64]  # 0 is the truth
    peak: NDArray[np.int64]
    loss: NDArray[np.int64]
    fragment: NDArray[np.int64]
    weight: NDArray[np.float64]  # log weight of each candidate without peaks
    n_peaks: int


def explained_spectra(
    spectra: dict[str, list[Row]],
    molecules: Sequence[str],
    groups: dict[str, int],
    table: KnownFormulas,
    fitted: FormulaModel,
) -> list[Explained]:
    """Explanations by the truth and by the decoys that are likeliest without peaks."""
    rng, found = np.random.default_rng(1), []
    for molecule in molecules:
        for row in chosen(spectra[molecule], 2, least_peaks=3):
            spectrum = measured(row, rng)
            mz = spectrum.precursor_mz if spectrum else None
            if spectrum is None or mz is None:
                continue
            own = without(table, row, groups[spectra[molecule][0].smiles])
            possible = possible_formulas(mz, spectrum.instrument, [row.adduct], FormulaSettings())
            best = scoring.candidates(possible, mz, spectrum.instrument, own, fitted)
            peaks = peaks_of((spectrum,), mz)
            is_true = (best.formula == row.formula).all(axis=1)
            if not is_true.any() or is_true.all() or not peaks.mz.size:
                continue
            order = np.r_[np.flatnonzero(is_true), np.flatnonzero(~is_true)[:_DECOYS]]
            pairs = explain(peaks, best.formula[order], row.adduct)
            found.append(
                Explained(
                    explanation_features(pairs, peaks, row.adduct.charge),
                    pairs.candidate,
                    pairs.peak,
                    codes(pairs.loss),
                    codes(pairs.fragment),
                    best.weight[order],
                    peaks.mz.size,
                )
            )
    return found


class Pairs(NamedTuple):
    """Explanations of all spectra, one after the other; arrays of shape (M,) unless said."""

    spectrum: NDArray[np.int64]
    slot: NDArray[np.int64]  # peak, counted through, times width, plus candidate
    is_true: NDArray[np.bool_]
    decoy: NDArray[np.float64]  # weight as a wrong explanation, 0 for a true one
    first_peak: NDArray[np.int64]  # of each spectrum, and the number of all peaks
    before: torch.Tensor  # (peaks, width): log weight of the candidates without peaks
    importance: torch.Tensor  # (peaks,)


_WIDTH: Final = _DECOYS + 1


def _pairs(found: Sequence[Explained]) -> Pairs:
    first = np.r_[0, np.cumsum([e.n_peaks for e in found])]
    spectrum = np.repeat(np.arange(len(found)), [e.peak.size for e in found])
    candidate = np.concatenate([e.candidate for e in found])
    peak = np.concatenate([first[i] + e.peak for i, e in enumerate(found)])
    before = np.full((first[-1], _WIDTH), -1e4, np.float32)
    for i, e in enumerate(found):
        before[first[i] : first[i + 1], : e.weight.size] = e.weight
    decoy = np.array([1 / (e.weight.size - 1) for e in found])[spectrum] * (candidate > 0)
    importance = np.repeat([1 / np.sqrt(e.n_peaks) for e in found], np.diff(first))
    return Pairs(
        spectrum,
        peak * _WIDTH + candidate,
        candidate == 0,
        decoy,
        first,
        torch.tensor(before),
        torch.tensor(importance, dtype=torch.float32),
    )


def fit_explanations(
    found: Sequence[Explained],
) -> tuple[Network, Table, Table]:
    """What makes an explanation likely: its inputs, and how often its loss and fragment are true.

    For each peak the candidates compete with their best explanations of it. Which explanation is
    best depends on the network, so network and tables are fitted three times in turn; the table
    entries that a spectrum learns from come from the other half of the spectra.
    """
    pairs = _pairs(found)
    inputs = np.concatenate([e.inputs for e in found])
    formulas = [np.concatenate([getattr(e, k) for e in found]) for k in ("loss", "fragment")]
    mean, deviation = inputs.mean(axis=0), inputs.std(axis=0) + 1e-3
    standard = scoring.standardised(inputs, mean, deviation)
    half = pairs.spectrum % 2 == 0
    # Error, radicals, rarity of elements: enough to begin with.
    score = -(4 * inputs[:, 26] + 1.2 * inputs[:, 28] + 1.35 * (inputs[:, 33] + inputs[:, 34]))
    for _ in range(3):
        best = _best_rows(score, pairs.slot)
        columns = [np.zeros((len(inputs), 2), np.float32) for _ in formulas]
        for part in (half, ~half):
            for column, code in zip(columns, formulas, strict=True):
                column[part] = _table(code, pairs, best[~part[best]]).columns(code[part])
        rows = torch.tensor(np.concatenate([standard, *columns], axis=1))
        network = perceptron([rows.shape[1], 24, 1], dropout=0.1)
        _compete(network, rows, pairs, best)
        with torch.no_grad():
            score = network(rows)[:, 0].numpy()
    losses, ions = (_table(code, pairs, best) for code in formulas)
    # The columns of the tables go in as they are.
    mean = np.r_[mean, np.zeros(4)].astype(np.float32)
    deviation = np.r_[deviation, np.ones(4)].astype(np.float32)
    return Network(mean, deviation, layers_of(network)), losses, ions


def _compete(
    network: torch.nn.Module, rows: torch.Tensor, pairs: Pairs, best: NDArray[np.int64]
) -> None:
    """Fit scores of explanations so that at each peak the true candidate wins."""
    n = pairs.first_peak.size - 1
    edge = np.searchsorted(pairs.spectrum[best], np.arange(n + 1))

    def loss(members: NDArray[np.int64]) -> torch.Tensor:
        taken = np.concatenate([best[edge[i] : edge[i + 1]] for i in members])
        peaks = np.concatenate([np.arange(*pairs.first_peak[i : i + 2]) for i in members])
        peak, candidate = np.divmod(pairs.slot[taken], _WIDTH)
        at = torch.tensor(np.searchsorted(peaks, peak) * _WIDTH + candidate)
        flat = pairs.before[peaks].reshape(-1)
        scores = flat.index_add(0, at, network(rows[taken])[:, 0]).reshape(-1, _WIDTH)
        right = torch.log_softmax(scores, 1)[:, 0]
        return -(right * pairs.importance[peaks]).sum() / pairs.importance[peaks].sum()

    descend(network, n, loss, epochs=6, batch=16)


def _best_rows(score: NDArray[np.float32], slot: NDArray[np.int64]) -> NDArray[np.int64]:
    order = np.lexsort((-score, slot))
    return np.sort(order[np.flatnonzero(np.diff(slot[order], prepend=-1))])


def _table(code: NDArray[np.int64], pairs: Pairs, rows: NDArray[np.int64]) -> Table:
    """Log-odds of the formulas that at least six of some explanations have."""
    distinct, position = np.unique(code[rows], return_inverse=True)
    right = np.bincount(position, pairs.is_true[rows])
    wrong = np.bincount(position, pairs.decoy[rows])
    kept = right + wrong >= 6
    odds = wrong.sum() / right.sum()
    log_odds = np.log((right + 1.5) / (wrong + 1.5 * odds) * odds)
    return Table(distinct[kept], log_odds[kept].astype(np.float32))


# --- the scorer ------------------------------------------------------------------------------


def example(
    row: Row,
    spectrum: Spectrum,
    adducts: Sequence[Adduct],
    table: KnownFormulas,
    fitted: FormulaModel,
    settings: FormulaSettings,
) -> Example | None:
    """A spectrum with its candidates; None where nothing is found."""
    started, mz = time.perf_counter(), spectrum.precursor_mz or 0.0
    found = possible_formulas(mz, spectrum.instrument, adducts, settings)
    if not any(len(formulas) for _, formulas in found):
        return None
    pattern = spectrum.isotopes
    best = scoring.candidates(found, mz, spectrum.instrument, table, fitted, pattern)
    peaks = peaks_of((spectrum,), mz)
    seen = scoring.evidence(best, peaks, fitted)
    inputs = scoring.scorer_features(best, seen, peaks, mz, spectrum.instrument)
    seconds = time.perf_counter() - started
    is_true = (best.formula == row.formula).all(axis=1) & (best.adduct == row.adduct.index)
    truth = int(np.flatnonzero(is_true)[0]) if is_true.any() else -1
    return Example(inputs, truth, seconds, best.isotopes)


def examples(
    spectra: dict[str, list[Row]],
    molecules: Sequence[str],
    groups: dict[str, int],
    table: KnownFormulas,
    fitted: FormulaModel,
) -> list[Example]:
    """Up to two spectra a molecule with their adduct, the first one without it as well."""
    rng, found, settings = np.random.default_rng(2), [], FormulaSettings()
    for molecule in molecules:
        for number, row in enumerate(chosen(spectra[molecule], 2)):
            spectrum = measured(row, rng)
            if spectrum is None:
                continue
            own = without(table, row, groups.get(spectra[molecule][0].smiles))
            tried = [[row.adduct]] + ([all_of(row.adduct)] if number == 0 else [])
            made = [example(row, spectrum, a, own, fitted, settings) for a in tried]
            found += [e for e in made if e is not None]
    return found


def all_of(adduct: Adduct) -> list[Adduct]:
    """Every adduct of its polarity."""
    return [other for other in ADDUCTS if other.polarity == adduct.polarity]


def fit_scorer(found: Sequence[Example]) -> Network:
    """A linear score whose softmax over the candidates chooses the right one."""
    inputs = np.concatenate([e.features for e in found])
    mean, deviation = inputs.mean(axis=0), inputs.std(axis=0) + 1e-3
    groups = [
        (
            torch.tensor(scoring.standardised(e.features, mean, deviation)),
            torch.zeros(len(e.features)),
            e.truth,
        )
        for e in found
        if e.truth >= 0
    ]
    network = perceptron([inputs.shape[1], 1], dropout=0.0)
    train_choice(network, groups, epochs=12, batch=16)
    return Network(mean, deviation, layers_of(network))


def calibrated(fitted: FormulaModel, found: Sequence[Example]) -> FormulaModel:
    """The model with the sharpness, and the weight of what is not listed, that fit best."""
    leads = [(s := fitted.scorer(e.features)) - s.max() for e in found]
    trials = [
        fitted._replace(sharpness=float(sharpness), unlisted=float(unlisted))
        for sharpness in np.arange(0.4, 1.5, 0.05)
        for unlisted in np.exp(np.arange(-7.0, 0.0, 0.5))
    ]

    def loss(trial: FormulaModel) -> float:
        total = 0.0
        for e, lead in zip(found, leads, strict=True):
            log_probability = scoring.log_probabilities(lead, trial)
            absent = np.log1p(-min(np.exp(log_probability).sum(), 1 - 1e-9))
            total -= log_probability[e.truth] if e.truth >= 0 else absent
        return total

    return min(trials, key=loss)


def fit(data: Path, runs: Path) -> None:
    """Fit everything; what each stage gave is kept in RUNS and taken from there if it is there."""
    table = composition.known_formulas()
    groups = pickle.loads((runs / "groups.pkl").read_bytes())
    train, val = rows(data, "train"), rows(data, "val")
    molecules = sorted(train)
    random.Random(0).shuffle(molecules)
    prior = _kept(runs / "prior.pkl", lambda: fit_prior(table))
    nothing = Table(np.zeros(1, np.int64), np.zeros(1, np.float32))
    fitted = FormulaModel(prior, prior, nothing, nothing, prior, 1.0, 0.0)
    some, others = molecules[:_FOR_EXPLANATIONS], molecules[_FOR_EXPLANATIONS:]
    explained = _kept(
        runs / "explained.pkl", lambda: explained_spectra(train, some, groups, table, fitted)
    )
    network, losses, ions = _kept(runs / "network.pkl", lambda: fit_explanations(explained))
    fitted = fitted._replace(explanation=network, losses=losses, fragments=ions)
    learnt = _kept(runs / "examples.pkl", lambda: examples(train, others, groups, table, fitted))
    fitted = fitted._replace(scorer=fit_scorer(learnt))
    held_out = _kept(runs / "val.pkl", lambda: examples(val, sorted(val), {}, table, fitted))
    save_model(scoring.FILE, calibrated(fitted, held_out))


def _kept(path: Path, make: Callable[[], Any]) -> Any:  # noqa: ANN401
    if not path.is_file():
        started = time.perf_counter()
        path.write_bytes(pickle.dumps(make()))
        print(f"{path.name}: {time.perf_counter() - started:.0f} s", flush=True)
    return pickle.loads(path.read_bytes())


def run_stage(about: str, stages: Mapping[str, Callable[[Path, Path], None]]) -> None:
    """Run the stage that the command line names, with its two folders."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("stage", choices=list(stages))
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    stages[asked.stage](asked.data, asked.runs)


STAGES: Final = {"known": make_known, "fit": fit}

if __name__ == "__main__":
    run_stage("Fit the ranking of formulas.", STAGES)
