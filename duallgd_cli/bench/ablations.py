"""The paper's ablations, and those of our own choices, each trained on the same budget.

Every variant is the default network with one part replaced (`model.ablations`), or with one
setting changed, under the honest protocol: atoms sorted by element, nothing of the answer in the
input. All are judged by finished samples on structures that none was trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from duallgd_cli.bench.arms import Arm, Budget, Judging, Watcher, run_arm
from duallgd_cli.bench.held_out import HeldOut, bond_marginal
from duallgd_cli.bench.judging import COLUMNS, even_jumps
from duallgd_cli.config import SamplingSettings, override
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.bootstrap import Estimate, independent
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.run import RunSettings

REFERENCE: Final = "full"
CITATION: Final = "the paper's table of ablations (label tab:ablation_crossattn), NPLIB1"


@dataclass(frozen=True, slots=True)
class Published:
    """A row of the paper's table: top-1 and top-10 in per cent, Tanimoto@1 and @10."""

    top_1: float
    top_10: float
    tanimoto_1: float
    tanimoto_10: float


@dataclass(frozen=True, slots=True)
class Variant:
    """One network to compare.

    Attributes:
        name: On the command line, and of its folder.
        title: In tables.
        changes: Dotted assignments, as after ``--set``.
        paper: The paper's row, or None where it has none.
        kekule: Whether it is trained and judged without aromatic bonds, on what
            `data.prepare_kekule_forms` makes.
    """

    name: str
    title: str
    changes: tuple[str, ...] = ()
    paper: Published | None = None
    kekule: bool = False


# Positions that are seen while the noise is high, and not where chemistry is decided.
_FADING: Final = ("model.denoiser.fade_from=100", "model.denoiser.fade_to=300")
_NARROW: Final = (
    "model.denoiser.atom_width=128",
    "model.denoiser.pair_width=48",
    "model.denoiser.cross_width=48",
)

VARIANTS: Final = (
    Variant("full", "full network", paper=Published(25.53, 33.75, 0.50, 0.58)),
    Variant(
        "single-stream",
        "without line graph (single stream)",
        ("model.variant=single-stream",),
        Published(2.24, 6.23, 0.24, 0.35),
    ),
    Variant(
        "no-cross-attention",
        "without cross-attention",
        ("model.variant=no-cross-attention",),
        Published(0.62, 1.37, 0.15, 0.22),
    ),
    Variant(
        "atoms-to-bonds",
        "atoms to bonds only",
        ("model.variant=atoms-to-bonds",),
        Published(2.37, 3.99, 0.20, 0.29),
    ),
    Variant(
        "bonds-to-atoms",
        "bonds to atoms only",
        ("model.variant=bonds-to-atoms",),
        Published(0.00, 1.00, 0.13, 0.19),
    ),
    Variant(
        "no-incidence-mask",
        "without incidence mask",
        ("model.variant=no-incidence-mask",),
        Published(0.25, 1.00, 0.14, 0.20),
    ),
    Variant("softmax", "exact softmax for FAVOR+", ("model.denoiser.pair_features=0",)),
    Variant("no-bit-attention", "without bit attention", ("model.variant=no-bit-attention",)),
    Variant("no-positions", "no positions", ("model.variant=no-positions",)),
    Variant("fading-positions", "positions that fade with the noise", _FADING),
    Variant("random-labels", "random labels", ("training.data.shuffle_share=1.0",)),
    Variant("mixed-labels", "half of the labels random", ("training.data.shuffle_share=0.5",)),
    Variant("kekule", "Kekule forms for aromatic bonds", kekule=True),
    Variant("narrow", "two thirds of the width", _NARROW),
    Variant("muon", "Muon for the matrices", ("training.optimiser.matrices=muon",)),
)
BY_NAME: Final = {variant.name: variant for variant in VARIANTS}


