"""What the samples of a spectrum begin as: noise, known molecules, or molecules made of these.

S samples, N heavy atoms, M = N (N - 1) / 2 pairs, F fingerprint bits.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.building_blocks import NO_BLOCKS, BuildingBlocks
from duallgd_cli.chem.elements import N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.data.molecular_graph import MolecularGraph
from duallgd_cli.diffusion import SamplingTask
from duallgd_cli.errors import Failure, RefusedError
from duallgd_cli.generator.reranker import CandidateScorer
from duallgd_cli.generator.sampling import sampling_task
from duallgd_cli.generator.templates import BEGUN, Templates, in_templates, molecule_of, starts
from duallgd_cli.guide import MOST_CHOSEN, Known
from duallgd_cli.model.settings import DiffusionSettings

if TYPE_CHECKING:
    from duallgd_cli.chem.guide import Guide
    from duallgd_cli.chem.molecule import Mol

# Added to the seed of the noise: for samples that are made of known molecules, hold a core, start
# from molecules of the user, or hold required parts.
_OF_MADE, _OF_HELD, _OF_ANALOGUES, _OF_PARTS = 8, 16, 32, 48
# Shares of the way to pure noise that templates are noised, half of them each: little keeps their
# skeleton, more lets it change.
_NOISED: Final = (0.25, 0.1)
# Of the samples that begin from known molecules, those that are made of them, by one change or of
# building blocks; the others begin from a known molecule as it is.
_MADE_SHARE: Final = 0.8
# Changes of one known molecule, so that a large one takes no longer than its drawing.
_MOST_OF_ONE: Final = 1_000
# Molecules put together, and how many are looked at until so many have a known core.
_PUT_TOGETHER, _LOOKED_AT = 1_000, 10_000
# Molecules that are compared at once: a thousand large ones take 25 MiB.
_AT_ONCE: Final = 1_000
# What one change is worth, in log-odds, next to blocks put together; chosen on fold val.
_OF_A_CHANGE: Final = 10.0
# So many times as many as are wanted are compared by what their fragments speak for them, and what
# that counts in log-odds of the bits; chosen on fold val.
_COMPARED: Final = 4
_OF_PEAKS: Final = 10.0
# What log-odds of bits and their contrast count for beside all this; chosen on fold val.
_OF_CHANCE, _OF_CONTRAST = 0.4, 4.0
_LEAST, _MOST = 0.003, 0.997
_price: Final = itemgetter(0)


class Unknown(NamedTuple):
    """The molecule of a spectrum, as far as anything is known of it.

    Attributes:
        formula: Of all its samples.
        fingerprint: Predicted chance of each Morgan bit, float32 (F,), on the CPU.
        known: By the user, or None.
        scorer: Says how well a molecule explains the peaks, or None.
        check: Called before each molecule that the user's words are held against; may raise to
            stop.
    """

    formula: Formula
    fingerprint: Tensor
    known: Known | None = None
    scorer: CandidateScorer | None = None
    check: Callable[[], None] = lambda: None

    @property
    def probability(self) -> NDArray[np.float32]:
        """The fingerprint as an array."""
        return np.asarray(self.fingerprint.numpy())

    @property
    def bit_scores(self) -> NDArray[np.float64]:
        """What each bit speaks for a molecule: its log-odds, and what an encoder makes of them."""
        chance = self.probability.astype(np.float64).clip(_LEAST, _MOST)
        log_odds = np.asarray(np.log(chance / (1 - chance)))
        if self.scorer is None or self.scorer.contrast is None:
            return log_odds
        return _OF_CHANCE * log_odds + _OF_CONTRAST * self.scorer.contrast

    @property
    def guide(self) -> "Guide | None":
        """What the user says that it must be like."""
        return None if self.known is None else self.known.guide

    def allowed(self, made: "Iterable[tuple[Mol, float]]") -> "Iterable[tuple[Mol, float]]":
        """Those of molecules of its formula that are as the user says."""
        guide = self.guide
        return made if guide is None else (one for one in made if self._has_all(guide, one[0]))

    def _has_all(self, guide: "Guide", mol: "Mol") -> bool:
        self.check()
        return not guide.fault(mol)


@dataclass(frozen=True, eq=False)
class Planner:
    """Shares the samples out.

    Attributes:
        process: Of the network that denoises.
        device: Where samples are drawn.
        templates: Known molecules to start some of them from, or None.
    """

    process: DiffusionSettings
    device: torch.device
    templates: Templates | None = None

    @property
    def blocks(self) -> BuildingBlocks:
        """What molecules are put together from."""
        return NO_BLOCKS if self.templates is None else self.templates.blocks

    def fresh(self, n_pairs: int, settings: SamplingSettings, seed: int) -> SamplingTask:
        """All samples, of graphs of M pairs, from pure noise."""
        return sampling_task(self.process, settings, seed, n_pairs, self.device)

    def tasks(self, unknown: Unknown, settings: SamplingSettings, seed: int) -> list[SamplingTask]:
        """Samples from pure noise, then those from known molecules, by their noise.

        Where the weights hold templates, the last samples start from those; where the user knows
        molecules or parts, half of the samples do, and a known core is held by all that are not
        made. Where the user has databases none is drawn.

        Raises:
            RefusedError: No molecule of the databases is of the formula and as asked for.
        """
        formula, known = unknown.formula, unknown.known
        whole = self.fresh(formula.n_heavy * (formula.n_heavy - 1) // 2, settings, seed)
        if known is not None and known.databases:
            return self._of_databases(whole, unknown, known)
        begun = min(round(settings.analogue_share * settings.samples), settings.samples - 1)
        if settings.core is not None:
            return self._with_core(whole, unknown, settings, begun)
        half = settings.samples // 2  # of the samples, where the user knows something
        again = known is not None and known.is_short  # what is made would be the same again
        if known is not None and again and begun:
            others = replace(settings, samples=settings.samples - half, analogue_share=0.0)
            tasks = self._with_parts(whole, half, unknown)
            if tasks:
                return [*self.tasks(unknown._replace(known=None), others, seed), *tasks]
        probability = unknown.probability
        graphs = known.graphs(probability, formula) if known is not None and begun else []
        if known is not None and graphs:
            made = () if again else unknown.allowed(changed(graphs, formula, self.blocks))
            tasks = self._of_made(whole, made, unknown, int(_MADE_SHARE * half), _OF_ANALOGUES)
            n_left = half - sum(task.samples for task in tasks)
            own = torch.from_numpy(starts(graphs[:BEGUN], formula, n_left, seed))
            tasks += self._begun(whole, own, _OF_ANALOGUES)
            others = replace(settings, samples=whole.samples - sum(t.samples for t in tasks))
            rest = unknown._replace(known=Known(known.guide, is_short=known.is_short))
            return [*self.tasks(rest, others, seed), *tasks]
        if self.templates is None or not begun:
            return [whole]
        near = self.templates.near(probability, formula)
        changes = unknown.allowed(changed(near, formula, self.blocks))
        both = chain(changes, put_together(self.blocks, unknown))
        tasks = self._of_made(whole, () if again else both, unknown, int(_MADE_SHARE * begun))
        n_left = begun - sum(task.samples for task in tasks)
        if near:
            begin = starts(near[:BEGUN], formula, n_left, seed, exchange=False)
            tasks += self._begun(whole, torch.from_numpy(begin))
        return [replace(whole, samples=whole.samples - sum(t.samples for t in tasks)), *tasks]

    def _of_databases(
        self, whole: SamplingTask, unknown: Unknown, known: Known
    ) -> list[SamplingTask]:
        """The likeliest molecules of the databases, however many samples were asked for."""
        made = unknown.allowed((mol, 0.0) for mol in known.isomers(unknown.formula))
        tasks = self._of_made(whole, made, unknown, MOST_CHOSEN)
        if tasks:
            return tasks
        asked = "" if unknown.guide is None else " and is as asked for"
        message = (
            f"no structure of the database has the formula {unknown.formula}{asked}; without "
            "--database structures are drawn"
        )
        raise RefusedError(Failure("no_candidate", message, "sample"))

    def _of_made(
        self,
        whole: SamplingTask,
        made: "Iterable[tuple[Mol, float]]",
        unknown: Unknown,
        most: int,
        shift: int = 0,
    ) -> list[SamplingTask]:
        """The likeliest of molecules, of which the network only says how probable they are."""
        start = likeliest_starts(made, unknown, most)
        if start is None:
            return []
        plan = (max(1, round(_NOISED[0] * self.process.n_steps)), 0)
        seed = whole.seed + shift + _OF_MADE
        task = replace(whole, plan=plan, seed=seed, samples=len(start), is_given=True)
        return [replace(task, start=start.to(self.device))]

    def _begun(
        self,
        whole: SamplingTask,
        start: Tensor,
        shift: int = 0,
        held: Tensor | None = None,
    ) -> list[SamplingTask]:
        """Samples from these graphs (S, M), some noised more than others; none if all steps do.

        The noise of each task has a seed of its own, `shift` and a few on from that of the whole.
        Bonds (S, M) that are `held` do not change.
        """
        levels = (round(share * self.process.n_steps) for share in _NOISED)
        parts = (tuple(step for step in whole.plan if step <= most) for most in levels)
        plans = [plan for plan in parts if len(plan) > 1]
        rows = torch.arange(len(start)).chunk(len(plans)) if plans else ()
        device, seed = self.device, whole.seed + shift + 1
        return [
            replace(
                whole,
                plan=plan,
                seed=seed + number,
                samples=len(own),
                start=start[own].to(device),
                held=None if held is None else held[own].to(device),
            )
            for number, (plan, own) in enumerate(zip(plans, rows, strict=False))
        ]

    def _with_core(
        self, whole: SamplingTask, unknown: Unknown, settings: SamplingSettings, begun: int
    ) -> list[SamplingTask]:
        """Molecules made of known ones that have the core, then samples that hold it.

        Half of these begin in known molecules that have it, if there are any.
        """
        from duallgd_cli.chem.guide import Guide, read_core  # rdkit loads only here

        formula, probability, seed = unknown.formula, unknown.probability, whole.seed
        core = read_core(settings.core or "")
        known = unknown.known or Known(Guide(core=settings.core))
        unknown = unknown._replace(known=known)

        def find(one: MolecularGraph) -> NDArray[np.int64] | None:
            unknown.check()
            return core.found(one.element, one.pair, one.bond_class)

        own = known.graphs(probability, formula)[:BEGUN]
        graphs = [(one, match) for one in own if (match := find(one)) is not None]
        tasks = []
        if self.templates is not None and begun:
            if not known.is_short:  # what is made would be the same again
                near = chain(own, self.templates.near(probability, formula))
                changes = unknown.allowed(changed(near, formula, self.blocks))
                both = chain(changes, put_together(self.blocks, unknown))
                tasks = self._of_made(whole, both, unknown, int(_MADE_SHARE * begun))
            needed = np.bincount(core.element, minlength=N_HEAVY)
            graphs += self.templates.around(find, probability, formula, needed)
        n_held = settings.samples - sum(task.samples for task in tasks)
        n_begun = n_held // 2 if graphs and begun else 0
        if n_begun:
            start, held = in_templates(graphs, formula, n_begun, seed, core)
            tasks += self._begun(whole, start, _OF_HELD + 1, held)
        n_other = settings.samples - sum(task.samples for task in tasks)
        held = torch.from_numpy(core.held(formula, core.places(formula, n_other, seed))).long()
        drawn = replace(whole, seed=seed + _OF_HELD, samples=n_other, held=held.to(self.device))
        return [*tasks, drawn]

    def _with_parts(
        self, whole: SamplingTask, samples: int, unknown: Unknown
    ) -> list[SamplingTask]:
        """Samples that start from known molecules with required parts, and hold those."""
        guide = unknown.guide
        if self.templates is None or guide is None:
            return []

        def find(one: MolecularGraph) -> NDArray[np.int64] | None:
            unknown.check()
            mol = molecule_of(one)
            return None if mol is None else guide.required_in(mol)

        graphs = self.templates.around(find, unknown.probability, unknown.formula)
        if not graphs:
            return []
        start, held = in_templates(graphs, unknown.formula, samples, whole.seed)
        return self._begun(whole, start, _OF_PARTS, held)


def changed(
    known: Iterable[MolecularGraph], formula: Formula, blocks: BuildingBlocks
) -> "Iterator[tuple[Mol, float]]":
    """Molecules of a formula that are one change away from known ones, some more than once.

    Args:
        known: The molecules.
        formula: Of the unknown.
        blocks: What may be put in place of a group or a hydrogen.

    Returns:
        Molecules, made when they are asked for, and what is added to the log-odds of the bits.
    """
    from duallgd_cli.chem.edits import edited  # rdkit loads only here

    mols = list(filter(None, map(molecule_of, known)))
    each = (islice(edited(mol, formula, blocks), _MOST_OF_ONE) for mol in mols)
    return ((one, _OF_A_CHANGE) for made in each for one in made)


def put_together(blocks: BuildingBlocks, unknown: Unknown) -> "Iterator[tuple[Mol, float]]":
    """Molecules of a formula from two or three building blocks, as the user says; see `changed`."""
    from duallgd_cli.chem.joining import together  # rdkit loads only here

    has_core = unknown.guide is not None and unknown.guide.core is not None
    most = _LOOKED_AT if has_core else _PUT_TOGETHER
    made = together(blocks, unknown.formula, unknown.bit_scores, most)
    yield from islice(unknown.allowed(made), _PUT_TOGETHER)


def likeliest_starts(
    made: "Iterable[tuple[Mol, float]]", unknown: Unknown, samples: int
) -> Tensor | None:
    """Graphs of the likeliest of molecules, by the fingerprint and by the peaks.

    Args:
        made: Of one formula, and what is added to the log-odds of the bits of each.
        unknown: What they should be like.
        samples: S at most.

    Returns:
        Bond classes, int64 (S, M), all different, or None where there are none.
    """
    from duallgd_cli.chem.molecule import disassemble  # rdkit loads only here

    scorer = unknown.scorer
    compared = cheapest(made, unknown.bit_scores, _COMPARED * samples)
    parts = [disassemble(one) for _, one in compared]
    peaks = [0.0 if scorer is None else sum(scorer.peaks(one)) for one in parts]
    price = [price - _OF_PEAKS * worth for (price, _), worth in zip(compared, peaks, strict=True)]
    rows = [parts[row].bond_class for row in np.argsort(price, kind="stable")[:samples]]
    return torch.from_numpy(np.stack(rows)).long() if rows else None


def cheapest(
    made: "Iterable[tuple[Mol, float]]", bit_scores: NDArray[np.float64], most: int
) -> "list[tuple[float, Mol]]":
    """Price and molecule of those whose bits score best, all of different graphs, in order."""
    from duallgd_cli.chem.identity import charge_free_smiles, fingerprint  # rdkit loads only here

    best: dict[str, tuple[float, Mol]] = {}
    waiting = iter(made)
    while some := list(islice(waiting, _AT_ONCE)):
        priced = [(-worth - bit_scores[fingerprint(one)].sum(), one) for one, worth in some]
        own: dict[str, tuple[float, Mol]] = {}
        for price, one in sorted(priced, key=_price):
            if len(own) == most:
                break
            own.setdefault(charge_free_smiles(one), (price, one))  # tautomers may share a graph
        both = sorted([*best.items(), *own.items()], key=lambda item: -_price(item[1]))
        best = dict(sorted(dict(both).items(), key=lambda item: _price(item[1]))[:most])
    return list(best.values())
