"""The encoder: what it is trained on, and how it learns to tell molecules of one formula apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.data.peaks import prepared_batch
from duallgd_cli.errors import UnreadableError
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import EncoderSettings
from duallgd_cli.train import encoder as module
from duallgd_cli.train.encoder import EncoderStage
from duallgd_cli.train.settings import TrainingData, TrainingSettings
from tests.made_prepared import ESTERS, SPECTRA, made_decoys, made_spectra, molecules_of

SETTINGS = TrainingSettings(steps=8, data=TrainingData(spectra_per_batch=6, isomers=2))
# Aspirin's formula four times, glycine's twice, and molecules of their own.
STRUCTURES = (
    *("CC(=O)Oc1ccccc1C(=O)O", "COC(=O)c1ccccc1C(=O)O", "OC(=O)Cc1ccc2OCOc2c1"),
    *("COc1cc(C=O)cc(C=O)c1O", "NCC(=O)O", "CC[N+](=O)[O-]", "CCO", "CC(C)=O", "Oc1cccc(O)c1"),
)


@pytest.fixture(scope="module")
def structures():
    return molecules_of(*STRUCTURES)


def stage_of(spectra, simulated=None, structures=None, **data):
    return EncoderStage(
        spectra,
        simulated,
        replace(SETTINGS, data=replace(SETTINGS.data, **data)),
        (0, 1),
        structures,
    )


def of_folds(path, *folds):
    return made_spectra(path, *(row for row in SPECTRA if row[-1] in folds))


def test_a_drawn_group_is_of_one_ion_of_one_molecule_of_the_fold(spectra, monkeypatch):
    sampler, generator = module.SpectrumSampler(spectra), np.random.default_rng(1)
    seen = set()

    for draw in range(300):
        place = draw % len(sampler.molecules)
        molecule, numbers = sampler.draw_from(place, generator)
        seen |= set(numbers)
        ions = {(int(spectra.molecule[n]), int(spectra.adduct[n])) for n in numbers}
        assert [of for of, _ in ions] == [molecule] == [sampler.molecules[place]]
        assert len(set(numbers)) == len(numbers)

    assert seen == {number for number, row in enumerate(SPECTRA) if row[-1] == "train"}
    assert {len(sampler.draw_from(0, generator)[1]) for _ in range(50)} == {1, 2}
    monkeypatch.setattr(module, "_MERGED", 0)
    assert {len(sampler.draw_from(0, generator)[1]) for _ in range(50)} == {1}
    drawn = [int(spectra.molecule[group[0]]) for group in sampler.groups(60, generator)]
    assert min(drawn.count(int(molecule)) for molecule in sampler.molecules) > 10


@pytest.mark.parametrize(
    ("share", "measured_from", "step", "dropout", "n_simulated", "expected"),
    [
        (0.5, 0.0, 0, None, 3, 0.4),
        (0.33, 0.0, 0, 0.1, 2, 0.1),
        (0.0, 0.0, 0, None, 0, 0.4),
        (1.0, 0.0, 0, None, 6, 0.4),
        (0.5, 0.25, 1, None, 6, 0.4),  # measured ones come after a share of the steps
        (0.5, 0.25, 2, 0.1, 3, 0.1),
    ],
)
def test_an_encoder_batch_holds_measured_and_simulated_spectra(
    spectra, simulated, share, measured_from, step, dropout, n_simulated, expected, monkeypatch
):
    data = {"simulated_share": share, "simulated_dropout": dropout, "measured_from": measured_from}
    stage = stage_of(spectra, simulated, **data)
    assert stage.collate(None, step).n_samples == 6
    monkeypatch.setattr(module, "packed_batch", lambda sources, _: sources)

    sources = stage.collate(None, step).spectra

    held = [(own, len(groups), dropout) for own, groups, dropout in sources]
    assert held == [(spectra, 6 - n_simulated, 0.4), (simulated, n_simulated, expected)]


def test_runs_of_any_seed_are_looked_at_by_the_same_spectra_if_there_are_any(
    model, monkeypatch, tmp_path
):
    monkeypatch.setattr(module, "_VALIDATION_SPECTRA", 1)
    train, val = SPECTRA[0], SPECTRA[5]
    spectra = made_spectra(tmp_path / "spectra", train, val, (*val[:3], "40", "val"))

    stages = (EncoderStage(spectra, None, replace(SETTINGS, seed=seed)) for seed in range(20))

    assert len({tuple(stage.validation) for stage in stages}) == 1
    assert stage_of(of_folds(tmp_path / "train", "train")).validate(model) == {}


def test_without_spectra_to_train_on_it_says_so(spectra, tmp_path):
    unlabelled = of_folds(tmp_path / "s", "val", "test")
    for given in ((unlabelled, None), (spectra, unlabelled)):
        with pytest.raises(UnreadableError, match="no spectrum of fold train"):
            stage_of(*given)


def test_figures_are_those_of_the_threshold_that_serves_best():
    truth = torch.zeros(2, 4096)
    truth[:, [1, 5, 9]] = 1
    probability = truth * 0.32 + 0.01
    probability[0, 20] = 0.28

    figures = module.fingerprint_figures(probability, truth)

    entropy = [3 * np.log(0.33) + n * np.log(0.99) for n in (4092, 4093)]
    common, guessed = 0.99, np.array([0.99 + 40.92 + 0.28, 0.99 + 40.93])
    assert figures == pytest.approx({
        "fp_bce": -(sum(entropy) + np.log(0.72)) / 2, "fp_tanimoto": 1, "fp_threshold": 0.3,
        "fp_soft": (common / (guessed + 3 - common)).mean(),
    }, rel=1e-4)  # fmt: skip


def test_isomers_have_the_formula_and_are_other_molecules(structures):
    known, rows = module.Isomers(structures), np.array([0, 4, 6, 0])

    for most in (1, 2, 3, 50):
        own = structures.atom_counts[rows], structures.inchikey[rows]
        isomer, owner = known.draw(*own, most, np.random.default_rng(most))

        assert (structures.atom_counts[isomer] == structures.atom_counts[rows][owner]).all()
        assert (isomer.numpy() != rows[owner]).all()
        assert (torch.bincount(owner, minlength=4) <= most).all()
        assert len(set(zip(owner.tolist(), isomer.tolist(), strict=True))) == len(owner)
        assert owner.tolist() == sorted(owner.tolist())
    pairs = sorted(zip(owner.tolist(), isomer.tolist(), strict=True))
    assert pairs == [(0, 1), (0, 2), (0, 3), (1, 5), (3, 1), (3, 2), (3, 3)]  # ethanol has none


def test_sums_are_of_the_bits_of_each_isomer_and_the_entropy_that_of_a_softmax(structures):
    logits, isomer, owner = torch.randn(2, 4096), torch.tensor([2, 5, 0]), torch.tensor([0, 0, 1])

    sums = module.Isomers(structures).sums(logits, isomer, owner)

    bits = [structures.bits_of(np.array([row]))[1].astype(np.int64) for row in isomer.tolist()]
    expected = [logits[b, own].sum() for b, own in zip(owner.tolist(), bits, strict=True)]
    torch.testing.assert_close(sums, torch.stack(expected), atol=1e-4, rtol=1e-5)
    summed = module.isomer_entropy(
        torch.tensor([30.0, -900, 4]), torch.tensor([10.0, 50, 1000]), owner
    )
    cases = ([30.0, 10, 50], [-900.0, 1000], [4.0])  # the truth first
    expected = -sum(float((0.14 * torch.tensor(case)).log_softmax(0)[0]) for case in cases)
    assert float(summed) == pytest.approx(expected)


def test_learning_to_tell_isomers_apart_puts_the_truth_before_them(
    spectra, structures, model, monkeypatch
):
    monkeypatch.setattr(module, "_OF_ISOMERS", 1e4)  # next to nothing else
    stage, plain = stage_of(spectra, structures=structures), stage_of(spectra)
    batch = stage.collate(None, 3)
    assert (len(batch.isomer) > 0, len(plain.collate(None, 3).isomer)) == (True, 0)

    def entropy():
        summed, bits = stage.loss(model, batch)
        return summed / bits - plain.loss(model, batch)[0] / bits

    before = entropy()
    optimiser = torch.optim.SGD(model.encoder.fingerprint.parameters(), lr=1e-5)
    before.backward()
    optimiser.step()

    assert float(entropy().detach()) < float(before.detach())
    assert 0 <= stage.validate(model)["isomers_first"] <= 1
    assert "isomers_first" not in plain.validate(model)
    assert stage_of(spectra, structures=structures, isomers=0).isomers is None


def test_an_encoder_learns_to_tell_molecules_from_decoys_by_their_peaks(tmp_path, monkeypatch):
    """Chance would put 3 of 8 first; the encoder itself is left as it was."""
    esters = made_spectra(
        tmp_path / "e", *((one, "[M+H]+", peak, "20", "train") for one, peak in ESTERS.items())
    )
    rates = replace(module._CONTRAST_RATES, learning_rate=3e-3)
    for name, value in {"_CONTRASTED": 16, "_CONTRAST_RATES": rates, "_DROPOUT": 0.0}.items():
        monkeypatch.setattr(module, name, value)
    torch.manual_seed(1)
    encoder = FormulaTransformer(EncoderSettings(layers=3, width=32, heads=2, summary=32)).eval()
    encoder.peak_out.weight.data *= 30  # a trained one tells peaks apart
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    keys, told = esters.molecules.inchikey.astype(str).tolist(), []
    smiles = {
        keys.index(inchikey_block(parse_smiles(one))): [
            one, *(two for two in ESTERS if len(two) == len(one) and two != one)
        ]
        for one in ESTERS
    }  # fmt: skip
    decoys, alone = (made_decoys(own, len(keys)) for own in (smiles, {0: smiles[0][:1], 1: ()}))

    tensors, record = module.fit_isomer_encoder(encoder, esters, decoys, 1, told.append, steps=150)

    assert (record["contrasted"], told) == (150 * 16, [1] * 150)
    assert record["first_of_isomers"] > 0.9
    assert all(torch.equal(before[name], one) for name, one in encoder.state_dict().items())
    assert not [name for name in tensors if name.startswith(("layers.0", "peak_in"))]
    encoder.load_state_dict(before | tensors)
    rows = esters.molecule.tolist()
    with torch.no_grad():
        said = encoder(prepared_batch(esters, range(len(rows))))
    for score, row in zip(said, rows, strict=True):
        bits = [decoys.molecules.bits_of(np.array([decoy]))[1] for decoy in decoys.rows(row)]
        itself, *others = (float(score[own].sum()) for own in bits)
        assert itself > max(others)
    assert module.fit_isomer_encoder(encoder, esters, alone) == ({}, {})
