import numpy as np
import pytest
import torch

from duallgd_cli.chem import identity
from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.chem.molecule import disassemble, formula_of, is_internal_salt
from duallgd_cli.diffusion.process import Samples
from duallgd_cli.errors import OutOfTimeError
from duallgd_cli.predict.pipeline import merge
from duallgd_cli.results import HypothesisResult
from duallgd_cli.scores import FingerprintLikelihood, FingerprintTanimoto
from duallgd_cli.sources import Proposal, Query, network
from duallgd_cli.spectra.annotation import AnnotationSettings, annotate
from duallgd_cli.spectra.types import Feature, Hypothesis, Source, Spectrum

ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "O=C(O)c1ccc(C(=O)CO)cc1"
IMPOSSIBLE = None
SCORES = (FingerprintLikelihood(), FingerprintTanimoto())


def query_of(formula, fingerprint=None, **values):
    """A query of a formula, of a spectrum with one peak."""
    spectrum = Spectrum(Source("a.mgf", 0), "one", np.array([50.0]), np.array([1.0]))
    hypothesis = Hypothesis(Feature((spectrum,)), formula, parse_adduct("[M+H]+"))
    if fingerprint is None:
        fingerprint = np.full(4096, 0.01, np.float32)
    return Query(annotate(hypothesis, AnnotationSettings()), fingerprint, **values)


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


def broken_aspirin():
    """Aspirin without its ester bond, and log-probabilities that still point to aspirin."""
    formula, generated = drawn(ASPIRIN)
    right = generated.bond_class[0].numpy()
    oxygen = np.flatnonzero(formula.atom_class == 2)
    low, high = np.triu_indices(formula.n_heavy, 1)
    # Cut one bond of the oxygen that has two: the graph falls apart.
    single = np.array([right[((low == o) | (high == o))].sum() for o in oxygen])
    n_bonds = np.array([np.count_nonzero(right[((low == o) | (high == o))]) for o in oxygen])
    ester = oxygen[(single == 2) & (n_bonds == 2)][0]
    cut = np.flatnonzero(((low == ester) | (high == ester)) & (right > 0))[0]
    broken = right.copy()
    broken[cut] = 0
    return formula, broken.astype(np.int8)[None], pointing_at(right)


def aspirin_with_a_single_bond_for_a_double_one():
    """All valences hold, but two hydrogens are missing: only rare kinds of atoms make them up."""
    formula, generated = drawn(ASPIRIN)
    right = generated.bond_class[0].numpy()
    wrong = right.copy()
    wrong[np.flatnonzero(right == 2)[0]] = 1
    return formula, wrong.astype(np.int8)[None], pointing_at(right)


@pytest.mark.parametrize("wrong", [broken_aspirin, aspirin_with_a_single_bond_for_a_double_one])
def test_a_bond_drawn_wrong_is_mended_and_not_made_up_for_by_a_carbocation(wrong):
    formula, matrix, log_prob = wrong()

    structures, tallies = merged(formula, samples(matrix, [0.0], log_prob))

    assert [structure.inchikey for structure in structures] == [key(ASPIRIN)]
    assert (structures[0].samples, structures[0].repaired) == (1, 1)
    assert (tallies.assembled, tallies.repaired, tallies.rejected) == (0, 1, {})


@pytest.mark.usefixtures("never_repaired")
def test_rare_kinds_of_atoms_are_the_last_resort():
    formula, wrong, log_prob = aspirin_with_a_single_bond_for_a_double_one()

    structures, tallies = merged(formula, samples(wrong, [0.0], log_prob))

    assert (tallies.assembled, tallies.repaired, tallies.rejected) == (1, 0, {})
    assert all(formula_of(identity.parse_smiles(one.smiles)) == formula for one in structures)
    assert any("+]" in one.smiles for one in structures)


def test_permuted_atoms_give_the_same_structures():
    formula, generated = drawn(ASPIRIN, ISOMER)
    atoms = np.arange(formula.n_heavy)
    rng = np.random.default_rng(0)
    permuted = []
    for row in generated.bond_class.numpy():
        order = np.concatenate(
            [rng.permutation(atoms[formula.atom_class == e]) for e in np.unique(formula.atom_class)]
        )
        dense = np.zeros((atoms.size, atoms.size), np.int8)
        dense[np.triu_indices(atoms.size, 1)] = row
        dense = (dense + dense.T)[order][:, order]
        permuted.append(dense[np.triu_indices(atoms.size, 1)])

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


@pytest.mark.parametrize(
    "smiles",
    [
        *(ASPIRIN, ISOMER, "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "c1ccc2[nH]ccc2c1", "CC[N+](=O)[O-]"),
        *("C[N+](C)(C)CC(=O)[O-]", "CS(=O)(=O)c1ccccc1", "COP(=O)(O)OC", "O=c1cc[nH]c(=O)[nH]1"),
        *("CN=[N+]=[N-]", "C[N+](C)(C)CCO", "Cc1nc2ccccc2[nH]1", "c1ccc2c(c1)c1ccccc1n2C"),
        *("C[N+](C)(C)CCOP(=O)(O)[O-]", "NCCCC(=O)OC", "OCC=NO", "CC1N=NN1"),
    ],
)
def test_a_molecule_that_is_listed_is_what_its_bonds_are_assembled_to(smiles):
    """Neither the solver nor the network has a say in it, so nothing differs but the likelihood."""
    formula, generated = drawn(smiles)

    (direct,), _ = merged(formula, listed=listed(smiles))
    (from_bonds,), _ = merged(formula, generated)

    assert direct.inchikey == key(smiles)
    assert not is_internal_salt(identity.parse_smiles(direct.smiles))
    assert (direct.smiles, direct.inchi) == (from_bonds.smiles, from_bonds.inchi)
    assert direct.scores == from_bonds.scores


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
