from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli.chem import identity
from duallgd_cli.chem.molecule import disassemble, formula_of, is_internal_salt
from duallgd_cli.predict import candidates
from duallgd_cli.predict.candidates import assemble_all, collect, fingerprint_agreement
from duallgd_cli.predict.model import Generated, OutOfTimeError
from duallgd_cli.results import HypothesisResult

ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "O=C(O)c1ccc(C(=O)CO)cc1"
IMPOSSIBLE = None


def drawn(*smiles, log_likelihood=None, log_prob=None, fingerprint=None):
    """Samples that are these molecules; None stands for a matrix without bonds."""
    parts = [None if text is None else disassemble(identity.parse_smiles(text)) for text in smiles]
    formula = next(part.formula for part in parts if part is not None)
    n_pairs = formula.n_heavy * (formula.n_heavy - 1) // 2
    rows = [np.zeros(n_pairs, np.int8) if part is None else part.bond_class for part in parts]
    likelihood = np.arange(len(rows)) if log_likelihood is None else log_likelihood
    return formula, Generated(
        np.array(rows, dtype=np.int8),
        np.array(likelihood, np.float32),
        log_prob,
        fingerprint=fingerprint,
    )


def assembled(formula, generated):
    samples = assemble_all(formula, generated)
    found = collect(HypothesisResult("ok"), [(generated, samples)])
    return found.structures, found


def key(smiles):
    return identity.inchikey(identity.parse_smiles(smiles))


def test_equal_molecules_are_counted_and_their_likelihoods_averaged():
    formula, generated = drawn(ASPIRIN, ISOMER, ASPIRIN, log_likelihood=[-1, -5, -3])

    structures, tallies = assembled(formula, generated)

    by_key = {structure.inchikey: structure for structure in structures}
    assert by_key[key(ASPIRIN)].samples == 2
    assert by_key[key(ASPIRIN)].log_likelihood == -2
    assert by_key[key(ISOMER)].samples == 1
    assert (tallies.sampled, tallies.assembled, tallies.distinct) == (3, 3, 2)
    assert tallies.rejected == {}


def test_every_sample_is_accounted_for_once():
    formula, generated = drawn(ASPIRIN, IMPOSSIBLE, IMPOSSIBLE, ISOMER)

    _, tallies = assembled(formula, generated)

    assert tallies.rejected == {"disconnected": 2}
    assert tallies.assembled + tallies.repaired + sum(tallies.rejected.values()) == 4


def pointing_at(bonds):
    """Log-probabilities of a sample, (1, M, 5), for which these bonds are all but certain."""
    return np.where(np.eye(5, dtype=bool)[bonds], -0.01, -8.0).astype(np.float16)[None]


def broken_aspirin():
    """Aspirin without its ester bond, and log-probabilities that still point to aspirin."""
    formula, generated = drawn(ASPIRIN)
    right = generated.bond_class[0].astype(np.int64)
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


def test_without_log_probabilities_nothing_is_repaired():
    formula, broken, _ = broken_aspirin()

    structures, tallies = assembled(formula, Generated(broken, np.zeros(1, np.float32)))

    assert structures == ()
    assert tallies.rejected == {"disconnected": 1}


def aspirin_with_a_single_bond_for_a_double_one():
    """All valences hold, but two hydrogens are missing: only rare kinds of atoms make them up."""
    formula, generated = drawn(ASPIRIN)
    right = generated.bond_class[0].astype(np.int64)
    wrong = right.copy()
    wrong[np.flatnonzero(right == 2)[0]] = 1
    return formula, wrong.astype(np.int8)[None], pointing_at(right)


@pytest.mark.parametrize("wrong", [broken_aspirin, aspirin_with_a_single_bond_for_a_double_one])
def test_a_bond_drawn_wrong_is_mended_and_not_made_up_for_by_a_carbocation(wrong):
    formula, matrix, log_prob = wrong()

    structures, tallies = assembled(formula, Generated(matrix, np.zeros(1, np.float32), log_prob))

    assert [structure.inchikey for structure in structures] == [key(ASPIRIN)]
    assert (structures[0].samples, structures[0].repaired) == (1, 1)
    assert (tallies.assembled, tallies.repaired, tallies.rejected) == (0, 1, {})


@pytest.mark.parametrize("has_log_prob", [True, False])
def test_rare_kinds_of_atoms_are_the_last_resort(monkeypatch, has_log_prob):
    monkeypatch.setattr(candidates, "repair", lambda *_: None)
    formula, wrong, log_prob = aspirin_with_a_single_bond_for_a_double_one()

    structures, tallies = assembled(
        formula, Generated(wrong, np.zeros(1, np.float32), log_prob if has_log_prob else None)
    )

    assert (tallies.assembled, tallies.repaired, tallies.rejected) == (1, 0, {})
    assert all(formula_of(identity.parse_smiles(one.smiles)) == formula for one in structures)
    assert any("+]" in one.smiles for one in structures)


