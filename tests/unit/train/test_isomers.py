"""Molecules that the encoder learns to tell from others of their formula."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_cli.train.encoder import EncoderStage, Isomers, isomer_entropy
from duallgd_cli.train.settings import TrainingData, TrainingSettings
from tests.made_prepared import molecules_of

# Aspirin's formula four times, glycine's twice, and molecules of their own.
STRUCTURES = (
    *("CC(=O)Oc1ccccc1C(=O)O", "COC(=O)c1ccccc1C(=O)O", "OC(=O)Cc1ccc2OCOc2c1"),
    *("COc1cc(C=O)cc(C=O)c1O", "NCC(=O)O", "CC[N+](=O)[O-]", "CCO", "CC(C)=O", "Oc1cccc(O)c1"),
)
SETTINGS = TrainingSettings(data=TrainingData(spectra_per_batch=6, isomers=2))


@pytest.fixture(scope="module")
def structures():
    return molecules_of(*STRUCTURES)


def test_isomers_have_the_formula_and_are_other_molecules(structures):
    known = Isomers(structures)
    rows = np.array([0, 4, 6, 0])

    for most in (1, 2, 50):
        own = structures.atom_counts[rows], structures.inchikey[rows]
        isomer, owner = known.draw(*own, most, np.random.default_rng(most))

        assert (structures.atom_counts[isomer] == structures.atom_counts[rows][owner]).all()
        assert (isomer.numpy() != rows[owner]).all()
        assert (torch.bincount(owner, minlength=4) <= most).all()
    assert sorted(isomer[owner == 0].tolist()) == [1, 2, 3]
    assert isomer[owner == 1].tolist() == [5]
    assert 2 not in owner  # ethanol has none


def test_sums_are_those_of_the_bits_of_each_isomer(structures):
    known, logits = Isomers(structures), torch.randn(2, 4096)
    isomer, owner = torch.tensor([2, 5, 0]), torch.tensor([0, 0, 1])

    sums = known.sums(logits, isomer, owner)

    bits = [structures.fingerprint_bits(row).astype(np.int64) for row in isomer.tolist()]
    expected = [logits[b, own].sum() for b, own in zip(owner.tolist(), bits, strict=True)]
    assert torch.allclose(sums, torch.stack(expected), atol=1e-4)


def test_the_entropy_is_that_of_a_softmax_over_a_molecule_and_its_isomers():
    own, others = torch.tensor([30.0, -900.0, 4.0]), torch.tensor([10.0, 50.0, 1000.0])
    owner = torch.tensor([0, 0, 1])

    summed = isomer_entropy(own, others, owner)

    cases = (torch.tensor([30.0, 10, 50]), torch.tensor([-900.0, 1000]), torch.tensor([4.0]))
    assert summed == pytest.approx(-sum(float((0.14 * c).log_softmax(0)[0]) for c in cases))


def test_learning_to_tell_isomers_apart_puts_the_truth_before_them(
    spectra, structures, model, monkeypatch
):
    monkeypatch.setattr("duallgd_cli.train.encoder._OF_ISOMERS", 1e4)  # next to nothing else
    stage, plain = (EncoderStage(spectra, None, SETTINGS, structures=s) for s in (structures, None))
    batch = stage.collate(None, 3)
    assert len(batch.isomer)
    assert not len(plain.collate(None, 3).isomer)
    encoder = model.encoder

    def entropy():
        summed, bits = stage.loss(model, batch)
        return summed / bits - plain.loss(model, batch)[0] / bits

    before = entropy()
    optimiser = torch.optim.SGD(encoder.fingerprint.parameters(), lr=1e-5)
    before.backward()
    optimiser.step()

    assert float(entropy().detach()) < float(before.detach())
    assert 0 <= stage.validate(model)["isomers_first"] <= 1
    assert "isomers_first" not in plain.validate(model)
    without = replace(SETTINGS, data=replace(SETTINGS.data, isomers=0))
    assert EncoderStage(spectra, None, without, structures=structures).isomers is None
