r"""Transitions of the marginal process: keep a bond class, or redraw it from the marginal.

.. math:: Q(\alpha) = \alpha I + (1 - \alpha) \mathbf{1} m^\top

The family is closed under products, so any stride is one matrix. Letters: B graphs, M pairs,
C bond classes.
"""

import torch
from torch import Tensor


def transition_matrix(alpha: Tensor, marginal: Tensor) -> Tensor:
    """Q(alpha), rows = from, columns = to.

    Args:
        alpha: Share of signal kept, any shape.
        marginal: Bond-class frequencies, (C,).

    Returns:
        The shape of alpha followed by (C, C); rows sum to 1.
    """
    alpha = alpha[..., None, None]
    eye = torch.eye(marginal.numel(), dtype=marginal.dtype, device=marginal.device)
    return alpha * eye + (1 - alpha) * marginal


def corrupt(clean: Tensor, alpha: Tensor, marginal: Tensor, uniform: Tensor) -> Tensor:
    """Draw noisy bond classes q(e_t | e_0) by inverse CDF.

    Args:
        clean: Clean classes, int64 (B, M).
        alpha: alpha_bar at each graph's step, (B,).
        marginal: (C,).
        uniform: Uniform numbers in [0, 1), (B, M).

    Returns:
        int64 (B, M).
    """
    keep = uniform < alpha[:, None]
    # What is left of the uniform number, stretched to [0, 1), draws the new class.
    rest = ((uniform - alpha[:, None]) / (1 - alpha[:, None]).clamp_min(1e-12)).clamp(0, 1)
    return torch.where(keep, clean, draw_classes(marginal.expand(*clean.shape, -1), rest))


def draw_classes(probability: Tensor, uniform: Tensor) -> Tensor:
    """Classes by inverse CDF, (..., C) and (...) to int64 (...)."""
    threshold = probability.cumsum(-1)[..., :-1]
    return (uniform.unsqueeze(-1) >= threshold).sum(-1)


def skipped_posterior(
    clean: Tensor, bond_t: Tensor, alpha_bar_s: Tensor, alpha_bar_t: Tensor, marginal: Tensor
) -> Tensor:
    r"""Distribution of the bond class at s, given the one at t > s (equations 10 and 11).

    .. math:: p(e_s \mid e_t) = \sum_{e_0} \hat p(e_0)\,
        \frac{q(e_t \mid e_s)\, q(e_s \mid e_0)}{q(e_t \mid e_0)}

    Exact for any stride t - s; the only approximation is ``clean``. Because
    q(e_s | e_0) = a_s [e_s = e_0] + (1 - a_s) m(e_s), the sum over e_0 needs no (C, C) matrix:
    it is q(e_t | e_s) (a_s w(e_s) + (1 - a_s) m(e_s) sum(w)) with w = clean / q(e_t | e_0).

    Args:
        clean: Predicted clean-bond probabilities, (B, M, C).
        bond_t: Bond classes at t, int64 (B, M).
        alpha_bar_s: Cumulative signal share at s, scalar or (B,), at least alpha_bar_t.
        alpha_bar_t: Cumulative signal share at t, scalar or (B,).
        marginal: Bond-class frequencies, (C,), all above 0.

    Returns:
        Probabilities, (B, M, C), each row summing to 1.
    """
    a_s = alpha_bar_s.reshape(-1, 1, 1)
    a_t = alpha_bar_t.reshape(-1, 1, 1)
    a_ts = (a_t / a_s.clamp_min(1e-12)).clamp(0, 1)
    here = torch.nn.functional.one_hot(bond_t, marginal.numel()).to(clean.dtype)
    noise_t = marginal[bond_t].unsqueeze(-1)  # (B, M, 1)
    weight = clean / (a_t * here + (1 - a_t) * noise_t)
    forward = a_ts * here + (1 - a_ts) * noise_t  # q(e_t | e_s) for every e_s
    mixed = forward * (a_s * weight + (1 - a_s) * marginal * weight.sum(-1, keepdim=True))
    return mixed / mixed.sum(-1, keepdim=True)
