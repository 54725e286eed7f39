"""Known molecules with like spectra: ridge regression by the textbook, and what weights keep."""

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as entropy

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.errors import WeightsError
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
from duallgd_cli.train import encoder as module
from duallgd_cli.train.encoder import fit_kernel, known_spectra
from tests.made_graphs import made_peaks, peak_batch, some_rows
from tests.made_prepared import SPECTRA, made_spectra

BITS = [[1, 5, 9], [1, 6], [2, 5, 4095], [3]]
KNOWN = [made_peaks(6, seed) for seed in range(4)]


def kernel_of(**changes):
    """A kernel of known molecules with one spectrum each, its arrays changed or left out."""
    place, weight, _ = zip(*(map(places, KNOWN)), strict=True)
    tensors = {
        "n_places": torch.tensor([len(part) for part in place]),
        "place": torch.cat(place),
        "weight": torch.cat(weight),
        "mixing": UNMIXED,
    } | changes
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    offset = np.cumsum([0, *map(len, BITS)])
    return FragmentKernel.of(tensors, offset, np.concatenate(BITS).astype(np.uint16))


def literal(query):
    """Chances by a dense kernel matrix and a solver, weights from the definition of tf-idf."""
    vectors, truth = np.zeros((5, N_PLACES)), np.zeros((4, FINGERPRINT_BITS))
    for row, one in enumerate([*KNOWN, query]):
        place, weight, _ = places(one)
        np.add.at(vectors[row], place.numpy(), weight.numpy())
    for row, bits in enumerate(BITS):
        truth[row, bits] = 1
    vectors *= np.sqrt(np.log(5 / ((vectors[:4] > 0).sum(0) + 1)))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kernel, mean = vectors[:4] @ vectors[:4].T + 0.5 * np.eye(4), truth.mean(0)
    found = mean + vectors[4] @ vectors[:4].T @ np.linalg.solve(kernel, truth - mean)
    return found.clip(0.003, 0.97)


def test_chances_are_those_of_ridge_regression_whatever_the_order_and_the_batch():
    kernel, query = kernel_of(), some_rows(KNOWN[2], [0, 3, 4])
    nothing = some_rows(made_peaks(6, 77), [])

    (alone,) = kernel.chance(query)
    both = kernel.chance(peak_batch([nothing, some_rows(query, [2, 0, 1])]))

    np.testing.assert_allclose(alone, literal(query), atol=1e-5)
    torch.testing.assert_close(both[1], alone, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(both[0], kernel.mean.clamp(0.003, 0.97))  # it shares nothing
    assert alone[[2, 4095]].min() > alone[[3, 6, 9]].max()  # it is the third molecule's


def test_isomers_of_a_fragment_meet_and_its_loss_is_another_place():
    one, two = some_rows(KNOWN[0], [1]), some_rows(KNOWN[0], [1, 2])
    place, weight, spectrum = places(peak_batch([one, two]))

    assert place.unique().numel() == 4  # two fragments, two losses
    assert ((place >= 0) & (place < N_PLACES)).all()
    assert (weight > 0).all()
    assert torch.bincount(spectrum).tolist() == [2, 4]


def test_the_encoder_alone_is_unmixed_and_a_fit_is_never_worse_and_stays_finite():
    torch.manual_seed(1)
    truth = (torch.rand(20, 50) < 0.3).float()
    logits = 3 * truth - 2 + torch.randn(20, 50)
    chance = (0.5 * truth + 0.5 * torch.rand(20, 50)).clamp(0.01, 0.97)

    mixing = fitted_mixing(logits, chance, truth)

    assert torch.equal(mixed(UNMIXED, logits, chance), logits)
    either = entropy(logits, truth), entropy(torch.logit(chance), truth)
    assert entropy(mixed(mixing, logits, chance), truth) < min(either)
    perfect = torch.eye(4)
    assert fitted_mixing(20 * perfect - 10, 0.96 * perfect + 0.01, perfect).abs().max() < 1_000


@pytest.mark.parametrize(
    "change",
    [
        {"n_places": torch.tensor([1, 2])}, {"n_places": torch.tensor([12, 12, 12, 13])},
        *({"place": torch.full((48,), value)} for value in (N_PLACES, -1, 0.5)),
        {"weight": torch.zeros(48)}, {"weight": None}, {"mixing": torch.zeros(2)},
    ],
)  # fmt: skip
def test_broken_and_missing_arrays_are_refused(change):
    with pytest.raises(WeightsError, match="the spectra of known molecules in the weights"):
        kernel_of(**change)


TRAIN = tuple(row for row in SPECTRA if row[-1] == "train")


def kept(path, *rows):
    spectra = made_spectra(path, *rows)
    known = known_molecules(spectra.molecules, 100).molecules
    return known_spectra(spectra, known), known, spectra


def test_each_fragment_and_loss_of_fold_train_is_kept_once(tmp_path, monkeypatch):
    every, known, _ = kept(tmp_path / "every")
    train, _, _ = kept(tmp_path / "train", *TRAIN)
    monkeypatch.setattr(module, "_KEPT", 2)  # the most telling
    short, _, _ = kept(tmp_path / "short")

    each = every["place"].split(every["n_places"].tolist())
    assert [len(own.unique()) for own in each] == every["n_places"].tolist()
    assert (len(known), min(map(len, each)) > 0) == (len(each), True) == (3, True)
    torch.testing.assert_close(every, train, rtol=0, atol=0)  # nothing of folds val and test
    assert every.keys() == {"n_places", "place", "weight"}
    assert short["n_places"].tolist() == [2, 2, 2]
    assert set(short["place"].tolist()) < set(every["place"].tolist())


@pytest.mark.parametrize("rows", [SPECTRA, TRAIN])
def test_without_fold_val_the_encoder_stays_alone(tmp_path, rows):
    _, known, spectra = kept(tmp_path / "spectra", *rows)
    torch.manual_seed(1)
    encoder = FormulaTransformer(EncoderSettings(layers=1, width=16, heads=4)).eval()

    mixing = fit_kernel(encoder, spectra, known)["mixing"]

    assert torch.equal(mixing, UNMIXED) == (rows is TRAIN)
    assert mixing.isfinite().all()