@dataclass(frozen=True)
class AblationRequest:
    """What `duallgd bench ablations` was asked for.

    Attributes:
        data: Prepared structures; fold train is trained on, fold dev judged by.
        output: Folder of the study.
        budget: Of each variant.
        settings: Of the default network and its training.
        variants: Names, in the order of the table.
        sampling: Steps and samples of each molecule.
        molecules: How many are judged by.
        encoder: Weights whose encoder the checkpoints take along, so that they predict from
            spectra; None for an untrained one.
    """

    data: Path
    output: Path
    budget: Budget
    settings: RunSettings
    variants: tuple[str, ...] = tuple(BY_NAME)
    sampling: SamplingSettings = field(default_factory=even_jumps)
    molecules: int = 300
    encoder: Path | None = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.variants if name not in BY_NAME]
        if unknown:
            raise UsageError(f"no variant {', '.join(unknown)}; variants are {', '.join(BY_NAME)}")

    @property
    def max_atoms(self) -> int:
        """Of the molecules that are trained on and judged by."""
        return self.settings.training.data.max_atoms

    def data_of(self, variant: Variant) -> Path:
        """Folder that a variant is trained on and judged by."""
        return self.kekule_folder if variant.kekule else self.data

    @property
    def kekule_folder(self) -> Path:
        """Where the molecules without aromatic bonds lie, for the variant that asks for them."""
        return self.output / "kekule-forms"

    def arm(self, variant: Variant) -> Arm:
        """The training of one variant."""
        model, data = self.settings.model, self.data_of(variant)
        process = replace(model.diffusion, marginal=bond_marginal(data, self.max_atoms))
        settings = replace(self.settings, model=replace(model, diffusion=process))
        settings = override(settings, list(variant.changes))
        init = {} if self.encoder is None else {"encoder": self.encoder}
        return Arm(variant.name, variant.title, settings, data, init=init)

    def judging(self, variant: Variant) -> Judging:
        """How it is judged."""
        held_out = HeldOut(self.data_of(variant), limit=self.molecules, max_atoms=self.max_atoms)
        return Judging((held_out,), self.sampling)


@dataclass(frozen=True)
class Row:
    """A finished variant.

    Attributes:
        variant: Which.
        result: What `run_arm` found.
        estimates: Means over molecules with 95 % intervals, by column of `COLUMNS`.
        minus_full: Likewise of the differences to the full network, molecule by molecule; empty
            without it.
    """

    variant: Variant
    result: Mapping[str, Any]
    estimates: Mapping[str, Estimate]
    minus_full: Mapping[str, Estimate]


def run_ablations(
    request: AblationRequest, runtime: Runtime, watcher: Watcher | None = None
) -> list[Row]:
    """Train and judge every variant that is not finished yet.

    Args:
        request: What to do.
        runtime: Device and precision.
        watcher: Told how it goes.

    Raises:
        MissingInputError: There are no prepared data, or none at `kekule_folder` that is needed.
        UsageError: Data without small enough molecules, or a folder of another study.
        InterruptedRunError: Ctrl-C; the same command goes on.
    """
    chosen = [BY_NAME[name] for name in request.variants]
    for variant in chosen:  # nothing is trained that could not be judged
        request.judging(variant).held_out[0].structures()
    results = {}
    for variant in chosen:
        results[variant.name] = run_arm(
            request.arm(variant),
            request.budget,
            request.judging(variant),
            request.output / variant.name,
            runtime,
            watcher or Watcher(),
        )
    return rows_of(results)


def rows_of(results: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Rows of the table from the results by name."""
    full = results.get(REFERENCE)
    return [
        Row(
            BY_NAME[name],
            result,
            estimates([_columns(result, _blocks(result))]),
            {} if full is None else _difference(result, full),
        )
        for name, result in results.items()
    ]


def estimates(sides: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, Estimate]:
    """Means with 95 % intervals over molecules, of one side or of the first less the second."""
    tables = [np.array([side[name] for name in COLUMNS]).T for side in sides]
    values = tables[0] - tables[1] if len(tables) > 1 else tables[0]
    return dict(zip(COLUMNS, independent(values.astype(np.float64)), strict=True))


def _difference(result: Mapping[str, Any], full: Mapping[str, Any]) -> dict[str, Estimate]:
    """Over the molecules that both were judged by: all, but for those without a Kekule form."""
    own = set(_blocks(result))
    shared = [block for block in _blocks(full) if block in own]
    return estimates([_columns(result, shared), _columns(full, shared)])


def _blocks(result: Mapping[str, Any]) -> list[str]:
    blocks: list[str] = result["orders"]["formula"]["molecules"]
    return blocks


def _columns(result: Mapping[str, Any], blocks: Sequence[str]) -> dict[str, list[float]]:
    """Figures of some molecules, by column."""
    place = {block: row for row, block in enumerate(_blocks(result))}
    finished: Mapping[str, Sequence[float]] = result["orders"]["formula"]["finished"]
    rows = [place[block] for block in blocks]
    return {name: [values[row] for row in rows] for name, values in finished.items()}
