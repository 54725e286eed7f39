"""Proposals of several sources become distinct molecules, each sample counted once."""

import numpy as np
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
BROKEN = Proposal("noise", None, -9.0, rejection="disconnected")


def of(source, smiles, log_likelihood=None, **changes):
    return Proposal(source, identity.parse_smiles(smiles), log_likelihood, **changes)


def query(**changes):
    return Query(annotated([], "C9H8O4"), np.full(4096, 0.02, np.float32), **changes)


def merged(*proposals, scores=(), excluded=(), **changes):
    excluded = frozenset(key(smiles)[:14] for smiles in excluded)
    return merge(HypothesisResult("ok"), proposals, query(**changes), scores, excluded)


def key(smiles):
    return identity.inchikey(identity.parse_smiles(smiles))


def by_smiles(result):
    return {one.smiles: one for one in result.structures}


def tallies(result):
    return result.sampled, result.assembled, result.repaired, result.distinct, result.rejected


def test_a_molecule_of_several_sources_is_one_with_the_samples_of_all():
    result = merged(
        of("noise", ASPIRIN, -1.0),
        of("enumerated", "OC(=O)c1ccccc1OC(C)=O"),
        of("templates", ASPIRIN, -3.0, is_repaired=True),
        of("enumerated", ISOMER),
    )

    both, other = (by_smiles(result)[smiles] for smiles in (ASPIRIN, ISOMER))
    assert (both.samples, both.repaired, both.log_likelihood) == (3, 1, -2.0)
    assert both.sources == ("enumerated", "noise", "templates")
    assert (other.samples, other.log_likelihood, other.sources) == (1, None, ("enumerated",))
    assert tallies(result) == (4, 3, 1, 2, {})
    assert (both.inchikey, both.family != "", both.scaffold) == (key(ASPIRIN), True, "c1ccccc1")


def test_tautomers_and_mirror_images_with_one_key_are_one_by_the_name_proposed_most_often():
    pyridone, hydroxypyridine = "O=c1cccc[nH]1", "Oc1ccccn1"
    assert key(pyridone) == key(hydroxypyridine)

    result = merged(of("noise", pyridone), *[of("noise", hydroxypyridine)] * 2)
    tied = merged(of("noise", pyridone), of("noise", hydroxypyridine))

    assert [(one.smiles, one.samples) for one in result.structures] == [(hydroxypyridine, 3)]
    assert [one.smiles for one in tied.structures] == [min(pyridone, hydroxypyridine)]


def test_structures_of_a_database_are_no_samples():
    alone = merged(of(DATABASE, ASPIRIN), of(DATABASE, ISOMER))
    beside = merged(of(DATABASE, ASPIRIN), of("noise", ASPIRIN, -2.0), BROKEN)

    assert tallies(alone) == (0, 0, 0, 2, {})
    assert {(one.samples, one.log_likelihood) for one in alone.structures} == {(0, None)}
    (one,) = beside.structures
    assert (one.samples, one.log_likelihood, one.sources) == (1, -2.0, (DATABASE, "noise"))
    assert tallies(beside) == (2, 1, 0, 1, {"disconnected": 1})


def test_what_breaks_a_constraint_is_counted_by_its_reason_unless_it_is_of_a_database():
    why = {"rejection": "with [OX2H]"}

    result = merged(of(DATABASE, ASPIRIN, **why), of("enumerated", ISOMER, **why), BROKEN, BROKEN)

    assert result.structures == ()
    assert tallies(result) == (3, 0, 0, 0, {"disconnected": 2, "with [OX2H]": 1})


def test_internal_salts_are_left_out_where_anything_else_was_proposed():
    result = merged(*(of("noise", one, -1.0) for one in (SALT, DIOL, SAME_SALT, SALT)))

    assert list(by_smiles(result)) == [DIOL]
    assert tallies(result) == (4, 1, 0, 1, {"internal salt": 3})


def test_where_nothing_else_was_one_placement_of_charges_stays_with_the_samples_of_all():
    result = merged(
        of("noise", SALT, -1.0), of("templates", SAME_SALT, -4.0), of("noise", SALT, -1.0)
    )

    (only,) = result.structures
    assert (only.smiles, only.samples, only.log_likelihood) == (SALT, 3, -2.0)
    assert only.sources == ("noise", "templates")
    assert tallies(result) == (3, 3, 0, 1, {})


def test_strays_of_the_database_stay_as_they_are():
    result = merged(
        of(DATABASE, SAME_SALT), *[of("noise", SALT, -1.0)] * 2, of("noise", DIOL, -1.0)
    )

    assert set(by_smiles(result)) == {SAME_SALT, DIOL}
    assert by_smiles(result)[SAME_SALT].samples == 0
    assert tallies(result) == (3, 1, 0, 2, {"internal salt": 2})


def test_excluded_molecules_are_no_candidates_and_their_samples_are_accounted_for():
    result = merged(
        of("noise", ASPIRIN, -1.0), of(DATABASE, ASPIRIN), of("enumerated", ISOMER),
        excluded=(ASPIRIN, SALT),
    )  # fmt: skip

    assert list(by_smiles(result)) == [ISOMER]
    assert tallies(result) == (2, 1, 0, 1, {"known molecule": 1})


def test_every_molecule_has_the_scores_by_name():
    chance = np.full(4096, 0.02, np.float32)
    chance[identity.fingerprint(identity.parse_smiles(ASPIRIN))] = 0.9
    asked = Query(annotated([], "C9H8O4"), chance)
    proposals = [of("noise", ISOMER), of("noise", ASPIRIN)]

    result = merge(HypothesisResult("ok"), proposals, asked, [FingerprintTanimoto()])

    scores = {one.smiles: one.scores["fingerprint_tanimoto"] for one in result.structures}
    assert scores[ASPIRIN] > scores[ISOMER] > 0
    assert [one.inchikey for one in result.structures] == sorted(map(key, (ASPIRIN, ISOMER)))
    assert all(one.scores == {} for one in merged(*proposals).structures)


def test_a_molecule_is_named_once_however_often_it_is_proposed(monkeypatch):
    calls, inchi = [], identity.inchi
    monkeypatch.setattr(identity, "inchi", lambda mol: calls.append(1) or inchi(mol))

    merged(*[of("noise", ASPIRIN)] * 5, *[of("own", "*CO")] * 5)

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

    samples = [one for one in proposals if one.source != DATABASE]
    assert result.sampled == len(samples)
    assert sum(one.samples for one in result.structures) == result.assembled + result.repaired
    assert result.assembled + result.repaired + sum(result.rejected.values()) == len(samples)
    assert min(result.assembled, result.repaired) >= 0
    assert all(result.rejected.values())
    assert merged(*other, excluded=excluded) == result
