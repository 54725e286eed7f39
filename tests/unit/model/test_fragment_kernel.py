"""Known molecules with like spectra: ridge regression by the textbook, and what weights keep."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.peaks import peak_batch
from duallgd_cli.errors import WeightsError
from duallgd_cli.model import fragment_kernel
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.fragment_kernel import (
    N_PLACES,
    UNMIXED,
    FragmentKernel,
    fitted_mixing,
    mixed,
    places,
)
from duallgd_cli.model.settings import EncoderSettings
from duallgd_cli.sources.collection import known_molecules
from duallgd_cli.train import kernel_fit as module
from duallgd_cli.train.kernel_fit import fit_kernel, known_spectra
from tests.made_graphs import made_peaks, some_rows
from tests.made_prepared import SPECTRA, made_spectra

BITS = [[1, 5, 9], [1, 6], [2, 5, 4095], [3]]


def known(*spectra, **changes):
    """The arrays of a weights file, each molecule with one spectrum."""
    own = [places(peak_batch([one])) for one in spectra]
    return {
        "n_places": torch.tensor([place.shape[1] for place, _ in own]),
        "place": torch.cat([place[0] for place, _ in own]),
        "weight": torch.cat([weight[0] for _, weight in own]),
        "mixing": UNMIXED,
    } | changes


def kernel_of(tensors):
    offset = np.cumsum([0, *map(len, BITS)])
    return FragmentKernel.of(tensors, offset, np.concatenate(BITS).astype(np.uint16))


KNOWN = [made_peaks(6, seed) for seed in range(4)]


def literal(query):
    """Chances by a dense kernel matrix and a solver, weights from the definition of tf-idf."""
    vectors = np.zeros((5, N_PLACES))
    for row, one in enumerate([*KNOWN, query]):
        place, weight = places(peak_batch([one]))
        np.add.at(vectors[row], place[0].numpy(), weight[0].numpy())
    vectors *= np.sqrt(np.log(5 / ((vectors[:4] > 0).sum(0) + 1)))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    truth = np.zeros((4, FINGERPRINT_BITS))
    for row, bits in enumerate(BITS):
        truth[row, bits] = 1
    kernel = vectors[:4] @ vectors[:4].T + 0.5 * np.eye(4)
    mean = truth.mean(0)
    found = mean + vectors[4] @ vectors[:4].T @ np.linalg.solve(kernel, truth - mean)
    return found.clip(0.003, 0.97)


def test_chances_are_those_of_ridge_regression():
    kernel = kernel_of(known(*KNOWN))
    query = some_rows(KNOWN[2], [0, 3, 4])

    (found,) = kernel.chance(peak_batch([query])).numpy()

    np.testing.assert_allclose(found, literal(query), atol=1e-5)
    assert found[[2, 4095]].min() > found[[3, 6, 9]].max()  # it is the third molecule's


def test_rows_come_in_any_order_and_spectra_beside_any_others():
    kernel = kernel_of(known(*KNOWN))
    query = made_peaks(12, 9)
    turned = some_rows(query, np.arange(12)[::-1].copy())

    alone = kernel.chance(peak_batch([query]))
    beside = kernel.chance(peak_batch([KNOWN[0], turned]))

    torch.testing.assert_close(beside[1:], alone, atol=1e-6, rtol=1e-5)


def test_what_shares_nothing_with_known_molecules_gets_their_mean():
    kernel = kernel_of(known(*KNOWN))
    none = some_rows(made_peaks(6, 77), [])

    (found,) = kernel.chance(peak_batch([none]))

    torch.testing.assert_close(found, kernel.mean.clamp(0.003, 0.97))


def test_isomers_of_a_fragment_meet_and_its_loss_is_another_place():
    place, weight = places(peak_batch([some_rows(KNOWN[0], [1]), some_rows(KNOWN[0], [1, 2])]))

    assert place[weight > 0].unique().numel() == 4  # two fragments, two losses
    assert ((place >= 0) & (place < N_PLACES)).all()
    assert (weight > 0).sum(1).tolist() == [2, 4]


def test_the_encoder_alone_is_unmixed_and_a_fit_is_never_worse():
    torch.manual_seed(1)
    truth = (torch.rand(20, 50) < 0.3).float()
    logits = 3 * truth - 2 + torch.randn(20, 50)
    chance = (0.5 * truth + 0.5 * torch.rand(20, 50)).clamp(0.01, 0.97)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits

    mixing = fitted_mixing(logits, chance, truth)

    assert torch.equal(mixed(UNMIXED, logits, chance), logits)
    either = entropy(logits, truth), entropy(torch.logit(chance), truth)
    assert entropy(mixed(mixing, logits, chance), truth) < min(either)


def test_a_fit_of_what_is_told_perfectly_stays_finite():
    truth = torch.eye(4)

    mixing = fitted_mixing(20 * truth - 10, (0.96 * truth + 0.01), truth)

    assert mixing.abs().max() < 1_000


def test_the_rounds_are_enough(monkeypatch):
    kernel, batch = (
        kernel_of(known(*KNOWN)),
        peak_batch([made_peaks(20, seed) for seed in range(9)]),
    )

    usual = kernel.chance(batch)
    monkeypatch.setattr(fragment_kernel, "_ROUNDS", 200)

    torch.testing.assert_close(kernel.chance(batch), usual, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    "change",
    [
        {"n_places": torch.tensor([1, 2])},
        {"n_places": torch.tensor([12, 12, 12, 13])},
        {"place": torch.full((48,), N_PLACES)},
        {"place": torch.full((48,), -1)},
        {"place": torch.full((48,), 0.5)},
        {"weight": torch.zeros(48)},
        {"mixing": torch.zeros(2)},
        {"weight": None},
    ],
)
def test_broken_and_missing_arrays_are_refused(change):
    tensors = {name: one for name, one in known(*KNOWN, **change).items() if one is not None}

    with pytest.raises(WeightsError, match="the spectra of known molecules in the weights"):
        kernel_of(tensors)


TRAIN = tuple(row for row in SPECTRA if row[-1] == "train")


def kept(path, *rows):
    spectra = made_spectra(path, *rows)
    known = known_molecules(spectra.molecules, 100).molecules
    return known_spectra(spectra, known), known, spectra


def test_nothing_of_folds_val_and_test_is_kept(tmp_path):
    every, _, _ = kept(tmp_path / "every")
    train, _, _ = kept(tmp_path / "train", *TRAIN)

    assert every.keys() == {"n_places", "place", "weight"}
    for name, tensor in train.items():
        assert torch.equal(every[name], tensor), name


def test_each_fragment_and_loss_of_a_molecule_is_kept_once(tmp_path):
    tensors, known, _ = kept(tmp_path / "spectra")

    start = 0
    for n_places in tensors["n_places"].tolist():
        own = tensors["place"][start : start + n_places]
        assert len(own.unique()) == n_places > 0
        start += n_places
    assert start == len(tensors["weight"])
    assert len(known) == len(tensors["n_places"]) == 3


def test_a_fragment_of_two_spectra_is_kept_at_its_brightest(tmp_path):
    one, _, _ = kept(tmp_path / "one", TRAIN[1])
    both, _, _ = kept(tmp_path / "both", TRAIN[1], (*TRAIN[1][:3], "60", "train"))

    assert torch.equal(one["place"], both["place"])
    assert torch.equal(one["weight"], both["weight"])


def test_only_the_most_telling_are_kept(tmp_path, monkeypatch):
    whole, _, _ = kept(tmp_path / "whole")
    monkeypatch.setattr(module, "_KEPT", 2)
    short, _, _ = kept(tmp_path / "short")

    assert short["n_places"].tolist() == [2, 2, 2]
    assert set(short["place"].tolist()) < set(whole["place"].tolist())


@pytest.mark.parametrize("rows", [SPECTRA, TRAIN])
def test_without_fold_val_the_encoder_stays_alone(tmp_path, rows):
    _, known, spectra = kept(tmp_path / "spectra", *rows)
    torch.manual_seed(1)
    encoder = FormulaTransformer(EncoderSettings(layers=1, width=16, heads=4)).eval()

    mixing = fit_kernel(encoder, spectra, known)["mixing"]

    assert torch.equal(mixing, UNMIXED) == (rows is TRAIN)
    assert mixing.isfinite().all()
