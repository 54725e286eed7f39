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
from duallgd_cli.bench.judging import COLUMNS, even_jumps
from duallgd_cli.bench.suites.held_out import HeldOut, bond_marginal
from duallgd_cli.config import SamplingSettings, override
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluation.bootstrap import Estimate, independent
from duallgd_cli.runtime import Runtime
from duallgd_cli.training.run import RunSettings

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
    """

    name: str
    title: str
    changes: tuple[str, ...] = ()
    paper: Published | None = None


# Positions that are seen in full, or not at all, at every step t from 1 to T.
_ALWAYS: Final = ("model.denoiser.fade_from=-1", "model.denoiser.fade_to=0")

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
    Variant("full-positions", "positions that do not fade", _ALWAYS),
    Variant("random-labels", "random labels", ("training.data.shuffle_share=1.0",)),
    Variant("mixed-labels", "half of the labels random", ("training.data.shuffle_share=0.5",)),
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

    def arm(self, variant: Variant, marginal: tuple[float, ...]) -> Arm:
        """The training of one variant."""
        model = self.settings.model
        process = replace(model.diffusion, marginal=marginal)
        settings = replace(self.settings, model=replace(model, diffusion=process))
        settings = override(settings, list(variant.changes))
        init = {} if self.encoder is None else {"encoder": self.encoder}
        return Arm(variant.name, variant.title, settings, self.data, init=init)


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
        MissingInputError: There are no prepared data.
        UsageError: Data without small enough molecules, or a folder of another study.
        InterruptedRunError: Ctrl-C; the same command goes on.
    """
    max_atoms = request.settings.training.data.max_atoms
    marginal = bond_marginal(request.data, max_atoms)
    held_out = HeldOut(request.data, limit=request.molecules, max_atoms=max_atoms)
    judging = Judging((held_out,), request.sampling)
    held_out.structures()  # nothing is trained that could not be judged
    results = {}
    for name in request.variants:
        arm = request.arm(BY_NAME[name], marginal)
        folder = request.output / name
        results[name] = run_arm(arm, request.budget, judging, folder, runtime, watcher or Watcher())
    return rows_of(results)


def rows_of(results: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Rows of the table from the results by name."""
    full = results.get(REFERENCE)
    return [
        Row(
            BY_NAME[name],
            result,
            estimates([_columns(result)]),
            {} if full is None else estimates([_columns(result), _columns(full)]),
        )
        for name, result in results.items()
    ]


def estimates(sides: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, Estimate]:
    """Means with 95 % intervals over molecules, of one side or of the first less the second."""
    tables = [np.array([side[name] for name in COLUMNS]).T for side in sides]
    values = tables[0] - tables[1] if len(tables) > 1 else tables[0]
    return dict(zip(COLUMNS, independent(values.astype(np.float64)), strict=True))


def _columns(result: Mapping[str, Any]) -> Mapping[str, Sequence[float]]:
    columns: Mapping[str, Sequence[float]] = result["orders"]["formula"]["finished"]
    return columns
