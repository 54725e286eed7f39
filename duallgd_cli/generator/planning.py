"""Where the candidates of a spectrum come from: noise, known molecules, or molecules made of these.

S samples, N heavy atoms, M = N (N - 1) / 2 pairs, F fingerprint bits.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Self

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
from duallgd_cli.predict.prediction import DATABASE

if TYPE_CHECKING:
    from duallgd_cli.chem.guide import Guide
    from duallgd_cli.chem.molecule import Mol

# Added to the seed of the noise: for samples that hold a core, start from molecules of the user, or
# hold required parts.
_OF_HELD, _OF_ANALOGUES, _OF_PARTS = 16, 32, 48
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


@dataclass(slots=True, eq=False)
class Plan:
    """How the candidates of one hypothesis are proposed.

    Attributes:
        tasks: Samples that the network draws, each with the name of their source.
        molecules: Complete molecules of the formula, which need no network, likewise.
    """

    tasks: list[tuple[str, SamplingTask]] = field(default_factory=list)
    molecules: "list[tuple[str, Mol]]" = field(default_factory=list)

    @property
    def count(self) -> int:
        """Proposals of both kinds."""
        return sum(task.samples for _, task in self.tasks) + len(self.molecules)

    def __iadd__(self, other: "Plan") -> Self:
        self.tasks += other.tasks
        self.molecules += other.molecules
        return self


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

    def plan(self, unknown: Unknown, settings: SamplingSettings, seed: int) -> Plan:
        """Samples from pure noise, then those from known molecules, and molecules made of these.

        Where the weights hold templates, the last samples start from those; where the user knows
        molecules or parts, half of the samples do, and a known core is held by all samples. The
        likeliest structures of databases stand beside all these, or alone.

        Raises:
            RefusedError: Nothing else may be proposed, and no structure of the databases is of the
                formula and as asked for.
        """
        formula, known = unknown.formula, unknown.known
        whole = self.fresh(formula.n_heavy * (formula.n_heavy - 1) // 2, settings, seed)
        if known is not None and known.databases:
            plan = Plan() if known.is_short else _of_databases(unknown, known)
            if settings.database_share < 1:
                rest = unknown._replace(known=replace(known, databases=()))
                plan += self.plan(rest, settings, seed)
            elif not plan.molecules:
                raise _none_of_databases(unknown)
            return plan
        begun = min(round(settings.analogue_share * settings.samples), settings.samples - 1)
        if settings.core is not None:
            return self._with_core(whole, unknown, settings, begun)
        half = settings.samples // 2  # of the samples, where the user knows something
        again = known is not None and known.is_short  # what is made would be the same again
        plan = Plan()
        if known is not None and again and begun:
            plan.tasks = self._with_parts(whole, half, unknown)
            if plan.tasks:
                others = replace(settings, samples=settings.samples - half, analogue_share=0.0)
                plan += self.plan(unknown._replace(known=None), others, seed)
                return plan
        probability = unknown.probability
        graphs = known.graphs(probability, formula) if known is not None and begun else []
        if known is not None and graphs:
            if not again:
                made = unknown.allowed(changed(graphs, formula, self.blocks))
                plan.molecules = _enumerated(made, unknown, int(_MADE_SHARE * half))
            own = torch.from_numpy(starts(graphs[:BEGUN], formula, half - plan.count, seed))
            plan.tasks = self._begun("analogues", whole, own, _OF_ANALOGUES)
            others = replace(settings, samples=settings.samples - plan.count)
            rest = unknown._replace(known=Known(known.guide, is_short=known.is_short))
            plan += self.plan(rest, others, seed)
            return plan
        if self.templates is not None and begun:
            near = self.templates.near(probability, formula)
            if not again:
                changes = unknown.allowed(changed(near, formula, self.blocks))
                both = chain(changes, put_together(self.blocks, unknown))
                plan.molecules = _enumerated(both, unknown, int(_MADE_SHARE * begun))
            if near:
                begin = starts(near[:BEGUN], formula, begun - plan.count, seed, exchange=False)
                plan.tasks = self._begun("templates", whole, torch.from_numpy(begin))
        drawn = replace(whole, samples=settings.samples - plan.count)
        plan.tasks.insert(0, ("noise", drawn))
        return plan

    def _begun(
        self,
        source: str,
        whole: SamplingTask,
        start: Tensor,
        shift: int = 0,
        held: Tensor | None = None,
    ) -> list[tuple[str, SamplingTask]]:
        """Samples from these graphs (S, M), some noised more than others; none if all steps do.

        The noise of each task has a seed of its own, `shift` and a few on from that of the whole.
        Bonds (S, M) that are `held` do not change.
        """
        levels = (round(share * self.process.n_steps) for share in _NOISED)
        parts = (tuple(step for step in whole.plan if step <= most) for most in levels)
        plans = [plan for plan in parts if len(plan) > 1]
        rows = torch.arange(len(start)).chunk(len(plans)) if plans else ()
        device, seed = self.device, whole.seed + shift + 1
        tasks = [
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
        return [(source, task) for task in tasks]

    def _with_core(
        self, whole: SamplingTask, unknown: Unknown, settings: SamplingSettings, begun: int
    ) -> Plan:
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
        plan = Plan()
        if self.templates is not None and begun:
            if not known.is_short:  # what is made would be the same again
                near = chain(own, self.templates.near(probability, formula))
                changes = unknown.allowed(changed(near, formula, self.blocks))
                both = chain(changes, put_together(self.blocks, unknown))
                plan.molecules = _enumerated(both, unknown, int(_MADE_SHARE * begun))
            needed = np.bincount(core.element, minlength=N_HEAVY)
            graphs += self.templates.around(find, probability, formula, needed)
        n_begun = (settings.samples - plan.count) // 2 if graphs and begun else 0
        if n_begun:
            start, held = in_templates(graphs, formula, n_begun, seed, core)
            plan.tasks = self._begun("templates", whole, start, _OF_HELD + 1, held)
        n_other = settings.samples - plan.count
        held = torch.from_numpy(core.held(formula, core.places(formula, n_other, seed))).long()
        drawn = replace(whole, seed=seed + _OF_HELD, samples=n_other, held=held.to(self.device))
        plan.tasks.append(("noise", drawn))
        return plan

    def _with_parts(
        self, whole: SamplingTask, samples: int, unknown: Unknown
    ) -> list[tuple[str, SamplingTask]]:
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
        return self._begun("templates", whole, start, _OF_PARTS, held)


def _of_databases(unknown: Unknown, known: Known) -> Plan:
    """The likeliest molecules of the databases, however many samples were asked for."""
    made = unknown.allowed((mol, 0.0) for mol in known.isomers(unknown.formula))
    return Plan(molecules=[(DATABASE, mol) for mol in shortlist(made, unknown, MOST_CHOSEN)])


def _none_of_databases(unknown: Unknown) -> RefusedError:
    asked = "" if unknown.guide is None else " and is as asked for"
    message = (
        f"no structure of the database has the formula {unknown.formula}{asked}; without "
        "--database-only structures are generated too"
    )
    return RefusedError(Failure("no_candidate", message, "sample"))


def _enumerated(
    made: "Iterable[tuple[Mol, float]]", unknown: Unknown, most: int
) -> "list[tuple[str, Mol]]":
    return [("enumerated", mol) for mol in shortlist(made, unknown, most)]


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


def shortlist(made: "Iterable[tuple[Mol, float]]", unknown: Unknown, most: int) -> "list[Mol]":
    """The likeliest of molecules, by the fingerprint and by the peaks, best first, all different.

    Args:
        made: Of one formula, and what is added to the log-odds of the bits of each.
        unknown: What they should be like.
        most: Largest number of them.
    """
    from duallgd_cli.chem.molecule import disassemble  # rdkit loads only here

    compared = cheapest(made, unknown.bit_scores, _COMPARED * most)
    if unknown.scorer is None:
        return [mol for _, mol in compared[:most]]
    peaks = [sum(unknown.scorer.peaks(disassemble(mol))) for _, mol in compared]
    price = [price - _OF_PEAKS * worth for (price, _), worth in zip(compared, peaks, strict=True)]
    return [compared[row][1] for row in np.argsort(price, kind="stable")[:most]]


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
