"""Molecules in other orders, and how a denoiser is judged on them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from atom_orders import SMILES_PLACE, OrderSelection, load_in_order, prepare_orders
from duallgd_cli.generator.network import ModelGenerator
from judging import NOISE_STEPS, HeldOut, bond_marginal, finish, finish_all, noise_levels
from rdkit import Chem
from torch.nn.functional import one_hot

from duallgd_cli.chem.identity import canonical_smiles, parse_smiles
from duallgd_cli.config import SamplingSettings
from duallgd_cli.data.prepared import load_array, load_molecules
from duallgd_cli.errors import UsageError
from duallgd_cli.model.settings import ModelSettings
from tests.made_prepared import structures_folder
from tests.made_training import cpu

DRUGS = ("CC(=O)Oc1ccccc1", "NCC(=O)NCC", "OC1CCCCC1CN", "CC(C)CC(N)C(=O)O", "c1ccc2[nH]ccc2c1")
BOND_OF = {1: 1, 2: 2, 3: 3, 12: 4}


@pytest.fixture
def ordered(tmp_path):
    source = structures_folder(tmp_path / "structures", *DRUGS, "OB(O)c1ccccc1", "CCO")
    prepare_orders(source, tmp_path / "ordered", OrderSelection(held_out=2))
    return tmp_path / "ordered"


def bonds_by_smiles():
    """Bonds of each drug with atoms numbered along its canonical SMILES, read by RDKit."""
    found = {}
    for text in DRUGS:
        mol = Chem.MolFromSmiles(canonical_smiles(parse_smiles(text)))
        elements = tuple(atom.GetAtomicNum() for atom in mol.GetAtoms())
        bonds = {
            (
                *sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())),
                BOND_OF[int(bond.GetBondType())],
            )
            for bond in mol.GetBonds()
        }
        found[elements] = bonds
    return found


def test_the_true_order_is_that_of_the_canonical_smiles(ordered):
    molecules, expected = load_in_order(ordered, "truth"), bonds_by_smiles()
    number = {0: 6, 1: 7, 2: 8}

    for row in range(len(molecules)):
        elements = tuple(number[int(e)] for e in molecules.atom_class(row))
        start, stop = molecules.bond_offset[row : row + 2]
        rows = zip(
            molecules.bond_pair[start:stop].tolist(),
            molecules.bond_type[start:stop].tolist(),
            strict=True,
        )
        assert {(*pair, kind) for pair, kind in rows} == expected[elements]


def test_foreign_elements_and_other_sizes_are_left_out_and_some_are_held_out(ordered):
    molecules = load_molecules(ordered)

    assert len(molecules) == len(DRUGS)
    assert molecules.fold.tolist().count(3) == 2
    assert load_array(ordered, SMILES_PLACE).size == molecules.n_heavy.sum()


def test_data_that_do_not_know_the_true_order_say_so(tmp_path):
    folder = structures_folder(tmp_path / "structures", *DRUGS)

    with pytest.raises(UsageError, match=r"examples/studies/leak\.py"):
        load_in_order(folder, "truth")


MADE = ("CC(=O)Oc1ccccc1", "NCC(=O)NCC", "OC1CCCCC1CN", "CC(C)CC(N)C(=O)O", "CCOC(=O)CC#N")
SAMPLING = SamplingSettings(samples=3, steps=2)


class Oracle(torch.nn.Module):
    """Knows the true bonds of every molecule by its atoms in their order and its fingerprint."""

    def __init__(self, known, confidence):
        super().__init__()
        self.answers = {self._key(one.condition, 0): one.bond_class[0] for one in known}
        self.confidence = confidence
        self.anything = torch.nn.Parameter(torch.zeros(1))

    @staticmethod
    def _key(condition, row):
        bits = condition.bit[row][condition.bit_log_prob[row] > -1]
        return tuple(condition.atom_class[row].tolist()), tuple(bits.tolist())

    def context(self, condition):
        truth = torch.stack(
            [self.answers[self._key(condition, row)] for row in range(len(condition.bit))]
        )
        return SimpleNamespace(truth=truth, expand=lambda n: SimpleNamespace(truth=truth))

    def forward(self, bond_class, t, context):
        del t
        truth = context.truth.expand(len(bond_class), -1)
        return self.confidence * one_hot(truth, 5).float() + 0 * self.anything


def generator_of(known, confidence=50.0):
    model = torch.nn.Module()
    model.denoiser = Oracle(known, confidence)
    model.settings = ModelSettings()
    return ModelGenerator(model, cpu())


@pytest.fixture
def folder(tmp_path):
    source = structures_folder(tmp_path / "structures", *MADE, "CCOCCCC")
    prepare_orders(source, tmp_path / "ordered", OrderSelection(held_out=4))
    return tmp_path / "ordered"


@pytest.mark.parametrize("order", ["truth", "random", "formula"])
def test_an_oracle_finds_every_molecule_and_makes_no_error_whatever_the_order(folder, order):
    known = HeldOut(folder, order=order).structures()

    found = finish_all(generator_of(known), known, SAMPLING, seed=1)
    levels = noise_levels(generator_of(known), known)

    assert set(map(tuple, found.values())) == {(1.0,) * 4}
    assert [level["t"] for level in levels] == list(NOISE_STEPS)
    assert all(level["bond_f1"] == 1 and level["cross_entropy"] < 1e-6 for level in levels)


def test_who_guesses_evenly_has_the_entropy_of_five_classes(folder):
    known = HeldOut(folder).structures()

    levels = noise_levels(generator_of(known, confidence=0.0), known)

    assert all(level["cross_entropy"] == pytest.approx(np.log(5)) for level in levels)
    assert all(level["bond_f1"] == 0 for level in levels)


def test_a_graph_without_bonds_is_no_candidate_and_costs_no_error(folder):
    known = HeldOut(folder).structures()[0]
    blank = replace(known, bond_class=torch.zeros_like(known.bond_class))

    found = finish(generator_of([blank], confidence=-50.0), known, SAMPLING, seed=1)

    assert (found["top_1"], found["top_10"]) == (0, 0)
    assert found["valid"] == 0


def test_pairs_drawn_in_one_order_are_read_in_the_formulas(folder):
    true, sorted_ = (HeldOut(folder, order=order).structures() for order in ("truth", "formula"))

    for one, other in zip(true, sorted_, strict=True):
        assert one.block == other.block
        back = one.in_formula_order(one.bond_class.numpy())
        assert np.array_equal(back, other.bond_class.numpy())


def test_who_is_told_no_fingerprint_is_still_judged_by_it(folder):
    twin = folder.with_name("ordered-blind")

    blind, seen = HeldOut(twin, truth=folder).structures(), HeldOut(folder).structures()

    assert [one.bits.tolist() for one in blind] == [one.bits.tolist() for one in seen]
    assert all(one.condition.bit_log_prob.exp().sum() == 0 for one in blind)
    assert all(len(one.bits) > 0 for one in blind)


def test_the_marginal_is_that_of_the_molecules_trained_on(tmp_path):
    folder = structures_folder(tmp_path / "structures", "CCO", "C=C", "CC", fold=[0, 0, 3])

    # Pairs: three of ethanol, two of them bonded, and the double bond of ethene.
    share = bond_marginal(folder, 10)

    assert share[1] == pytest.approx(2 * share[2], abs=1e-5)
    assert share[0] == pytest.approx(share[2], abs=1e-5)
    assert min(share) > 0
    assert sum(share) == pytest.approx(1, abs=1e-5)
