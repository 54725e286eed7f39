"""Sources that draw with the network: what they start from, and what becomes of what is drawn."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.predict.model import sources_of
from duallgd_cli.sources import propose
from duallgd_cli.sources.collection import Collection
from duallgd_cli.sources.enumerated import AnalogueSource
from duallgd_cli.sources.network import Noise, Templates
from tests.made_queries import Told, chances, collection_of, query, small_sampler
from tests.made_training import cpu

BUTANOL, BUTYLAMINE, NAPHTHOL = "CCCCO", "CCCCN", "Oc1cccc2ccccc12"
PHENOL, TOLUENE, ANISOLE = "Oc1ccccc1", "Cc1ccccc1", "COc1ccccc1"
SETTINGS = SamplingSettings(steps=10)


@pytest.fixture(scope="module")
def sampler():
    return small_sampler()


@pytest.fixture(scope="module")
def known():
    return collection_of(BUTANOL, BUTYLAMINE, NAPHTHOL)


@pytest.fixture
def tasks(monkeypatch):
    """The tasks that are drawn."""
    seen, draw = [], Sampler.draw

    def noted(self, context, tasks, *rest):
        seen.extend(tasks)
        return draw(self, context, tasks, *rest)

    monkeypatch.setattr(Sampler, "draw", noted)
    return seen


def asked(formula="C4H11NO", likely=BUTANOL, **changes):
    return query(formula, chances(likely, low=0.001), **({"sampling": SETTINGS} | changes))


def drawn(proposals):
    """What tells proposals apart."""
    return [(one.log_likelihood, one.rejection, one.is_repaired) for one in proposals]


def test_every_sample_from_noise_is_a_proposal_molecule_or_not(sampler, tasks):
    proposals = list(Noise(sampler).propose(asked("C9H8O4"), 9, seed=4))

    (task,) = tasks
    assert (task.samples, task.seed, task.start, task.n_pairs) == (9, 4, None, 78)
    assert len(proposals) == 9
    for one in proposals:
        assert (one.source, one.log_likelihood < 0) == ("noise", True)
        assert (one.mol is None) == bool(one.rejection)
        assert one.mol is None or str(formula_of(one.mol)) == "C9H8O4"


def test_the_condition_is_made_once_a_query(sampler, monkeypatch):
    made, context = [], Sampler.context
    monkeypatch.setattr(Sampler, "context", lambda *given: made.append(given) or context(*given))
    once = asked()

    first, again = (drawn(Noise(sampler).propose(once, 3, seed=4)) for _ in range(2))

    assert first == again
    ((_, _, fingerprint),) = made
    assert torch.equal(fingerprint, torch.from_numpy(once.fingerprint))


def test_proposals_are_a_function_of_query_number_and_seed(sampler, known):
    other = Templates(Sampler(sampler.model, cpu()), Collection.of(known.tensors()))
    templates = Templates(sampler, known)

    first = drawn(templates.propose(asked(), 8, seed=4))
    list(templates.propose(asked("C10H8O2", NAPHTHOL), 8, seed=5))

    assert first == drawn(templates.propose(asked(), 8, seed=4))
    assert first == drawn(other.propose(asked(), 8, seed=4))
    assert first != drawn(templates.propose(asked(), 8, seed=5))
    few, more = (drawn(Noise(sampler).propose(asked(), n, seed=4)) for n in (3, 8))
    assert few == more[:3]


def test_templates_are_noised_a_quarter_and_a_tenth_of_the_way(sampler, known, tasks):
    proposals = list(Templates(sampler, known).propose(asked(), 5, seed=4))

    more, less = tasks
    assert {one.source for one in proposals} == {"templates"}
    assert (more.plan[0], less.plan[0]) == (125, 45)
    assert (more.samples, less.samples) == (3, 2) == (len(more.start), len(less.start))
    assert len({more.seed, less.seed, 4}) == 3


def test_the_users_molecules_are_changed_and_drawn_from_with_noise_of_their_own(
    sampler, known, tasks
):
    told = asked(known=Told(None, BUTANOL, BUTYLAMINE))

    proposals = list(AnalogueSource(sampler).propose(told, 10, seed=4))
    for source in (Templates(sampler, known), Noise(sampler)):
        list(source.propose(asked(), 10, seed=4))

    assert {one.source for one in proposals} == {"analogues"}
    assert len(proposals) == 10
    listed = [one for one in proposals if one.log_likelihood is None]
    assert 0 < len(listed) <= 8  # by one change; the others are drawn
    seeds = [task.seed for task in tasks]
    assert len(seeds) == len(set(seeds)) == 5


def test_without_a_network_the_users_molecules_are_changed_and_no_more():
    told = asked(known=Told(None, BUTANOL, BUTYLAMINE))

    alone = list(AnalogueSource().propose(told, 10, seed=4))

    assert alone
    assert all(one.log_likelihood is None for one in alone)


@settings(max_examples=10)
@given(
    n=st.integers(1, 12),
    steps=st.sampled_from([1, 10]),
    formula=st.sampled_from(["C4H11NO", "C4H9ClO", "C10H8O2", "CHCl3"]),
    told=st.sampled_from([(), (BUTANOL,), (NAPHTHOL, BUTYLAMINE)]),
)
def test_no_source_gives_more_than_it_is_asked_for(sampler, known, n, steps, formula, told):
    of_user = asked(formula, sampling=replace(SETTINGS, steps=steps), known=Told(None, *told))

    from_noise, from_templates, from_told = (
        len(list(source.propose(of_user, n, seed=4)))
        for source in (Noise(sampler), Templates(sampler, known), AnalogueSource(sampler))
    )

    assert from_noise == n
    assert from_templates in ({0} if formula == "CHCl3" or steps == 1 else {n})
    assert from_told <= n
    assert from_told == n or not told or steps == 1


CORE = Guide(core=TOLUENE)


@pytest.mark.parametrize(
    "guide", [Guide(require=("[OX2H]",)), Guide(forbid=("[OX2H]",)), CORE], ids=str
)
def test_every_candidate_of_every_source_is_as_the_user_says(guide, sampler):
    told = asked("C7H8O", sampling=SamplingSettings(steps=4), known=Told(guide, TOLUENE, ANISOLE))
    sources = sources_of(sampler, collection_of(PHENOL, TOLUENE, ANISOLE))
    quotas = {"analogues": 20, "enumerated": 10, "templates": 5, "noise": 5}

    proposals = list(propose(sources, told, quotas, seed=3))

    assert {"analogues", "enumerated"} <= {one.source for one in proposals if not one.rejection}
    for one in proposals:
        assert bool(one.rejection) == (one.mol is None or bool(guide.fault(one.mol)))
