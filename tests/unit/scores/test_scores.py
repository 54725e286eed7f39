"""Scores of candidates: as computed by hand, on substructures and peaks from chemistry."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from duallgd_cli.chem import identity
from duallgd_cli.chem.building_blocks import NO_BLOCKS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.joining import cut, known_halves, parts_of
from duallgd_cli.data.fragmentation import N_INPUTS, SHIFTS
from duallgd_cli.data.simulation import FragmentModel
from duallgd_cli.errors import OutOfTimeError, WeightsError
from duallgd_cli.ranking.ranking import FEATURES
from duallgd_cli.scores import (
    FingerprintLikelihood,
    FingerprintTanimoto,
    FragmentScorer,
    Molecule,
    environments,
    fitted_scores,
    isomer_log_odds,
    known_environments,
    score,
)
from duallgd_cli.sources import Query
from duallgd_cli.train.scorers import ScorerModel
from tests.made_spectra import annotated as made_annotated

N_BITS = 4096
CHANCE = np.exp(-4)
NOTHING = dict.fromkeys(
    ("familiarity", "peaks_found", "peaks_missed", "known_halves", "contrast"), 0.0
)


def arrays_of(network, log_prevalence=None):
    """What a weights file holds of a fragment model and a table."""
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    table = np.zeros(N_BITS, np.float32) if log_prevalence is None else log_prevalence
    return arrays | {"log_prevalence": table}


def judge():
    torch.manual_seed(1)
    return ScorerModel(FragmentModel(8)).eval()


def even_model(log_odds):
    """Gives every fragment with every number of hydrogens the same log-odds."""
    network = judge()
    torch.nn.init.constant_(network.presence.bias, log_odds)
    return arrays_of(network)


def annotated(*fragments, adduct="[M+H]+", formula="C2H6O", energy=20.0, carrier=0):
    """A spectrum explained by these fragment ions."""
    counts = [Formula.parse(text).array for text in fragments]
    energies, carriers = [energy] * len(counts), [carrier] * len(counts)
    return made_annotated(counts, formula, adduct, energy_ev=energies, carrier=carriers)


def query(seen, chance=0.5, **changes):
    return Query(seen, np.full(N_BITS, chance, np.float32), **changes)


def molecule(smiles):
    mol = identity.parse_smiles(smiles)
    return Molecule.of(mol, identity.canonical_smiles(mol))


def scored(arrays, seen, smiles="CCO", ends=NO_BLOCKS.ends):
    """All that a weights file with these arrays says of a molecule."""
    scores, _ = fitted_scores(arrays, ends)
    (values,) = score(scores, query(seen), [molecule(smiles)])
    return values


def test_the_network_in_plain_arrays_is_the_network():
    network = judge()
    for head in (network.presence, network.worth):
        torch.nn.init.normal_(head.weight)
        torch.nn.init.normal_(head.bias)
    features = np.random.default_rng(1).random((5, N_INPUTS), np.float32)

    scorer = FragmentScorer.of(arrays_of(network))
    weight, bias = scorer.layers[0]
    got = scorer.worth(features @ weight.T + bias)

    for said, there in zip(got, (True, False), strict=True):
        with torch.inference_mode():
            _, expected = network(torch.from_numpy(features), torch.full((5, 11), there))
        np.testing.assert_allclose(said, expected.numpy(), atol=1e-4)


def test_each_score_of_a_molecule_is_what_it_says():
    ethanol, known = (
        molecule("CCO"),
        known_environments([environments(identity.parse_smiles("CCO"))] * 2),
    )
    table, odds = np.full(N_BITS, -9, np.float32), np.full(N_BITS, 9, np.float32)
    table[ethanol.bits] = np.linspace(-3, -1, len(ethanol.bits))
    odds[ethanol.bits] = 0.25
    ends = cut(map(parts_of, map(identity.parse_smiles, ["CCO", "CCCO", "CC(C)O"]))).ends
    model = arrays_of(judge(), table) | {"environments": known}

    of_ethanol, of_propanol = (scored(model, annotated("C2H5"), s, ends) for s in ("CCO", "CCCO"))

    assert of_ethanol["familiarity"] == pytest.approx(-2, abs=1e-4)  # mean log share of the bits
    assert str(of_ethanol["known_environments"]) == "0.0"  # and not -0.0
    # By hand in tests/unit/chem/test_formula.py.
    assert of_propanol["known_environments"] == -3
    halves = known_halves(identity.parse_smiles("CCCO"), ends)
    assert of_propanol["known_halves"] == round(halves, 4) != 0
    assert of_ethanol["contrast"] == 0  # without an encoder
    asked = query(annotated("C2H5"), isomer_log_odds=odds)
    assert isomer_log_odds(asked, ethanol) == 0.25 * len(ethanol.bits)


def test_agreement_with_the_fingerprint_is_read_literally():
    """Of six likely bits four are of the molecule; its others and all others are unlikely."""
    ethanol = molecule("CCO")
    chance = np.full(N_BITS, 1e-4)  # as low as any chance is taken to be
    on = ethanol.bits.tolist()
    absent = [bit for bit in (4000, 4001) if bit not in on]
    for bit, value in zip((*on[:4], *absent), (0.9, 0.8, 0.7, 0.2, 0.4, 0.6), strict=True):
        chance[bit] = value
    asked = Query(annotated("C2H5"), chance.astype(np.float32))

    likelihood, tanimoto = (
        each(asked, [ethanol])[0] for each in (FingerprintLikelihood(), FingerprintTanimoto())
    )

    expected = sum(
        np.log(q if bit in on else 1 - q) - np.log(max(q, 1 - q)) for bit, q in enumerate(chance)
    )
    shared = sum(chance[bit] for bit in on)
    either = sum(max(q, bit in on) for bit, q in enumerate(chance))
    assert likelihood == pytest.approx(expected, abs=1e-4)
    assert tanimoto == pytest.approx(shared / either, abs=1e-6)
    chance = np.zeros(N_BITS, np.float32)  # certain: both stay finite
    chance[on] = 1
    pair = (Query(annotated("C2H5"), chance), [ethanol, molecule("COC")])
    (best, worse), (near, far) = FingerprintLikelihood()(*pair), FingerprintTanimoto()(*pair)
    assert best == 0 > worse > -np.inf
    assert 1 >= near > 0.7 > far > 0


def test_fragments_count_as_on_paper():
    """Ethanol has six fragments of eleven hydrogen counts each: 66 places, each of chance 1/2.

    C2H5+ is one of them, C2H3O+ none: it would need all atoms and has fewer hydrogens than a
    fragment may lack... but the whole molecule less four, which is in reach.
    """
    got = scored(even_model(0.0), annotated("C2H5", "C2H3O"))

    n_places, n_found = 6 * len(SHIFTS), 2
    found, missed = 0.1 * (np.log(0.5) - np.log(CHANCE)), 0.3 * np.log(0.5)
    assert got["peaks_found"] == pytest.approx(n_found * found, abs=1e-4)
    assert got["peaks_missed"] == pytest.approx((n_places - n_found) * missed, abs=1e-3)


def test_collision_energies_count_alike_however_many_peaks_they_have():
    low, high = annotated("C2H5", energy=10.0), annotated("C2H5", "HO", "CH3", energy=40.0)
    names = ("subformula", "intensity", "ppm", "mz", "share", "carrier", "energy_ev")
    both = {name: np.concatenate([getattr(low, name), getattr(high, name)]) for name in names}

    one, other = (scored(even_model(-1.0), seen) for seen in (low, high))
    together = scored(even_model(-1.0), replace(low, **both))

    assert together["peaks_found"] == pytest.approx(
        (one["peaks_found"] + other["peaks_found"]) / 2, abs=1e-3
    )


@pytest.mark.parametrize(
    "seen",
    [
        annotated("C2H5", adduct="[M+Na]+"),  # fragments of sodium adducts are not understood
        annotated("C2H5", carrier=1),
        annotated(),
    ],
)
def test_a_spectrum_that_says_nothing_leaves_the_substructure_prior(seen):
    got = scored(even_model(0.0), seen)

    assert {name: got[name] for name in NOTHING} == NOTHING
    methane = scored(even_model(0.0), annotated("CH3", formula="CH4"), "C")  # without bonds
    assert (methane["peaks_found"], methane["peaks_missed"]) == (0, 0)


def test_fragments_of_many_molecules_speak_as_those_of_each():
    network = judge()
    for head in (network.presence, network.worth):
        torch.nn.init.normal_(head.weight)
    fragments = FragmentScorer.of(arrays_of(network))
    seen = annotated("C4H9O", "C3H7", "C2H5", "CH3O", formula="C4H10O")
    isomers = ["CCCCO", "CCC(C)O", "CC(C)(C)O", "CCOCC", "COC(C)C", "CC(C)CO"] * 8
    named = [(one.smiles, one.mol) for one in map(molecule, [*isomers, "OCC1CC1", "CC(C)=O", "C"])]

    together = fragments.peaks(query(seen), named)

    alone = np.concatenate([fragments.peaks(query(seen), [pair]) for pair in named])
    np.testing.assert_allclose(together, alone, atol=2e-4)
    assert len(np.unique(alone[:6].round(2), axis=0)) == 6


def test_fragments_of_a_molecule_are_cut_once_a_query(monkeypatch):
    fragments, worth, calls = FragmentScorer.of(even_model(-1.0)), FragmentScorer.worth, []
    monkeypatch.setattr(FragmentScorer, "worth", lambda self, x: calls.append(1) or worth(self, x))
    asked, (ethanol, methanol) = query(annotated("C2H5")), map(molecule, ("CCO", "CO"))

    def peaks(asked, *molecules):
        return fragments.peaks(asked, [(one.smiles, one.mol) for one in molecules]).tolist()

    first = peaks(asked, ethanol)

    assert peaks(asked, molecule("OCC")) == first
    assert len(calls) == 1
    (other,) = peaks(asked, methanol)
    assert peaks(asked, methanol, ethanol, methanol) == [other, *first, other]
    assert peaks(query(annotated("C2H5")), ethanol) == first
    assert len(calls) == 3


def test_with_a_re_ranker_every_score_has_the_name_of_its_weight_in_the_ranking():
    known = known_environments([environments(identity.parse_smiles("CCO"))])
    scores, fragments = fitted_scores(arrays_of(judge()) | {"environments": known}, NO_BLOCKS.ends)

    names = [each.name for each in scores]
    assert isinstance(fragments, FragmentScorer)
    assert len(set(names)) == len(names)
    assert set(names) == set(FEATURES) - {"log_share", "log_prior", "repaired_share"}
    scores, fragments = fitted_scores({}, NO_BLOCKS.ends)  # those that need no fit
    assert [each.name for each in scores] == ["fingerprint_log_likelihood", "fingerprint_tanimoto"]
    assert fragments is None


@dataclass
class Own:
    """A score that gives what it is told."""

    values: object
    name: str = "own"

    def __call__(self, query, molecules):
        return self.values


def test_numbers_of_a_score_come_in_any_form_and_time_that_is_up_is_noticed_before_each():
    looked, two = [], [molecule("CCO")] * 2

    def check():
        looked.append(1)
        if len(looked) == 2:
            raise OutOfTimeError

    for values in ([1, 2], (1.0, 2.0), np.array([1, 2], np.int8)):
        got = score([Own(values), Own([0.5, 0], "other")], query(annotated("C2H5")), two)
        assert got == [{"own": 1.0, "other": 0.5}, {"own": 2.0, "other": 0.0}]
    assert score([Own("never looked at")], query(annotated("C2H5")), []) == []
    assert score([], query(annotated("C2H5")), two[:1]) == [{}]
    with pytest.raises(OutOfTimeError):
        score([Own([1]), Own([2])], query(annotated("C2H5"), check=check), two[:1])


# Both have C7H17NO2: an ammonium opposite an alkoxide, in two placements, and a plain amino diol.
SALT, SAME_SALT, DIOL = "C[N+](C)(C)CCC(O)C[O-]", "C[N+](C)(C)CCC([O-])CO", "CN(C)CCC(O)CCO"
CARNITINE = "C[N+](C)(C)CC(O)CC(=O)[O-]"


def test_what_differs_in_the_placement_of_charges_alone_shares_a_placement():
    salt, same, diol, carnitine = map(molecule, (SALT, SAME_SALT, DIOL, CARNITINE))

    assert [one.is_salt for one in (salt, same, diol, carnitine)] == [True, True, False, False]
    assert salt.placement == same.placement != carnitine.placement != ""
    assert diol.placement == ""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("log_prevalence", None, r"log_prevalence.*take the weights that come with"),
        ("worth.weight", None, r"worth.weight.*take the weights that come with"),
        ("hidden.0.weight", np.zeros((8, N_INPUTS - 2)), "another version.*that come with this"),
        ("hidden.2.weight", np.zeros((0, 8)), "another version.*that come with this"),
        ("worth.bias", np.zeros(4), "another version.*that come with this"),
        ("log_prevalence", np.zeros(0), "another version.*that come with this"),
        ("log_prevalence", np.zeros((1, 4096)), "another version.*that come with this"),
        ("environments", np.zeros(0, np.uint8), "another version.*that come with this"),
        ("environments", np.zeros(64), "another version.*that come with this"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_a_sentence(name, value, said):
    arrays = arrays_of(judge()) | {name: value}

    with pytest.raises(WeightsError, match=said):
        fitted_scores(
            {name: array for name, array in arrays.items() if array is not None}, NO_BLOCKS.ends
        )
