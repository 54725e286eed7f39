import numpy as np
import pytest
import torch

from duallgd_cli.chem import identity
from duallgd_cli.chem.molecule import disassemble, is_internal_salt
from duallgd_cli.diffusion.sampler import Samples
from duallgd_cli.errors import OutOfTimeError
from duallgd_cli.predict.pipeline import merge
from duallgd_cli.results import HypothesisResult
from duallgd_cli.scores import FingerprintLikelihood, FingerprintTanimoto
from duallgd_cli.sources import Proposal, Query, network
from tests.made_molecules import another_order, moved
from tests.made_spectra import annotated

ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "O=C(O)c1ccc(C(=O)CO)cc1"
IMPOSSIBLE = None
SCORES = (FingerprintLikelihood(), FingerprintTanimoto())


def query_of(formula, fingerprint=None, **values):
    if fingerprint is None:
        fingerprint = np.full(4096, 0.01, np.float32)
    return Query(annotated([], str(formula)), fingerprint, **values)


def drawn(*smiles, log_likelihood=None, log_prob=None):
    """Samples that are these molecules; None stands for a matrix without bonds."""
    parts = [None if text is None else disassemble(identity.parse_smiles(text)) for text in smiles]
    formula = next(part.formula for part in parts if part is not None)
    n_pairs = formula.n_heavy * (formula.n_heavy - 1) // 2
    rows = [np.zeros(n_pairs, np.int8) if part is None else part.bond_class for part in parts]
    likelihood = np.arange(len(rows)) if log_likelihood is None else log_likelihood
    return formula, samples(rows, likelihood, log_prob)


def samples(rows, log_likelihood, log_prob=None):
    """Samples as a network draws them; it is certain of each bond unless it says otherwise."""
    bonds = torch.as_tensor(np.stack([np.asarray(row) for row in rows])).long()
    if log_prob is None:
        log_prob = np.where(np.eye(5, dtype=bool)[bonds], 0.0, -60_000.0)
    return Samples(
        bonds,
        torch.tensor(log_likelihood, dtype=torch.float32),
        torch.from_numpy(np.array(log_prob, np.float32)),
    )


def merged(formula, drawn=None, listed=(), query=None, excluded=frozenset()):
    """Structures and tallies of samples and of molecules that were listed."""
    query = query or query_of(formula)
    proposals = list(listed)
    if drawn is not None:
        proposals += network.assembled("noise", query, drawn)
    found = merge(HypothesisResult("ok"), proposals, query, SCORES, excluded)
    return found.structures, found


@pytest.fixture
def never_repaired(monkeypatch):
    monkeypatch.setattr(network, "repair", lambda *_: None)


def listed(*smiles, source="enumerated"):
    return [Proposal(source, identity.parse_smiles(text)) for text in smiles]


def key(smiles):
    return identity.inchikey(identity.parse_smiles(smiles))


def test_equal_molecules_are_counted_and_their_likelihoods_averaged():
    probability = np.full(4096, 0.02, np.float32)
    probability[identity.fingerprint(identity.parse_smiles(ASPIRIN))] = 0.9
    smiles = (ASPIRIN, IMPOSSIBLE, ISOMER, ASPIRIN, IMPOSSIBLE)
    formula, generated = drawn(*smiles, log_likelihood=[-1, -9, -5, -3, -9])

    structures, tallies = merged(formula, generated, query=query_of(formula, probability))

    by_key = {structure.inchikey: structure for structure in structures}
    aspirin, isomer = by_key[key(ASPIRIN)], by_key[key(ISOMER)]
    assert (aspirin.samples, aspirin.log_likelihood, aspirin.repaired) == (2, -2, 0)
    assert isomer.samples == 1
    assert (tallies.sampled, tallies.assembled, tallies.distinct) == (5, 3, 2)
    assert tallies.rejected == {"disconnected": 2}
    assert aspirin.scores["fingerprint_tanimoto"] > isomer.scores["fingerprint_tanimoto"]
    assert all(one.scores["fingerprint_log_likelihood"] <= 0 for one in structures)


def pointing_at(bonds):
    """Log-probabilities of a sample, (1, M, 5), for which these bonds are all but certain."""
    return np.where(np.eye(5, dtype=bool)[bonds], -0.01, -8.0).astype(np.float16)[None]


def changed_aspirin(old, new):
    """Aspirin with the first bond of a class changed, and log-probabilities that know better."""
    formula, generated = drawn(ASPIRIN)
    right = generated.bond_class[0].numpy()
    wrong = right.copy()
    wrong[np.flatnonzero(right == old)[0]] = new
    return formula, samples([wrong], [0.0], pointing_at(right))


