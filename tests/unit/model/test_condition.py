import torch

from duallgd_cli.model.duallgd import MIN_PROBABILITY, keep_bits


def test_the_most_probable_bits_are_kept_and_improbable_ones_shut_out():
    probability = torch.tensor([[0.1, 0.9, 0.0, 0.5], [0.3, 0.2, 0.25, 0.01]])
    low = torch.tensor([[0.5, MIN_PROBABILITY, MIN_PROBABILITY * 0.99, 0.0]])

    bit, log_prob = keep_bits(probability, 2)
    every, shut = keep_bits(low, 10)

    assert bit.tolist() == [[1, 3], [0, 2]]
    torch.testing.assert_close(log_prob.exp(), torch.tensor([[0.9, 0.5], [0.3, 0.25]]))
    assert every.shape == (1, 4)
    assert shut[0].isfinite().tolist() == [True, True, False, False]


def test_gradients_of_kept_bits_are_finite():
    probability = torch.tensor([[0.5, 0.0, 1.0, 0.02]], requires_grad=True)

    _, log_prob = keep_bits(probability, 4)
    log_prob.exp().sum().backward()

    assert probability.grad.isfinite().all()
    assert probability.grad[0, 1] == 0
