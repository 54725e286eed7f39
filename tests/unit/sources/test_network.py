"""Sources that draw with the network: what they start from, and what becomes of what is drawn."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.config import SamplingSettings
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.sources import Query
from duallgd_cli.sources.collection import Collection, known_molecules
from duallgd_cli.sources.enumerated import AnalogueSource
from duallgd_cli.sources.known import Known
from duallgd_cli.sources.network import Noise, Templates
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import molecules_of
from tests.made_spectra import annotated
from tests.made_training import cpu

BUTANOL, BUTYLAMINE, NAPHTHOL = "CCCCO", "CCCCN", "Oc1cccc2ccccc12"
SETTINGS = SamplingSettings(steps=10)


@pytest.fixture(scope="module")
def sampler():
    return Sampler(stirred(small_settings(layers=1)), cpu())


@pytest.fixture
def tasks(sampler, monkeypatch):
    """The tasks that are drawn."""
    seen, draw = [], Sampler.draw

    def noted(self, context, tasks, *rest):
        seen.extend(tasks)
        return draw(self, context, tasks, *rest)

    monkeypatch.setattr(Sampler, "draw", noted)
    return seen


def known(*smiles):
    return known_molecules(molecules_of(*(smiles or (BUTANOL, BUTYLAMINE, NAPHTHOL))), max_atoms=99)


class Told(Known):
    """What a user knows: these molecules."""

    def __init__(self, *smiles):
        super().__init__(None)
        molecules = molecules_of(*smiles)
        object.__setattr__(self, "own", [graph_of(molecules, n) for n in range(len(smiles))])

    def graphs(self, probability, formula):
        return self.own


def query(formula="C4H11NO", likely=BUTANOL, **changes):
    chance = np.full(FINGERPRINT_BITS, 0.001, np.float32)
    chance[fingerprint(parse_smiles(likely))] = 0.9
    return Query(annotated([], formula), chance, **({"sampling": SETTINGS} | changes))


def drawn(proposals):
    """What tells proposals apart."""
    return [(one.log_likelihood, one.rejection, one.is_repaired) for one in proposals]


def test_every_sample_from_noise_is_a_proposal_molecule_or_not(sampler, tasks, monkeypatch):
    formula, asked, made, context = Formula.parse("C9H8O4"), query("C9H8O4"), [], Sampler.context
    monkeypatch.setattr(Sampler, "context", lambda *given: made.append(given) or context(*given))

    proposals, again = (list(Noise(sampler).propose(asked, 9, seed=4)) for _ in range(2))

    assert drawn(again) == drawn(proposals)
    ((_, _, fingerprint),) = made  # the condition is made once a query
    assert torch.equal(fingerprint, torch.from_numpy(asked.fingerprint))
    task, _ = tasks
    assert (task.samples, task.seed, task.start, task.n_pairs) == (9, 4, None, 78)
    assert len(proposals) == 9
    for one in proposals:
        assert one.source == "noise"
        assert one.log_likelihood < 0
        assert (one.mol is None) == bool(one.rejection)
        assert one.mol is None or formula_of(one.mol) == formula


def test_proposals_are_a_function_of_query_number_and_seed(sampler):
    other = Sampler(sampler.model, cpu())
    sources = (Templates(sampler, known()), Templates(other, Collection.of(known().tensors())))

    first = drawn(sources[0].propose(query(), 8, seed=4))
    list(sources[0].propose(query("C10H8O2", NAPHTHOL), 8, seed=5))

    assert first == drawn(sources[0].propose(query(), 8, seed=4))
    assert first == drawn(sources[1].propose(query(), 8, seed=4))
    assert first != drawn(sources[0].propose(query(), 8, seed=5))
    noise = [drawn(Noise(sampler).propose(query(), n, seed=4)) for n in (3, 8)]
    assert noise[0] == noise[1][:3]  # fewer are the first of more


def test_templates_are_noised_a_quarter_and_a_tenth_of_the_way(sampler, tasks):
    proposals = list(Templates(sampler, known()).propose(query(), 5, seed=4))

    more, less = tasks
    assert {one.source for one in proposals} == {"templates"}
    assert (more.plan[0], less.plan[0]) == (125, 45)
    assert (more.samples, less.samples) == (3, 2) == (len(more.start), len(less.start))
    assert len({more.seed, less.seed, 4}) == 3


def test_what_is_drawn_of_the_users_molecules_has_noise_of_its_own(sampler, tasks):
    told = query(known=Told(BUTANOL, BUTYLAMINE))

    proposals = list(AnalogueSource(sampler).propose(told, 10, seed=4))
    list(Templates(sampler, known()).propose(query(), 10, seed=4))
    list(Noise(sampler).propose(query(), 10, seed=4))

    assert {one.source for one in proposals} == {"analogues"}
    listed = [one for one in proposals if one.log_likelihood is None]
    assert 0 < len(listed) <= 8  # by one change; the others are drawn
    assert len(proposals) == 10
    alone = list(AnalogueSource().propose(query(known=Told(BUTANOL, BUTYLAMINE)), 10, seed=4))
    assert alone  # without a network the user's molecules are changed and no more
    assert all(one.log_likelihood is None for one in alone)
    seeds = [task.seed for task in tasks]
    assert len(seeds) == len(set(seeds)) == 5


@settings(max_examples=10)
@given(
    n=st.integers(1, 12),
    steps=st.sampled_from([1, 10]),
    formula=st.sampled_from(["C4H11NO", "C4H9ClO", "C10H8O2", "CHCl3"]),
    told=st.sampled_from([(), (BUTANOL,), (NAPHTHOL, BUTYLAMINE)]),
)
def test_no_source_gives_more_than_it_is_asked_for(sampler, n, steps, formula, told):
    asked = query(formula, sampling=replace(SETTINGS, steps=steps), known=Told(*told))

    from_noise, from_templates, from_told = (
        len(list(source.propose(asked, n, seed=4)))
        for source in (Noise(sampler), Templates(sampler, known()), AnalogueSource(sampler))
    )

    assert from_noise == n
    assert from_templates in ({0} if formula == "CHCl3" or steps == 1 else {n})
    assert from_told <= n
    assert from_told == n or not told or steps == 1
