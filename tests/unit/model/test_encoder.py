"""The spectrum encoder: fit for padding, any batch and incomplete records."""

from dataclasses import replace

import numpy as np
import torch

from duallgd_cli.data.peaks import peak_batch
from duallgd_cli.model.encoder import FormulaTransformer, PeakBatch
from duallgd_cli.model.settings import EncoderSettings
from tests.made_graphs import made_peaks, some_rows

NEAR = {"atol": 1e-5, "rtol": 1e-5}


def encoder(**changes):
    torch.manual_seed(1)
    return FormulaTransformer(
        EncoderSettings(layers=2, width=16, heads=4, fingerprint_bits=64, **changes)
    ).eval()


def test_a_spectrum_in_a_batch_has_the_logits_it_has_alone_its_peaks_in_any_order():
    net, spectra = encoder(), [made_peaks(n, seed=n) for n in (0, 1, 4, 17, 30)]

    together = net(peak_batch(spectra))

    assert together.isfinite().all()
    for row, spectrum in enumerate(spectra):
        turned = some_rows(spectrum, np.random.default_rng(5).permutation(len(spectrum.carrier)))
        torch.testing.assert_close(together[row], net(peak_batch([turned]))[0], **NEAR)


def test_many_spectra_have_the_logits_and_gradients_of_one_padded_batch(monkeypatch):
    net = encoder(dropout=0.0).train()
    batch = peak_batch([made_peaks(n % 23, seed=n) for n in range(40)])

    def gradients():
        net.zero_grad()
        logits = net(batch)
        (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
        return logits.detach(), [p.grad for p in net.parameters()]

    logits, parts = gradients()
    monkeypatch.setattr(PeakBatch, "by_length", lambda own, _: [(torch.arange(40), own)])
    expected, whole = gradients()

    torch.testing.assert_close(logits, expected, **NEAR)
    torch.testing.assert_close(parts, whole, atol=1e-4, rtol=1e-4)


def test_the_formula_and_a_missing_energy_are_told_and_gradients_are_finite():
    net, known, empty = encoder(), made_peaks(4), made_peaks(0)
    missing, zero = known.numbers.copy(), known.numbers.copy()
    missing[:, 4], zero[:, 4] = np.nan, 0

    without = net(peak_batch([replace(known, numbers=missing), empty]))
    without.sum().backward()

    others = [replace(known, numbers=zero), replace(empty, parent=empty.parent + 1)]
    assert without.isfinite().all()
    assert ((without - net(peak_batch(others))).abs().max(1).values > 1e-4).all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())