def test_a_sample_that_assembles_is_never_repaired(monkeypatch):
    monkeypatch.setattr(candidates, "repair", lambda *_: pytest.fail("repair was asked"))
    formula, generated = drawn(ASPIRIN)
    log_prob = np.zeros((*generated.bond_class.shape, 5), np.float16)

    structures, _ = assembled(
        formula, Generated(generated.bond_class, generated.log_likelihood, log_prob)
    )

    assert structures[0].repaired == 0


def test_further_readings_of_a_matrix_are_structures_without_samples():
    formula, generated = drawn(
        "c1ccc2[nH]ncc2c1", log_likelihood=[-4]
    )  # 1H-indazole or 2H-indazole

    structures, tallies = assembled(formula, generated)

    assert tallies.assembled == 1
    assert sum(structure.samples for structure in structures) == 1
    for structure in structures:
        assert structure.samples + structure.alternatives == 1
        assert structure.log_likelihood == -4


def test_permuted_atoms_give_the_same_structures():
    formula, generated = drawn(ASPIRIN, ISOMER)
    atoms = np.arange(formula.n_heavy)
    rng = np.random.default_rng(0)
    permuted = []
    for row in generated.bond_class:
        order = np.concatenate(
            [rng.permutation(atoms[formula.atom_class == e]) for e in np.unique(formula.atom_class)]
        )
        dense = np.zeros((atoms.size, atoms.size), np.int8)
        dense[np.triu_indices(atoms.size, 1)] = row
        dense = (dense + dense.T)[order][:, order]
        permuted.append(dense[np.triu_indices(atoms.size, 1)])

    again = assembled(formula, Generated(np.array(permuted), generated.log_likelihood))

    assert again == assembled(formula, generated)


def test_agreement_is_highest_for_the_most_probable_bits():
    probability = np.full(4096, 0.01, np.float32)
    probability[[3, 9]] = 0.9
    right, wrong = np.array([3, 9], np.uint16), np.array([4], np.uint16)

    exact, soft = fingerprint_agreement(right, probability)
    worse, less = fingerprint_agreement(wrong, probability)

    assert exact == pytest.approx(0, abs=1e-9)
    assert worse < exact
    assert soft == pytest.approx(1.8 / (4094 * 0.01 + 2), rel=1e-5)
    assert less < soft


def test_agreement_with_certain_probabilities_is_finite_and_exact():
    probability = np.zeros(4096, np.float32)
    probability[7] = 1

    log_likelihood, tanimoto = fingerprint_agreement(np.array([7], np.uint16), probability)

    assert log_likelihood == 0
    assert 0.7 < tanimoto <= 1


def test_structures_carry_their_agreement_where_a_fingerprint_is_predicted():
    probability = np.full(4096, 0.02, np.float32)
    probability[identity.fingerprint(identity.parse_smiles(ASPIRIN))] = 0.9
    formula, generated = drawn(ASPIRIN, ISOMER, fingerprint=probability)

    structures, _ = assembled(formula, generated)

    scores = {structure.inchikey: structure.fingerprint_tanimoto for structure in structures}
    assert scores[key(ASPIRIN)] > scores[key(ISOMER)]
    assert all(structure.fingerprint_log_likelihood <= 0 for structure in structures)


@pytest.mark.parametrize("samples", [(ASPIRIN, ISOMER), ()])
def test_assembly_stops_when_its_time_is_up(samples):
    formula, generated = drawn(ASPIRIN)
    molecules = replace(
        generated,
        bond_class=generated.bond_class[:0],
        log_likelihood=generated.log_likelihood[:0],
        molecules=complete(*samples),
    )

    with pytest.raises(OutOfTimeError):
        assemble_all(formula, molecules if samples else generated, timeout_s=-1.0)


class Bonds:
    """A score of the bonds that fragments are cut from, in their order."""

    def scores(self, mol, parts, bits):
        place = np.arange(1, len(parts.bond_class) + 1)
        return {"peaks_found": float(place @ parts.bond_class)}


def complete(*smiles):
    return tuple(("enumerated", identity.parse_smiles(text)) for text in smiles)


def test_complete_molecules_count_as_proposals_and_have_no_likelihood_of_their_own():
    formula, generated = drawn(ASPIRIN, ASPIRIN, log_likelihood=[-1, -3])
    generated = replace(
        generated, sources=("noise", "templates"), molecules=complete(ASPIRIN, ISOMER)
    )

    structures, tallies = assembled(formula, generated)

    by_key = {structure.inchikey: structure for structure in structures}
    both, other = by_key[key(ASPIRIN)], by_key[key(ISOMER)]
    assert (both.samples, both.log_likelihood) == (3, -2)
    assert both.sources == ("enumerated", "noise", "templates")
    assert (other.samples, other.log_likelihood, other.sources) == (1, None, ("enumerated",))
    assert (tallies.sampled, tallies.assembled, tallies.distinct) == (4, 4, 2)