# Without one of its bonds it falls apart; with a single bond for a double one all valences hold,
# but two hydrogens are missing, which only rare kinds of atoms make up.
@pytest.mark.parametrize(("old", "new"), [(1, 0), (2, 1)])
def test_a_bond_drawn_wrong_is_mended_and_not_made_up_for_by_a_carbocation(old, new):
    structures, tallies = merged(*changed_aspirin(old, new))

    assert [structure.inchikey for structure in structures] == [key(ASPIRIN)]
    assert (structures[0].samples, structures[0].repaired) == (1, 1)
    assert (tallies.assembled, tallies.repaired, tallies.rejected) == (0, 1, {})


@pytest.mark.usefixtures("never_repaired")
def test_rare_kinds_of_atoms_are_the_last_resort():
    structures, tallies = merged(*changed_aspirin(2, 1))

    assert (tallies.assembled, tallies.repaired, tallies.rejected) == (1, 0, {})
    assert all("+]" in one.smiles for one in structures)


def test_permuted_atoms_give_the_same_structures():
    formula, generated = drawn(ASPIRIN, ISOMER)
    order = another_order(formula.atom_class, np.random.default_rng(0))
    permuted = [moved(row, order) for row in generated.bond_class.numpy()]

    again = merged(formula, samples(permuted, generated.log_likelihood.tolist()))

    assert again == merged(formula, generated)


@pytest.mark.parametrize("is_drawn", [True, False])
def test_merging_stops_when_its_time_is_up(is_drawn):
    def late():
        raise OutOfTimeError

    formula, generated = drawn(ASPIRIN)
    query = query_of(formula, check=late)

    with pytest.raises(OutOfTimeError):
        merged(formula, generated if is_drawn else None, listed(ASPIRIN), query=query)


@pytest.mark.parametrize(("source", "samples"), [("enumerated", 1), ("database", 0)])
def test_molecules_that_are_listed_count_as_proposals_and_those_of_a_database_do_not(
    source, samples
):
    formula, generated = drawn(ASPIRIN, ASPIRIN, log_likelihood=[-1, -3])

    structures, tallies = merged(formula, generated, listed(ASPIRIN, ISOMER, source=source))

    by_key = {structure.inchikey: structure for structure in structures}
    both, other = by_key[key(ASPIRIN)], by_key[key(ISOMER)]
    assert (both.samples, both.log_likelihood) == (2 + samples, -2)
    assert both.sources == tuple(sorted((source, "noise")))
    assert (other.samples, other.log_likelihood, other.sources) == (samples, None, (source,))
    counts = (tallies.sampled, tallies.assembled, tallies.distinct)
    assert counts == (2 + 2 * samples, 2 + 2 * samples, 2)


# Both have C7H17NO2: an ammonium opposite an alkoxide, in two placements, and a plain amino diol.
SALT, SAME_SALT, DIOL = "C[N+](C)(C)CCC(O)C[O-]", "C[N+](C)(C)CCC([O-])CO", "CN(C)CCC(O)CCO"


@pytest.mark.usefixtures("never_repaired")
def test_internal_salts_are_left_out_where_anything_else_was_drawn():
    formula, generated = drawn(SALT, DIOL, SAME_SALT, SALT)

    structures, tallies = merged(formula, generated)

    assert [structure.inchikey for structure in structures] == [key(DIOL)]
    assert (tallies.assembled, tallies.rejected) == (1, {"internal salt": 3})


def test_excluded_molecules_are_no_candidates_and_are_accounted_for():
    formula, generated = drawn(ASPIRIN, ISOMER, ASPIRIN)
    both = frozenset({key(ASPIRIN)[:14], key(SALT)[:14]})

    structures, tallies = merged(formula, generated, excluded=both)

    assert [structure.inchikey for structure in structures] == [key(ISOMER)]
    assert (tallies.assembled, tallies.distinct) == (1, 1)
    assert tallies.rejected == {"known molecule": 2}


@pytest.mark.usefixtures("never_repaired")
def test_one_placement_of_charges_stays_where_nothing_else_was_drawn():
    formula, generated = drawn(SALT, SAME_SALT, SALT, log_likelihood=[-1, -4, -1])

    structures, tallies = merged(formula, generated)

    (only,) = structures
    assert (only.samples, only.log_likelihood) == (3, -2)
    assert (tallies.assembled, tallies.rejected) == (3, {})


def test_a_salt_is_mended_and_another_placement_of_charges_is_no_candidate_of_its_own():
    formula, generated = drawn(SALT)
    right = drawn("CN(C)CCC(O)COC")[1].bond_class[0].numpy()
    carnitine = "C[N+](C)(C)CC(O)CC(=O)[O-]"  # also as an alkoxide

    structures, tallies = merged(formula, samples(generated.bond_class, [0.0], pointing_at(right)))
    placed, _ = merged(*drawn(carnitine))

    assert tallies.repaired == 1
    assert not any(is_internal_salt(identity.parse_smiles(one.smiles)) for one in structures)
    assert [structure.smiles for structure in placed] == [carnitine]
