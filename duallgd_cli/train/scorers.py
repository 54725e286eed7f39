"""Fitting fragment models: one that simulates spectra, and one that scores candidates.

Both are fitted to measured spectra, so that they say which peaks a molecule gives; molecules count
alike, however many spectra they have. What each fragment speaks for a molecule, as a peak or as
none, is then fitted against decoys (see `scores.FragmentScorer`): others of its formula that are
made like candidates, for that is what a candidate's score is asked for.

Letters: C fragments, D the molecule itself and its decoys, F bits, H hydrogen shifts, K peaks.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cosine_similarity,
    logsigmoid,
    softplus,
)

from duallgd_cli.checkpoint.format import load, load_strictly
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import charge_free_smiles, fingerprint
from duallgd_cli.chem.joining import together
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.chem.valence import MolecularGraph
from duallgd_cli.data.fragmentation import (
    BY_CHANCE,
    CARRIED,
    FOUND,
    MISSED,
    SCORED_TRIPLES,
    Fragments,
    Ion,
    fragment_features,
    fragments,
    fragments_of_isomers,
    measured_intensity,
)
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.data.peaks import prepared_batch
from duallgd_cli.data.prepared import (
    DECOY_OF,
    FOLDS,
    Decoys,
    Molecules,
    PreparedSpectra,
    in_blocks,
    write_blocks,
)
from duallgd_cli.data.simulation import FragmentModel, Simulator, expected_intensity, fragment_loss
from duallgd_cli.data.structures import PreparedMolecule, pack
from duallgd_cli.errors import UnreadableError
from duallgd_cli.runtime import in_order
from duallgd_cli.sources.collection import BEGUN, Collection, molecule_of
from duallgd_cli.sources.enumerated import changed, likeliest, log_odds, mols_of_graphs
from duallgd_cli.train.encoder import by_molecule
from duallgd_cli.train.settings import OptimiserSettings, TrainingSettings
from duallgd_cli.train.trainer import fit

Advance: TypeAlias = Callable[[int], None]
# What decoys are made of: a molecule's row, itself, its formula, and two times logits of its
# fingerprint with a seed.
Doubt: TypeAlias = tuple[NDArray[np.float32], tuple[int, int]]
Doubted: TypeAlias = tuple[int, MolecularGraph, Formula, list[Doubt]]
# Features (C, N_INPUTS) of a molecule's fragments and which are peaks (C, H).
Seen: TypeAlias = tuple[NDArray[np.float32], NDArray[np.bool_]]

# Of decoys so many are taken, of so many that are likeliest: the first of these and others at
# random; of those that are put together, the likeliest are made.
_MADE, _LIKELIEST, _FIRST, _MOST = 24, 300, 10, 300
_LARGEST: Final = 50  # heavy atoms
_CASES: Final = 10  # that a process takes at once, some 0.6 s each
# An encoder knows the molecules it was trained on. Logits are made smaller and noisy, so that they
# say no more of them than of others.
_SCALE, _NOISE, _NEVER = (0.3, 0.8), (0.5, 2.0), -5.0
# Narrower than what simulates spectra: it goes with every weights file and scores every candidate.
_WIDTH: Final = 96
# Rounds through all molecules, so many at a time, each beside so many decoys.
_ROUNDS: Final = 6
_AT_ONCE, _DECOYS = 16, 20
_FRAGMENT_RATES: Final = OptimiserSettings(
    "adamw", 1e-3, warmup_share=0.1, final_share=0.0, weight_decay=0.02, beta2=0.999, clip=5.0
)
_FRAGMENT_DROPOUT: Final = 0.1
# Of the first fit's loss, so that chances stay chances.
_LIKELIHOOD: Final = 0.02
_RATES: Final = OptimiserSettings(
    "adamw", 2e-3, warmup_share=0.3, final_share=0.0, weight_decay=0.02, beta2=0.999, clip=inf
)
_SPECTRA_PER_STEP: Final = 48
_VALIDATION_SPECTRA: Final = 500


class MeasuredSpectrum(NamedTuple):
    """One measured spectrum over the fragments of its molecule."""

    found: Fragments
    ion: Ion
    intensity: NDArray[np.float32]  # of each fragment and hydrogen shift, (C, H)
    weight: float  # share of the spectrum among those of its molecule

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Features (C, N_INPUTS) and intensities (C, H)."""
        features = fragment_features(self.found, self.ion)
        return torch.from_numpy(features), torch.from_numpy(self.intensity)


