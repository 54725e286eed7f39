"""The study behind `duallgd bench attention`: molecules in, statistics, tables and figures out."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from duallgd_cli import __version__
from duallgd_cli.bench.asymmetry import NoiseLevels, Studied, check, first_weights, load_studied
from duallgd_cli.bench.asymmetry_classes import (
    UNEQUAL,
    MoleculeAsymmetry,
    asymmetry,
    difference_of,
    mean_of_unequal,
    means,
    order_effect,
    summarise,
)
from duallgd_cli.bench.attention_plots import write_figures
from duallgd_cli.bench.attention_report import comma_separated, markdown, reading
from duallgd_cli.bench.prepared_molecules import KnownMolecule, Selection, known_molecules
from duallgd_cli.checkpoint.resolve import resolve_weights
from duallgd_cli.chem.elements import BOND_NONE, HEAVY
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.report import finite, make_folder
from duallgd_cli.files import sha256, write_atomically

RESULTS: Final = "results.json"
KINDS: Final = "kinds.csv"
TABLE: Final = "attention.md"
_FORMAT: Final = "duallgd-attention-1"
# The molecule of the paper's figure has so many heavy atoms.
_SHOWN_ATOMS: Final = 21
_DEFINITION: Final = (
    "log2 r, r = attention that a pair gives its less electronegative atom over attention to the "
    "more electronegative one (paper, section 4.5, equation 6): below 0 where the more "
    "electronegative atom gets more. Weights are averaged over heads, noise draws, layers and "
    "noise levels before the ratio is taken. Pauling's scale; equal ends are oriented by a coin. "
    "Intervals (95 %, bootstrap) and the two-sided sign test are by molecule."
)
Tick = Callable[[float], None]


@dataclass(frozen=True)
class AttentionRequest:
    """What to study.

    Attributes:
        data: Prepared folder.
        output: Folder to write to.
        weights: File or registered name; None takes the shipped ones.
        selection: Which molecules.
        noise: Noise levels.
        layers: From 1; None takes all.
        untrained: So many networks of the same shape before training, as a control.
        plot: Whether to draw the figures.
    """

    data: Path
    output: Path
    weights: Path | None = None
    selection: Selection = field(default_factory=Selection)
    noise: NoiseLevels = field(default_factory=NoiseLevels)
    layers: tuple[int, ...] | None = None
    untrained: int = 3
    plot: bool = True


def study(request: AttentionRequest, device: torch.device, tick: Tick) -> dict[str, Any]:
    """Look at all molecules; write results.json, the tables and, if asked for, the figures.

    Args:
        request: What to study.
        device: To run on.
        tick: Told the share that is done, 0 to 1.

    Returns:
        Contents of results.json.

    Raises:
        DuallgdError: Data, weights, options or the output folder do not fit.
    """
    path = resolve_weights(request.weights)
    studied = load_studied(path, device, predicted=request.selection.peaks)
    layers = check(studied, request.noise.steps, request.layers)
    molecules, fold = known_molecules(request.data, request.selection)
    known = [molecule for molecule in molecules if studied.knows(molecule)]
    if not known:
        raise UsageError(f"these weights know the elements of none of {len(molecules)} molecules")
    make_folder(request.output)
    progress = _Progress(tick, len(known) * (1 + request.untrained))
    seen = [progress.next(_look(studied, one, request.noise, layers)) for one in known]
    controls = []
    for seed in range(request.untrained):
        fresh = studied.untrained(seed)
        others = [progress.next(_look(fresh, one, request.noise, layers)) for one in known]
        controls.append(_control(seed, others))
    names = [f"layer {layer + 1}" for layer in layers] + [f"t = {t}" for t in request.noise.steps]
    kinds = summarise(seen, names)
    found = {
        "format": _FORMAT,
        "duallgd": __version__,
        "definition": _DEFINITION,
        "weights": {"file": path.name, "sha256": sha256(path)},
        "data": {"folder": request.data.name, "fold": fold, "molecules": len(known)},
        "molecules_with_foreign_elements": len(molecules) - len(known),
        "condition": "predicted fingerprints" if request.selection.peaks else "true fingerprints",
        "noise": asdict(request.noise),
        "layers": [layer + 1 for layer in layers],
        "kinds": [kind.as_mapping() for kind in kinds],
        "order_effect": asdict(order_effect(seen)),
        "untrained": controls,
        "shown": _shown(known, seen),
    }
    return _write(request, {**found, "reading": reading(found)})


@dataclass
class _Progress:
    """Counts molecules that were looked at."""

    tick: Tick
    total: int
    done: int = 0

    def next(self, seen: MoleculeAsymmetry) -> MoleculeAsymmetry:
        self.done += 1
        self.tick(self.done / self.total)
        return seen


def _look(
    studied: Studied, molecule: KnownMolecule, noise: NoiseLevels, layers: Sequence[int]
) -> MoleculeAsymmetry:
    first = first_weights(studied, molecule, noise, layers)
    return asymmetry(molecule.key, molecule.atom_class, molecule.bond_class, first, noise.seed)


def _control(seed: int, seen: Sequence[MoleculeAsymmetry]) -> dict[str, Any]:
    found = means(seen)
    kinds = [estimate for name, estimate in found.items() if difference_of(name)]
    return {
        "seed": seed,
        "mean": asdict(found[UNEQUAL]) if UNEQUAL in found else None,
        "high": sum(estimate.high < 0 for estimate in kinds),
        "low": sum(estimate.low > 0 for estimate in kinds),
    }


def _shown(known: Sequence[KnownMolecule], seen: Sequence[MoleculeAsymmetry]) -> dict[str, Any]:
    """The molecule of the figure: of the paper's size, and its mean nearest to that of them all."""
    own_means = np.array([mean_of_unequal(one) for one in seen])
    away = np.abs(own_means - np.nanmean(own_means)) if np.isfinite(own_means).any() else own_means
    size = np.array([abs(len(one.atom_class) - _SHOWN_ATOMS) for one in known])
    place = int(np.lexsort((away, size))[0])  # NaN comes last
    molecule, own = known[place], seen[place]
    n = len(molecule.atom_class)
    pairs = zip(*np.triu_indices(n, 1), strict=True)
    columns = zip(pairs, molecule.bond_class, own.log_ratio[:, 0], own.by_row, strict=True)
    return {
        "molecule": molecule.key,
        "elements": [HEAVY[element] for element in molecule.atom_class],
        "places": molecule.places().tolist(),
        "bonds": [
            {
                "atoms": [int(low), int(high)],
                "class": int(bond),
                "log_ratio": float(ratio),
                "preferred": int(low if row > 0 else high),  # the end that gets more
            }
            for (low, high), bond, ratio, row in columns
            if bond != BOND_NONE
        ],
    }


def _write(request: AttentionRequest, found: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(finite(found), indent=1, ensure_ascii=False) + "\n"
    plain: dict[str, Any] = json.loads(text)
    write_atomically(request.output / RESULTS, [text])
    write_atomically(request.output / KINDS, comma_separated(plain["kinds"]))
    write_atomically(request.output / TABLE, markdown(plain))
    if request.plot:
        write_figures(request.output, plain)
    return plain
