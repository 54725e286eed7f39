"""How much of an accuracy is read from the order of the atoms.

The published system lists the true molecule's atoms in the order of its canonical SMILES, and its
pair tokens tell the lower atom from the higher. The same network is trained once so and once with
atoms sorted by element, as a formula lists them; and our network beside them. All see the same
molecules, the same true fingerprints and the same budget.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from duallgd_cli.bench.ablations import estimates
from duallgd_cli.bench.arms import Arm, Budget, Judging, Watcher, run_arm
from duallgd_cli.bench.held_out import HeldOut, bond_marginal
from duallgd_cli.bench.judging import even_jumps
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.bootstrap import Estimate
from duallgd_cli.model.settings import AtomOrder, Variant
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.run import RunSettings

ORDERS: Final[tuple[AtomOrder, ...]] = ("truth", "random", "formula")


@dataclass(frozen=True, slots=True)
class Setting:
    """One arm of the study.

    Attributes:
        name: On the command line, and of its folder.
        title: In tables.
        variant: Which network.
        atom_order: In which it is trained.
        blind: Whether it gets no fingerprint at all.
    """

    name: str
    title: str
    variant: Variant
    atom_order: AtomOrder
    blind: bool = False


SETTINGS: Final = (
    Setting("published", "as published: true order", "published", "truth"),
    Setting(
        "published-blind",
        "as published, no fingerprint: true order alone",
        "published",
        "truth",
        blind=True,
    ),
    Setting("sorted", "same network, element-sorted", "published", "formula"),
    Setting("duallgd", "our network, element-sorted", "full", "formula"),
)
BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True)
class LeakRequest:
    """What `duallgd bench leak` was asked for.

    Attributes:
        data: Folder made by `data.prepare_orders`; ``NAME-blind`` lies beside it.
        output: Folder of the study.
        budget: Of each arm.
        settings: Sizes of both networks, and their training.
        arms: Names, in the order of the table.
        sampling: Steps and samples of each molecule.
        molecules: How many are judged by.
    """

    data: Path
    output: Path
    budget: Budget
    settings: RunSettings
    arms: tuple[str, ...] = tuple(BY_NAME)
    sampling: SamplingSettings = field(default_factory=even_jumps)
    molecules: int = 200

    def __post_init__(self) -> None:
        unknown = [name for name in self.arms if name not in BY_NAME]
        if unknown:
            raise UsageError(f"no arm {', '.join(unknown)}; arms are {', '.join(BY_NAME)}")

    def folder(self, setting: Setting) -> Path:
        """The data of an arm."""
        return self.data.with_name(f"{self.data.name}-blind") if setting.blind else self.data

    def arm(self, setting: Setting, marginal: tuple[float, ...]) -> Arm:
        """The training of one arm."""
        model = self.settings.model
        process = replace(model.diffusion, marginal=marginal)
        model = replace(model, diffusion=process, variant=setting.variant)
        return Arm(
            setting.name,
            setting.title,
            replace(self.settings, model=model),
            self.folder(setting),
            atom_order=setting.atom_order,
            reads_order=setting.atom_order != "formula",
        )


@dataclass(frozen=True)
class Reading:
    """One arm, judged with its atoms given in one order.

    Attributes:
        setting: The arm.
        order: Of the atoms.
        result: What `run_arm` found.
        estimates: Means over molecules with 95 % intervals, by column of `judging.COLUMNS`.
        noise_levels: Figures by noise level.
    """

    setting: Setting
    order: AtomOrder
    result: Mapping[str, Any]
    estimates: Mapping[str, Estimate]
    noise_levels: tuple[Mapping[str, float], ...]


def run_leak(
    request: LeakRequest, runtime: Runtime, watcher: Watcher | None = None
) -> list[Reading]:
    """Train and judge every arm that is not finished yet.

    Args:
        request: What to do.
        runtime: Device and precision.
        watcher: Told how it goes.

    Raises:
        MissingInputError: There are no prepared data.
        UsageError: The data do not know the order, or a folder is of another study.
        InterruptedRunError: Ctrl-C; the same command goes on.
    """
    max_atoms = request.settings.training.data.max_atoms
    marginal = bond_marginal(request.data, max_atoms)
    readings = []
    for name in request.arms:
        setting = BY_NAME[name]
        one = HeldOut(
            request.folder(setting),
            limit=request.molecules,
            max_atoms=max_atoms,
            truth=request.data,
        )
        judging = Judging(tuple(replace(one, order=order) for order in ORDERS), request.sampling)
        arm = request.arm(setting, marginal)
        folder = request.output / name
        result = run_arm(arm, request.budget, judging, folder, runtime, watcher or Watcher())
        readings += [_reading(setting, order, result) for order in ORDERS]
    return readings


def _reading(setting: Setting, order: AtomOrder, result: Mapping[str, Any]) -> Reading:
    judged = result["orders"][order]
    return Reading(
        setting,
        order,
        result,
        estimates([judged["finished"]]),
        tuple(judged["noise_levels"]),
    )
