"""Cores and required parts: where they stand in known molecules, and what is drawn around them."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide, read_core
from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.chem.valence import FREE
from duallgd_cli.config import SamplingSettings
from duallgd_cli.generator import planning
from duallgd_cli.generator.network import ModelGenerator
from duallgd_cli.generator.planning import Unknown
from duallgd_cli.sources.collection import in_templates, known_molecules, molecule_of
from duallgd_cli.guide import Known
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import molecules_of
from tests.made_training import cpu

KNOWN = ("CCCCO", "CCc1ccc2ccccc2c1", "Oc1cccc2ccccc12", "CC(=O)Oc1ccccc1C(=O)O")
NAPHTHALENE, FORMULA = "c1ccc2ccccc2c1", Formula.parse("C12H12O")
NOTHING = np.full(4096, 0.01, np.float32)


def templates():
    return known_molecules(molecules_of(*KNOWN), max_atoms=99)


def unknown(known=None, formula=FORMULA):
    return Unknown(formula, torch.from_numpy(NOTHING), known)


def around(core, chance):
    """Known molecules that hold a core."""

    def find(one):
        return core.found(one.element, one.pair, one.bond_class)

    return templates().around(find, chance, FORMULA)


def holding(core, drawn):
    """How many drawn graphs hold a core."""
    pair = np.stack(np.triu_indices(FORMULA.n_heavy, 1), 1)
    found = [core.found(FORMULA.atom_class, pair[row > 0], row[row > 0]) for row in drawn.numpy()]
    return sum(match is not None for match in found)


def test_known_molecules_with_the_core_are_found_most_alike_first():
    core = read_core(NAPHTHALENE)
    chance = NOTHING.copy()
    chance[fingerprint(parse_smiles(KNOWN[2]))] = 0.9

    found = around(core, chance)

    assert [len(one.element) for one, _ in found] == [11, 12]
    assert not around(read_core("C1CCNCC1"), chance)


def test_samples_around_a_core_start_whole_and_hold_its_bonds():
    core = read_core(NAPHTHALENE)

    start, held = in_templates(around(core, NOTHING), FORMULA, 4, 1, core)

    assert ((held == FREE) | (held == start)).all()
    assert ((held > 0).sum(1) == 11).all()
    first, second = np.triu_indices(13, 1)
    assert all({*first[one > 0], *second[one > 0]} == {*range(10)} for one in held.numpy())


def test_required_parts_are_held_in_molecules_that_have_them():
    formula, guide = Formula.parse("C10H10O4"), Guide(require=("CC(=O)O",))

    def find(one):
        return guide.required_in(molecule_of(one))

    ((graph, atoms),) = templates().around(find, NOTHING, formula)
    start, held = in_templates([(graph, atoms)], formula, 2, 0)

    assert sorted(graph.element[atoms].tolist()) == [0, 0, 2, 2]
    assert ((held > 0).sum(1) == 3).all()
    assert ((held == FREE) | (held == start)).all()
    assert not templates().around(find, NOTHING, Formula.parse("C12H12O"))


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("is_later", [False, True])
def test_with_a_core_molecules_are_made_that_have_it_and_all_others_hold_it(is_told, is_later):
    """Cresols and benzyl alcohol, not anisole, from the parts of phenol, toluene and anisole."""
    made_of = known_molecules(molecules_of("Oc1ccccc1", "Cc1ccccc1", "COc1ccccc1"), 99)
    planner = ModelGenerator(stirred(small_settings()), cpu(), None, made_of).planner
    settings = SamplingSettings(steps=10, samples=40, core="Cc1ccccc1")
    formula, core = Formula.parse("C7H8O"), read_core("Cc1ccccc1")
    known = Known(Guide(core="Cc1ccccc1"), is_short=is_later) if is_told or is_later else None

    plan = planner.plan(unknown(known, formula), settings, 3)

    assert plan.count == 40
    assert len(plan.molecules) == (0 if is_later else 4)
    assert all(core.is_in(mol) for _, mol in plan.molecules)
    assert all((task.held > 0).sum() == 7 * task.samples for _, task in plan.tasks)


@pytest.mark.parametrize("core", ["COc1ccccc1", "OCc1ccccc1"])
def test_what_is_put_together_is_looked_through_for_the_core(core, monkeypatch):
    """Anisole or benzyl alcohol: one of the two excludes the likelier."""
    blocks = known_molecules(molecules_of("Oc1ccccc1", "CCc1ccccc1", "COc1ccccc1"), 99).blocks
    monkeypatch.setattr(planning, "_PUT_TOGETHER", 1)

    known = Known(Guide(core=core))
    ((mol, _),) = planning.put_together(blocks, unknown(known, Formula.parse("C7H8O")))

    assert read_core(core).is_in(mol)


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_most_of_what_is_drawn_holds_the_core(share):
    core = read_core(NAPHTHALENE)
    generator = ModelGenerator(stirred(small_settings()), cpu(), None, templates())
    settings = SamplingSettings(steps=10, samples=8, core=NAPHTHALENE, analogue_share=share)

    drawn, _ = generator.draw(unknown(), settings, 3)
    again, _ = generator.draw(unknown(), settings, 3)

    plan = generator.planner.plan(unknown(), settings, 3)
    assert torch.equal(drawn.bond_class, again.bond_class)
    assert len(drawn.bond_class) + len(plan.molecules) == 8
    assert holding(core, drawn.bond_class) >= len(drawn.bond_class) - 2


def test_a_later_round_holds_required_parts():
    generator = ModelGenerator(stirred(small_settings()), cpu(), None, templates())
    known = Known(Guide(require=("c1ccc2ccccc2c1",)), is_short=True)
    settings = SamplingSettings(steps=10, samples=8)

    drawn, _ = generator.draw(unknown(known), settings, 3)

    assert len(drawn.bond_class) == 8
    assert holding(read_core(NAPHTHALENE), drawn.bond_class) >= 4


@pytest.mark.parametrize(
    "guide", [Guide(require=("[OX2H]",)), Guide(forbid=("[OX2H]",)), Guide(core="Cc1ccccc1")]
)
@pytest.mark.parametrize("is_later", [False, True])
def test_what_is_made_of_known_molecules_is_as_the_user_says_and_made_once(guide, is_later):
    """Cresols, anisole and benzyl alcohol, from the parts of phenol, toluene and anisole."""
    made_of = known_molecules(molecules_of("Oc1ccccc1", "Cc1ccccc1", "COc1ccccc1"), 99)
    generator = ModelGenerator(stirred(small_settings()), cpu(), None, made_of)
    settings, formula = SamplingSettings(steps=10, samples=40), Formula.parse("C7H8O")
    known = Known(guide, is_short=is_later)

    plan = generator.planner.plan(unknown(known, formula), settings, 3)

    assert plan.count == 40
    assert bool(plan.molecules) != is_later
    assert not any(guide.fault(mol) for _, mol in plan.molecules)
