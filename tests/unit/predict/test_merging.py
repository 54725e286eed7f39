"""Proposals of several sources become distinct molecules, each sample counted once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem import identity
from duallgd_cli.predict.pipeline import merge
from duallgd_cli.results import HypothesisResult
from duallgd_cli.scores import FingerprintTanimoto
from duallgd_cli.sources import DATABASE, Proposal, Query
from tests.made_spectra import annotated

ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "O=C(O)c1ccc(C(=O)CO)cc1"
# Both have C7H17NO2: an ammonium opposite an alkoxide, in two placements, and a plain amino diol.
SALT, SAME_SALT, DIOL = "C[N+](C)(C)CCC(O)C[O-]", "C[N+](C)(C)CCC([O-])CO", "CN(C)CCC(O)CCO"
PYRIDONE, HYDROXYPYRIDINE = "O=c1cccc[nH]1", "Oc1ccccn1"  # have one key
BROKEN = Proposal("noise", None, -9.0, rejection="disconnected")


def of(source, smiles, log_likelihood=None, **changes):
    return Proposal(source, identity.parse_smiles(smiles), log_likelihood, **changes)


def key(smiles):
    return identity.inchikey(identity.parse_smiles(smiles))


def merged(*proposals, scores=(), excluded=(), bits=()):
    chance = np.full(4096, 0.02, np.float32)
    chance[list(bits)] = 0.9
    excluded = frozenset(key(smiles)[:14] for smiles in excluded)
    query = Query(annotated([], "C9H8O4"), chance)
    return merge(HypothesisResult("ok"), proposals, query, scores, excluded)


def tallies(result):
    return result.sampled, result.assembled, result.repaired, result.rejected


N, D, E = "noise", DATABASE, "enumerated"
WRONG = {"rejection": "with [OX2H]"}
SPELLED = of(E, "OC(=O)c1ccccc1OC(C)=O")  # aspirin
REPAIRED = of("templates", ASPIRIN, -3.0, is_repaired=True)
TIED = [of(N, PYRIDONE), of(N, HYDROXYPYRIDINE)]
SALTS = [of(N, SALT, -1.0)] * 2


@pytest.mark.parametrize(
    ("proposals", "structures", "counts"),
    [
        # A molecule of several sources is one with the samples of all.
        ([of(N, ASPIRIN, -1.0), SPELLED, REPAIRED, of(E, ISOMER)],
         [(ASPIRIN, 3, 1, -2.0, (E, N, "templates")), (ISOMER, 1, 0, None, (E,))], (4, 3, 1, {})),
        # It has the name proposed most often, else the first in the alphabet.
        ([*TIED, TIED[1]], [(HYDROXYPYRIDINE, 3, 0, None, (N,))], (3, 3, 0, {})),
        (TIED, [(min(PYRIDONE, HYDROXYPYRIDINE), 2, 0, None, (N,))], (2, 2, 0, {})),
        # Structures of a database are no samples.
        ([of(D, ASPIRIN), of(D, ISOMER)],
         [(ASPIRIN, 0, 0, None, (D,)), (ISOMER, 0, 0, None, (D,))], (0, 0, 0, {})),
        ([of(D, ASPIRIN), of(N, ASPIRIN, -2.0), BROKEN], [(ASPIRIN, 1, 0, -2.0, (D, N))],
         (2, 1, 0, {"disconnected": 1})),
        # What breaks a constraint is counted by its reason.
        ([of(D, ASPIRIN, **WRONG), of(E, ISOMER, **WRONG), BROKEN, BROKEN], [],
         (3, 0, 0, {"disconnected": 2, "with [OX2H]": 1})),
        # Internal salts are left out where anything else was proposed;
        ([*SALTS, of(N, DIOL, -1.0), of(N, SAME_SALT, -1.0)], [(DIOL, 1, 0, -1.0, (N,))],
         (4, 1, 0, {"internal salt": 3})),
        # else one placement of the charges stays with the samples of all;
        ([*SALTS, of("templates", SAME_SALT, -4.0)], [(SALT, 3, 0, -2.0, (N, "templates"))],
         (3, 3, 0, {})),
        # but those of a database stay as they are.
        ([of(D, SAME_SALT), *SALTS, of(N, DIOL, -1.0)],
         [(SAME_SALT, 0, 0, None, (D,)), (DIOL, 1, 0, -1.0, (N,))],
         (3, 1, 0, {"internal salt": 2})),
    ],
)  # fmt: skip
def test_proposals_become_molecules_with_tallies(proposals, structures, counts):
    result = merged(*proposals)

    found = {
        (one.smiles, one.samples, one.repaired, one.log_likelihood, one.sources)
        for one in result.structures
    }
    assert (found, tallies(result)) == ({*structures}, counts)


def test_excluded_molecules_are_no_candidates_and_their_samples_are_accounted_for():
    proposals = of(N, ASPIRIN, -1.0), of(D, ASPIRIN), of("enumerated", ISOMER)

    result = merged(*proposals, excluded=(ASPIRIN, SALT))

    assert [one.smiles for one in result.structures] == [ISOMER]
    assert tallies(result) == (2, 1, 0, {"known molecule": 1})


def test_every_molecule_has_its_names_and_the_scores_by_name():
    bits = identity.fingerprint(identity.parse_smiles(ASPIRIN))
    proposals = of(N, ISOMER), of(N, ASPIRIN)

    result = merged(*proposals, scores=[FingerprintTanimoto()], bits=bits)

    scores = {one.smiles: one.scores["fingerprint_tanimoto"] for one in result.structures}
    assert scores[ASPIRIN] > scores[ISOMER] > 0
    assert [one.inchikey for one in result.structures] == sorted(map(key, (ASPIRIN, ISOMER)))
    assert all((one.family != "", one.scaffold) == (True, "c1ccccc1") for one in result.structures)
    assert all(one.scores == {} for one in merged(*proposals).structures)


def test_a_molecule_is_named_once_however_often_it_is_proposed(monkeypatch):
    calls, inchi = [], identity.inchi
    monkeypatch.setattr(identity, "inchi", lambda mol: calls.append(1) or inchi(mol))

    merged(*[of(N, ASPIRIN)] * 5, *[of("own", "*CO")] * 5)

    assert len(calls) == 2


PROPOSALS = st.one_of(
    st.just(BROKEN),
    st.builds(
        of,
        st.sampled_from(["noise", "enumerated", DATABASE]),
        st.sampled_from([SALT, SAME_SALT, DIOL, "*CO", "C[N+](C)(C)CC(=O)[O-]"]),
        st.sampled_from([None, -1.0]),
        is_repaired=st.booleans(),
        rejection=st.sampled_from(["", "", "", "without the core"]),
    ),
)


@given(st.lists(PROPOSALS, max_size=12), st.sampled_from([(), (DIOL,), (SALT,)]), st.randoms())
def test_every_sample_is_accounted_for_once_in_any_order(proposals, excluded, rng):
    result = merged(*proposals, excluded=excluded)
    other = list(proposals)
    rng.shuffle(other)

    assert result.sampled == sum(one.source != DATABASE for one in proposals)
    assert sum(one.samples for one in result.structures) == result.assembled + result.repaired
    accounted = result.assembled + result.repaired + sum(result.rejected.values())
    assert accounted == result.sampled
    assert min(result.assembled, result.repaired) >= 0
    assert all(result.rejected.values())
    assert merged(*other, excluded=excluded) == result