@pytest.mark.parametrize(
    "smiles",
    [
        *(ASPIRIN, ISOMER, "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "c1ccc2[nH]ccc2c1", "CC[N+](=O)[O-]"),
        *("C[N+](C)(C)CC(=O)[O-]", "CS(=O)(=O)c1ccccc1", "COP(=O)(O)OC", "O=c1cc[nH]c(=O)[nH]1"),
        *("CN=[N+]=[N-]", "C[N+](C)(C)CCO", "Cc1nc2ccccc2[nH]1", "c1ccc2c(c1)c1ccccc1n2C"),
    ],
)
def test_a_complete_molecule_is_what_its_bonds_are_assembled_to(smiles):
    """Neither the solver nor the network has a say in it, so nothing differs but the likelihood."""
    formula, generated = drawn(smiles, log_likelihood=[-1])
    generated = replace(generated, scorer=Bonds())
    none = replace(
        generated, bond_class=generated.bond_class[:0], log_likelihood=generated.log_likelihood[:0]
    )

    (direct,), _ = assembled(formula, replace(none, molecules=complete(smiles)))

    from_bonds, _ = assembled(formula, generated)
    (expected,) = (one for one in from_bonds if one.inchikey == direct.inchikey)
    assert (direct.smiles, direct.inchi) == (expected.smiles, expected.inchi)
    assert direct.peaks_found == expected.peaks_found


# Both have C7H17NO2: an ammonium opposite an alkoxide, in two placements, and a plain amino diol.
SALT, SAME_SALT, DIOL = "C[N+](C)(C)CCC(O)C[O-]", "C[N+](C)(C)CCC([O-])CO", "CN(C)CCC(O)CCO"


def test_internal_salts_are_left_out_where_anything_else_was_drawn():
    formula, generated = drawn(SALT, DIOL, SAME_SALT, SALT)

    structures, tallies = assembled(formula, generated)

    assert [structure.inchikey for structure in structures] == [key(DIOL)]
    assert (tallies.assembled, tallies.rejected) == (1, {"internal salt": 3})


def test_excluded_molecules_are_no_candidates_and_are_accounted_for():
    formula, generated = drawn(ASPIRIN, ISOMER, ASPIRIN)
    both = frozenset({key(ASPIRIN)[:14], key(SALT)[:14]})

    structures, tallies = assembled(formula, replace(generated, excluded=both))

    assert [structure.inchikey for structure in structures] == [key(ISOMER)]
    assert (tallies.assembled, tallies.distinct) == (1, 1)
    assert tallies.rejected == {"known molecule": 2}


def test_one_placement_of_charges_stays_where_nothing_else_was_drawn():
    formula, generated = drawn(SALT, SAME_SALT, SALT, log_likelihood=[-1, -4, -1])

    structures, tallies = assembled(formula, generated)

    (only,) = structures
    assert (only.samples, only.log_likelihood) == (3, -2)
    assert (tallies.assembled, tallies.rejected) == (3, {})


@pytest.mark.parametrize(
    ("smiles", "neutral"),
    [
        ("C[N+](C)(C)CC(=O)[O-]", "NCCCC(=O)OC"),  # glycine betaine
        ("CC[N+](=O)[O-]", "OCC=NO"),  # nitroethane
        ("C[N+](C)(C)CCOP(=O)(O)[O-]", "CCCCCNOP(=O)(O)O"),  # phosphocholine
        ("CCN=[N+]=[N-]", "CC1N=NN1"),
    ],
)
def test_charges_with_a_reason_stay_beside_neutral_molecules(smiles, neutral):
    found = []
    for text in (smiles, neutral):
        formula, generated = drawn(text)
        found += assembled(formula, generated)[0]

    assert [structure.inchikey for structure in found] == [key(smiles), key(neutral)]
    assert not any(is_internal_salt(identity.parse_smiles(one)) for one in (smiles, neutral))


def test_a_bond_drawn_wrong_is_mended_rather_than_made_up_for_by_a_salt():
    formula, generated = drawn(SALT)
    right = drawn("CN(C)CCC(O)COC")[1].bond_class[0].astype(np.int64)

    structures, tallies = assembled(
        formula, Generated(generated.bond_class, np.zeros(1, np.float32), pointing_at(right))
    )

    assert tallies.repaired == 1
    assert not any(is_internal_salt(identity.parse_smiles(one.smiles)) for one in structures)


def test_another_placement_of_charges_is_no_candidate_of_its_own():
    formula, generated = drawn("C[N+](C)(C)CC(O)CC(=O)[O-]")  # carnitine: also as an alkoxide

    structures, _ = assembled(formula, generated)

    assert [structure.smiles for structure in structures] == ["C[N+](C)(C)CC(O)CC(=O)[O-]"]
