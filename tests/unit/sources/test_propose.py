"""Sources that are asked in turn: their quotas, what they lack, what must be as the user says."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.errors import OutOfTimeError
from duallgd_cli.sources import DATABASE, Proposal, propose
from duallgd_cli.sources.known import Known
from tests.made_queries import query

ETHER, ALCOHOL = parse_smiles("COCC"), parse_smiles("CCCO")
OPEN, ALCOHOLS = query("C3H8O"), Known(Guide(require=("[OX2H]",)))
MOST_SEED, NEVER = (1 << 63) - 1, 10**9


@dataclass
class Listed:
    """Has so many molecules in all, one in `every` an alcohol; notes what it is asked for."""

    name: str
    has: int = NEVER
    every: int = 1
    rejection: str = ""
    asked: list = field(default_factory=list)

    def propose(self, query, n, seed):
        before = sum(number for number, _ in self.asked)
        self.asked.append((n, seed))
        for place in range(before, min(before + n, self.has)):
            mol = ETHER if (place + 1) % self.every else ALCOHOL
            yield Proposal(self.name, None if self.rejection else mol, rejection=self.rejection)


def demanding(**changes):
    """A query for an alcohol."""
    return query("C3H8O", known=ALCOHOLS, **changes)


def counted(sources, quotas, query=OPEN, seed=7):
    """How many proposals come of each source, in the order of the sources."""
    names = [one.source for one in propose(sources, query, quotas, seed)]
    assert names == sorted(names, key=[source.name for source in sources].index)
    return {source.name: names.count(source.name) for source in sources}


@pytest.mark.parametrize("rejection", ["", "disconnected"])
@pytest.mark.parametrize(
    ("has", "quotas", "found", "asked"),
    [
        # What a source lacks the next one with a quota is asked for;
        ({"a": 3, "b": NEVER, "c": 4, "d": NEVER}, {"a": 10, "c": 2, "d": 0}, [3, 0, 4, 5],
         [10, 0, 9, 5]),
        ({"a": 0, "b": 1}, {"a": 4, "b": 4}, [0, 1], [4, 8]),
        # but a database stands beside the others, passes nothing on and takes nothing.
        ({"a": 1, DATABASE: 3, "b": NEVER}, {"a": 5, DATABASE: 100, "b": 2}, [1, 3, 6],
         [5, 100, 6]),
    ],
)  # fmt: skip
def test_what_a_source_lacks_the_next_one_is_asked_for(rejection, has, quotas, found, asked):
    sources = [Listed(name, most, rejection=rejection) for name, most in has.items()]

    assert [*counted(sources, quotas).values()] == found
    assert [source.asked for source in sources] == [[(n, 7)] if n else [] for n in asked]


@pytest.mark.parametrize(("every", "quota"), [(1, 100), (2, 100), (3, 20), (NEVER, 5)])
def test_what_is_not_as_the_user_says_is_proposed_with_the_reason(every, quota):
    source = Listed("a", every=every)

    proposals = list(propose([source], demanding(), {"a": quota}, 7))

    said = [one.rejection for one in proposals]
    assert (source.asked, said.count("")) == ([(quota, 7)], quota // every)
    assert set(said) <= {"", "without [OX2H]"}


def test_what_is_no_molecule_keeps_its_reason():
    source = Listed("a", rejection="disconnected")

    proposals = list(propose([source], demanding(), {"a": 20}, 7))

    assert [one.rejection for one in proposals] == ["disconnected"] * 20


def test_the_clock_is_looked_at_before_a_molecule_is_held_against_the_constraints():
    looked = []

    def check():
        looked.append(1)
        if len(looked) == 5:
            raise OutOfTimeError

    with pytest.raises(OutOfTimeError):
        list(propose([Listed("a")], demanding(check=check), {"a": 20}, 7))
    assert len(looked) == 5


@given(
    sizes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40)), min_size=1, max_size=5),
    every=st.sampled_from([0, 1, 2, 7]),
    seed=st.integers(0, MOST_SEED),
)
def test_no_proposal_is_lost_or_made_up(sizes, every, seed):
    """As many as the quotas where the last source has enough, whatever those before it have."""
    sources = [Listed(f"s{n}", has, every or 1) for n, (_, has) in enumerate(sizes)]
    quotas = {f"s{n}": quota for n, (quota, _) in enumerate(sizes)} | {"last": 0}
    last = Listed("last", every=every or 1)

    found = counted([*sources, last], quotas, demanding() if every else OPEN, seed)

    assert sum(found.values()) == sum(quotas.values())
    assert all(found[source.name] <= source.has for source in sources)


def test_a_query_makes_what_is_asked_for_once():
    asked, made = query("C3H8O"), []

    assert [asked.once("it", lambda: made.append(1) or len(made)) for _ in range(3)] == [1, 1, 1]


def test_a_query_knows_no_constraint_without_any():
    assert (OPEN.constraints, OPEN.analogues, OPEN.fault(ETHER)) == (None, [], "")
    assert [mol for mol, _ in demanding().allowed([(ETHER, 1.0), (ALCOHOL, 2.0)])] == [ALCOHOL]
