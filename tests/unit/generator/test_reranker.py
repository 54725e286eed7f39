"""Scores beside the samples: as computed by hand, on substructures and peaks from chemistry."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_cli.chem import identity
from duallgd_cli.chem.building_blocks import NO_BLOCKS
from duallgd_cli.chem.environments import known_environments
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.joining import cut
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.data.fragmentation import N_INPUTS, SHIFTS
from duallgd_cli.data.simulation import FragmentModel
from duallgd_cli.errors import WeightsError
from duallgd_cli.generator.reranker import CandidateScorer, Reranker
from duallgd_cli.train.evidence import Judge
from tests.made_spectra import annotated as made_annotated

N_BITS = 4096
NO_BITS = np.zeros(0, np.uint16)
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
    return Judge(FragmentModel(N_INPUTS, len(SHIFTS), width=8)).eval()


def even_model(log_odds):
    """Gives every fragment with every number of hydrogens the same log-odds."""
    network = judge()
    torch.nn.init.constant_(network.presence.bias, log_odds)
    return Reranker.of(arrays_of(network))


def annotated(*fragments, adduct="[M+H]+", formula="C2H6O", energy=20.0, carrier=0):
    """A spectrum explained by these fragment ions."""
    counts = [Formula.parse(text).array for text in fragments]
    energies, carriers = [energy] * len(counts), [carrier] * len(counts)
    return made_annotated(counts, formula, adduct, energy_ev=energies, carrier=carriers)


def scored(model, seen, smiles="CCO"):
    mol = identity.parse_smiles(smiles)
    scorer = CandidateScorer.of(model, NO_BLOCKS.ends, seen)
    return scorer.scores(mol, disassemble(mol), identity.fingerprint(mol))


def test_the_network_in_plain_arrays_is_the_network():
    network = judge()
    for head in (network.presence, network.worth):
        torch.nn.init.normal_(head.weight)
        torch.nn.init.normal_(head.bias)
    features = np.random.default_rng(1).random((5, N_INPUTS), np.float32)

    got = Reranker.of(arrays_of(network)).worth(features)

    for said, there in zip(got, (True, False), strict=True):
        with torch.inference_mode():
            _, expected = network(torch.from_numpy(features), torch.full((5, 11), there))
        np.testing.assert_allclose(said, expected.numpy(), atol=1e-4)


def test_the_substructure_prior_is_the_mean_log_share_of_the_bits():
    bits = identity.fingerprint(identity.parse_smiles("CCO"))
    table = np.full(N_BITS, -9, np.float32)
    table[bits] = np.linspace(-3, -1, len(bits))
    got = scored(Reranker.of(arrays_of(judge(), table)), annotated("C2H5"))

    assert got["familiarity"] == pytest.approx(-2, abs=1e-4)


def test_environments_that_no_known_structure_has_count_against_a_molecule():
    known = known_environments([identity.parse_smiles("CCO")] * 2)
    model = Reranker.of(arrays_of(judge()) | {"environments": known})

    assert str(scored(model, annotated("C2H5"))["known_environments"]) == "0.0"  # and not -0.0
    # By hand in tests/unit/chem/test_environments.py.
    assert scored(model, annotated("C2H5"), "CCCO")["known_environments"] == -3


def test_contrast_is_the_sum_of_what_the_bits_speak_for_a_molecule():
    mol, model = identity.parse_smiles("CCO"), Reranker.of(arrays_of(judge()))
    bits, told = identity.fingerprint(mol), np.full(N_BITS, 9, np.float32)
    told[bits] = 0.25
    scorer = CandidateScorer.of(model, NO_BLOCKS.ends, annotated("C2H5"), told)

    assert scorer.scores(mol, disassemble(mol), bits)["contrast"] == 0.25 * len(bits)
    assert scored(model, annotated("C2H5"))["contrast"] == 0  # without a second encoder


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

    assert got == NOTHING


def test_a_molecule_without_bonds_has_no_fragments():
    got = scored(even_model(0.0), annotated("CH3", formula="CH4"), "C")

    assert {**got, "familiarity": 0.0} == NOTHING


def test_a_scorer_gives_the_same_in_another_process():
    ends = cut([identity.parse_smiles("CCO")]).ends
    scorer = CandidateScorer.of(even_model(-1.0), ends, annotated("C2H5", "HO"))
    mol = identity.parse_smiles("CCO")
    asked = mol, disassemble(mol), identity.fingerprint(mol)

    there = pickle.loads(pickle.dumps(scorer)).scores(*asked)

    assert there == scorer.scores(*asked)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        # Before release 22 there was no worth; before others fragments were described otherwise.
        *((name, None, rf"{name}.*evidence'") for name in ("log_prevalence", "worth.weight")),
        ("hidden.0.weight", np.zeros((8, N_INPUTS - 2), np.float32), "another version.*evidence'"),
        *(
            (name, value.astype(np.float32), "the re-ranker in the weights is broken")
            for name, value in (
                ("log_prevalence", np.zeros(3)),
                ("hidden.0.bias", np.zeros(3)),
                ("hidden.2.weight", np.zeros((8, 3))),
                ("presence.weight", np.zeros((4, 8))),
                ("presence.bias", np.zeros((1, 11))),
                ("worth.weight", np.zeros((11, 8))),
                ("hidden.2.weight", np.array(0)),
            )
        ),
        *(
            ("environments", value, "the re-ranker in the weights is broken")
            for value in (np.zeros(24, np.uint8), np.zeros(0, np.uint8), np.zeros(8, np.int64))
        ),
        ("environments", np.zeros((2, 4), np.uint8), "the re-ranker in the weights is broken"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_a_sentence(name, value, said):
    arrays = arrays_of(judge()) | {name: value}

    with pytest.raises(WeightsError, match=said):
        Reranker.of({name: array for name, array in arrays.items() if array is not None})