def fit_simulator(
    spectra: PreparedSpectra,
    steps: int = 7000,
    seed: int = 1,
    advance: Advance = lambda steps: None,
    *,
    width: int = 256,
) -> tuple[FragmentModel, dict[str, Any]]:
    """Fit a fragment model of some channels on fold train, and judge it on fold val.

    With the model comes what to keep on record: sizes, seed and, if there is a fold val, the cosine
    similarity of expected and measured roots of intensity there.
    """
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    train = list_measured(spectra, "train", generator)
    if not train:
        raise UnreadableError("the prepared spectra hold none of fold train that can be simulated")
    weight = np.array([spectrum.weight for spectrum in train])
    weight /= weight.sum()
    model = FragmentModel(width)

    def batch_of(step: int) -> tuple[Tensor, Tensor]:
        drawn = np.random.default_rng((seed, step)).choice(len(train), _SPECTRA_PER_STEP, p=weight)
        features, intensity = zip(*(train[i].tensors for i in drawn), strict=True)
        return torch.cat(features), torch.cat(intensity)

    def loss(model: FragmentModel, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        per_peak = fragment_loss(model, *batch)
        return per_peak, torch.ones_like(per_peak)

    fit(model, batch_of, loss, TrainingSettings(seed=seed, steps=steps, optimiser=_RATES), advance)
    held_out, cosines = list_measured(spectra, "val", generator), []
    for row in generator.permutation(len(held_out))[:_VALIDATION_SPECTRA]:
        features, intensity = held_out[row].tensors
        alike = cosine_similarity(
            expected_intensity(model, features).flatten(), intensity.sqrt().flatten(), 0
        )
        cosines.append(float(alike))
    figures = {"cosine": float(np.mean(cosines))} if cosines else {}
    return model, {"spectra": len(train), "steps": steps, "seed": seed, "val": figures}


def simulator_of(tensors: dict[str, Tensor], spectra: PreparedSpectra) -> Simulator:
    """A simulator of the ions of fold train, molecules alike, by a fragment model's tensors."""
    model = FragmentModel(len(tensors["hidden.0.bias"]))
    load_strictly(model, tensors)
    rows = simulated_rows(spectra, "train")
    molecule = spectra.molecule[rows]
    ions = [_ion_of(spectra, row) for row in rows.tolist()]
    return Simulator(model, ions, 1 / np.bincount(molecule)[molecule])


def _ion_of(spectra: PreparedSpectra, row: int) -> Ion:
    columns = spectra.adduct, spectra.instrument, spectra.energy_ev
    return Ion(*(column[row].item() for column in columns))


def list_measured(
    spectra: PreparedSpectra, fold: str, generator: np.random.Generator
) -> list[MeasuredSpectrum]:
    """Spectra of a fold whose ion can be simulated and of which a fragment is a peak."""
    result: list[MeasuredSpectrum] = []
    for molecule, own in zip(*by_molecule(spectra, simulated_rows(spectra, fold)), strict=True):
        found = fragments(graph_of(spectra.molecules, int(molecule)), generator)
        kept = []
        for spectrum in own:
            ion, *_ = peaks = explained_peaks(spectra, spectrum)
            intensity = measured_intensity(found, *peaks)
            kept += [(ion, intensity)] if intensity.any() else []
        result += [MeasuredSpectrum(found, *measured, 1 / len(kept)) for measured in kept]
    return result


def simulated_rows(spectra: PreparedSpectra, fold: str) -> NDArray[np.int64]:
    """Spectra of a fold whose ion can be simulated, of molecules with bonds."""
    able = np.isin(spectra.adduct, list(CARRIED)) & (spectra.spectrum_fold == FOLDS.index(fold))
    return np.flatnonzero(able & (np.diff(spectra.molecules.bond_offset)[spectra.molecule] > 0))


def explained_peaks(
    spectra: PreparedSpectra, spectrum: int
) -> tuple[Ion, NDArray[np.int16], NDArray[np.float32]]:
    """Ion of a spectrum, and sub-formulas (K, N_ELEMENTS) and intensities (K,) of its peaks."""
    peaks = slice(*spectra.peak_offset[spectrum : spectrum + 2].tolist())
    bare = spectra.carrier[peaks] == 0  # peaks that kept a metal are of no interest here
    subformula, intensity = spectra.subformula[peaks][bare], spectra.intensity[peaks][bare]
    ion = _ion_of(spectra, spectrum)
    return ion, subformula.astype(np.int16), intensity.astype(np.float32)


def prepare_decoys(
    spectra: PreparedSpectra,
    encoder: nn.Module,
    weights: Path,
    out: Path,
    seed: int,
    workers: int = 1,
    advance: Advance = lambda molecules: None,
) -> None:
    """Write decoys of all molecules of fold train, from two spectra of each, doubted in two ways.

    The encoder speaks here and processes make the decoys, so that their number changes nothing;
    each reads the templates that decoys are made of from the weights. A block is in memory.
    """
    _templates.cache_clear()  # the file may have been made again
    rows, spectra_of = by_molecule(spectra, simulated_rows(spectra, "train"))
    generators = {number: np.random.default_rng(number) for number in (seed, seed + 1)}

    @torch.inference_mode()
    def doubted(row: int, own: NDArray[np.int64]) -> Doubted:
        doubts = list[Doubt]()
        for number, generator in generators.items():
            peaks = prepared_batch(spectra, [generator.choice(own)])
            doubts.append((encoder(peaks)[0].numpy(), (number, row)))
        return row, graph_of(spectra.molecules, row), spectra.molecules.formula(row), doubts

    def flat() -> Iterator[tuple[int, PreparedMolecule]]:
        cases = map(doubted, rows.tolist(), spectra_of)
        for row, molecules in in_order(partial(_decoys, weights), cases, workers, _CASES):
            advance(1)
            yield from ((row, molecule) for molecule in molecules)

    def blocks() -> Iterator[dict[str, NDArray[Any]]]:
        none = np.zeros(0, np.int64)
        yield spectra.molecules.take(none).arrays() | {DECOY_OF: none}
        for block in in_blocks(flat()):
            owners, molecules = zip(*block, strict=True)
            fold = np.zeros(len(block), np.uint8)
            yield pack(molecules) | {"fold": fold, DECOY_OF: np.array(owners)}

    write_blocks(out, blocks(), lambda: {"kind": "decoys", "seed": seed})


def _decoys(weights: Path, case: Doubted) -> tuple[int, tuple[PreparedMolecule, ...]]:
    row, itself, formula, doubts = case
    one, two = (decoys_of(itself, formula, *doubt, _templates(weights)) for doubt in doubts)
    return row, (*(one or two[:1]), *two[1:])


@lru_cache(maxsize=1)
def _templates(weights: Path) -> Collection:
    return Collection.of(load(weights).templates)


def decoys_of(
    itself: MolecularGraph,
    formula: Formula,
    logits: NDArray[np.float32],
    seed: tuple[int, int],
    templates: Collection,
) -> tuple[PreparedMolecule, ...]:
    """A molecule, then up to 24 decoys of it; none where nothing is made.

    Decoys are likely by the logits of the fingerprint, (F,), and are made of other templates than
    the molecule itself.
    """

    def is_itself(graph: MolecularGraph) -> bool:
        names = ("element", "pair", "bond_class")
        return all(np.array_equal(getattr(graph, name), getattr(itself, name)) for name in names)

    generator = np.random.default_rng(seed)
    mol = molecule_of(itself)
    if mol is None or formula.n_heavy > _LARGEST:
        return ()
    noise = generator.normal(0, generator.uniform(*_NOISE), len(logits))
    doubted = logits * generator.uniform(*_SCALE) + noise * (logits > _NEVER)
    doubtful = torch.sigmoid(torch.from_numpy(doubted.astype(np.float32))).numpy()
    name, scores = charge_free_smiles(mol), log_odds(doubtful)
    others = (graph for graph in templates.near(doubtful, formula) if not is_itself(graph))
    near_by = changed(mols_of_graphs(islice(others, BEGUN)), formula, templates.blocks)
    joined = together(templates.blocks, formula, scores, _MOST)
    best = likeliest(scores, _LIKELIEST, near_by, joined)
    decoys = [decoy for _, decoy in best if charge_free_smiles(decoy) != name]
    further = generator.permutation(np.arange(_FIRST, max(_FIRST, len(decoys))))
    chosen = decoys[:_FIRST] + [decoys[row] for row in further[: _MADE - _FIRST]]
    graphs = (itself, *(disassemble(other)[0] for other in chosen))
    bits = map(fingerprint, (mol, *chosen))
    return tuple(PreparedMolecule(formula, *own, "") for own in zip(graphs, bits, strict=True))


class ScorerModel(nn.Module):
    """What fragments speak for a molecule: at first their likelihood by a fitted fragment model."""

    def __init__(self, fitted: FragmentModel) -> None:
        super().__init__()
        self.hidden, self.presence = fitted.hidden, fitted.presence
        self.dropout = nn.Dropout(_FRAGMENT_DROPOUT)
        width, n_shifts = fitted.presence.in_features, fitted.presence.out_features
        self.worth = nn.Linear(width, 2 * n_shifts)  # as weights files call it
        nn.init.zeros_(self.worth.weight)
        nn.init.zeros_(self.worth.bias)

    def forward(self, features: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Log-odds of a peak, and what each speaks for the molecule, both (C, H).

        The features (C, N_INPUTS) are those of `data.fragmentation.fragment_features`; (C, H) are
        peaks or not.
        """
        hidden = self.dropout(self.hidden(features))
        log_odds = self.presence(hidden)
        found, missed = self.worth(hidden).chunk(2, 1)
        found = found + FOUND * (logsigmoid(log_odds) - BY_CHANCE)
        missed = missed * torch.sigmoid(log_odds) - MISSED * softplus(log_odds)
        return log_odds, torch.where(there, found, missed)


class Case(NamedTuple):
    """A molecule, before decoys of its formula, (D,); and spectra as `explained_peaks` of it."""

    molecules: Sequence[MolecularGraph]
    spectra: Sequence[tuple[Ion, NDArray[np.int16], NDArray[np.float32]]]


class Cases(Sequence[Case]):
    """Molecules of fold train that have decoys, each read when it is asked for."""

    def __init__(self, spectra: PreparedSpectra, decoys: Decoys) -> None:
        of_train = by_molecule(spectra, simulated_rows(spectra, "train"))
        both = zip(of_train[0].tolist(), of_train[1], strict=True)
        self.members = [(row, own) for row, own in both if len(decoys.rows(row)) > 1]
        self.spectra, self.decoys = spectra, decoys

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, place: int) -> Case:  # type: ignore[override]
        row, own = self.members[place]
        graphs = [graph_of(self.decoys.molecules, decoy) for decoy in self.decoys.rows(row)]
        return Case(graphs, [explained_peaks(self.spectra, spectrum) for spectrum in own])


def fit_evidence(
    structures: Molecules,
    environments: NDArray[np.uint8],
    spectra: PreparedSpectra,
    decoys: Decoys,
    steps: int = 2500,
    seed: int = 1,
    advance: Advance = lambda steps: None,
    workers: int = 1,
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Count bits of the structures of fold train, and fit a fragment model to its spectra.

    The model is fitted to the spectra, in so many steps, and then against the decoys. The tensors
    for a weights file, with the filter of environments (see `scores`), and what to keep on record.
    """
    train = structures.in_folds("train")
    if not train.any():
        raise UnreadableError("the prepared structures hold none of fold train")
    model, record = fit_simulator(spectra, steps, seed, advance, width=_WIDTH)
    scorer, cases = ScorerModel(model), Cases(spectra, decoys)
    against = fit_against_decoys(scorer, cases, seed, advance, workers) if cases else {}
    tensors = dict(scorer.state_dict())
    # Share of the molecules that have each bit, none of it 0.
    of_bit = np.repeat(train, np.diff(structures.bit_offset))
    counts = np.bincount(np.asarray(structures.bits)[of_bit], minlength=FINGERPRINT_BITS)
    tensors["log_prevalence"] = torch.from_numpy(np.log((counts + 1) / (train.sum() + 1))).float()
    tensors["environments"] = torch.from_numpy(environments)
    return tensors, {"structures": int(train.sum()), **record, **against}


def fit_against_decoys(
    model: ScorerModel,
    cases: Sequence[Case],
    seed: int = 1,
    advance: Advance = lambda steps: None,
    workers: int = 1,
) -> dict[str, object]:
    """Fit a scorer to give each molecule a higher score than its decoys, in place.

    So many processes cut the molecules into fragments. On record are molecules, and the share of
    the last round that came first.
    """
    a_round = -(-len(cases) // _AT_ONCE)
    came_first: list[bool] = []

    def drawn() -> Iterator[Case]:
        for step in range(_ROUNDS * a_round):
            number, place = divmod(step, a_round)
            order = np.random.default_rng((seed, number)).permutation(len(cases))
            generator = np.random.default_rng((seed, step))
            for row in order[place * _AT_ONCE : (place + 1) * _AT_ONCE]:
                yield drawn_from(cases[row], generator)

    made = in_order(fragments_of, drawn(), workers, at_a_time=1)

    def batch_of(step: int) -> list[list[Seen]]:
        return [*islice(made, min(_AT_ONCE, len(cases) - step % a_round * _AT_ONCE))]

    def loss(model: ScorerModel, batch: list[list[Seen]]) -> tuple[Tensor, Tensor]:
        scores, likelihood = scores_of(model, batch)
        came_first.extend(int(case.argmax()) == 0 for case in scores)
        entropy = torch.stack([case.logsumexp(0) - case[0] for case in scores]).mean()
        return entropy + _LIKELIHOOD * likelihood, torch.ones_like(entropy)

    settings = TrainingSettings(seed=seed, steps=_ROUNDS * a_round, optimiser=_FRAGMENT_RATES)
    fit(model, batch_of, loss, settings, advance)
    first = float(np.mean(came_first[-len(cases) :]))
    return {"told_apart": len(cases), "first_of_rivals": first}


def scores_of(model: ScorerModel, cases: Sequence[Sequence[Seen]]) -> tuple[list[Tensor], Tensor]:
    """Score of each molecule of each case, (D,), and the loss of the peaks of the true ones."""
    molecules = [molecule for case in cases for molecule in case]
    features, there = (
        torch.from_numpy(np.concatenate(part)) for part in zip(*molecules, strict=True)
    )
    log_odds, values = model(features, there)
    sizes = [len(rows) for rows, _ in molecules]
    sums = torch.stack([part.sum() for part in values.sum(1).split(sizes)])
    is_true = torch.tensor([place == 0 for case in cases for place in range(len(case))])
    of_true = is_true.repeat_interleave(torch.tensor(sizes))
    seen = there[of_true]
    entropy = binary_cross_entropy_with_logits(log_odds[of_true], seen.float(), reduction="sum")
    return list(sums.split([len(case) for case in cases])), entropy / seen.sum().clamp_min(1)


def drawn_from(case: Case, generator: np.random.Generator) -> Case:
    """One of the spectra, the molecule and some of its decoys."""
    spectrum = case.spectra[int(generator.integers(len(case.spectra)))]
    some = 1 + generator.permutation(len(case.molecules) - 1)[:_DECOYS]
    return Case([case.molecules[place] for place in (0, *some.tolist())], [spectrum])


def fragments_of(case: Case) -> list[Seen]:
    """Features and peaks of the first spectrum over fragments of each molecule; see `scores_of`."""
    ion, subformula, intensity = case.spectra[0]
    n_bonds = np.array([len(graph.pair) for graph in case.molecules])
    result: dict[int, Seen] = {}
    for n in np.unique(n_bonds):  # those with as many are made at once
        rows = np.flatnonzero(n_bonds == n).tolist()
        made = fragments_of_isomers([case.molecules[row] for row in rows], SCORED_TRIPLES)
        there = measured_intensity(made, ion, subformula, intensity) > 0
        ends = np.searchsorted(made.molecule, np.arange(1, len(rows)))
        parts = (np.split(columns, ends) for columns in (fragment_features(made, ion), there))
        result |= dict(zip(rows, zip(*parts, strict=True), strict=True))
    return [result[row] for row in range(len(n_bonds))]
