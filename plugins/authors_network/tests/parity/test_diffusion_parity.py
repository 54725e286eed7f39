"""Noise schedule, transitions, posteriors and plans against the reference's own numbers."""

import pytest
import torch
from torch.nn.functional import one_hot
from torch.testing import assert_close

from duallgd_authors_network.generator import evenly_spaced
from duallgd_cli.diffusion.sampler import alpha_bar, skipped_posterior
from tests.made_graphs import transition_matrix

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def tables(parity):
    return parity.arrays("diffusion.npz")


def test_the_schedule_and_its_steps_are_the_reference_s(tables):
    ours, betas = (
        alpha_bar(len(tables["alphas_bar"]) - 1),
        tables["betas"].double().clamp(0, 0.9999),
    )

    assert_close(ours, tables["alphas_bar"], atol=1e-6, rtol=0)
    assert_close(1 - ours[1:] / ours[:-1], betas[1:].float(), atol=2e-5, rtol=0)
    assert_close(1 - ours[0], betas[0].float(), atol=1e-6, rtol=0)


def test_transition_matrices_are_the_reference_s(tables):
    marginal = tables["edge_marginals"]
    share = tables["alphas_bar"]
    s, t = tables["pairs_s_t"].unbind(1)

    jump = (share[t] / share[s].clamp_min(1e-12)).clamp(0, 1)

    assert_close(transition_matrix(share[s], marginal), tables["Qbar_s"], atol=1e-6, rtol=0)
    assert_close(transition_matrix(share[t], marginal), tables["Qbar_t"], atol=1e-6, rtol=0)
    assert_close(transition_matrix(jump, marginal), tables["Q_t_given_s"], atol=1e-6, rtol=0)


# The posteriors take the stored signal shares: between steps 1 and 2 one float32 unit in a share
# moves a posterior by 1e-4, in the reference as in ours.
def test_posteriors_given_the_clean_bond_and_the_model_s_are_the_reference_s(tables):
    marginal, share = tables["edge_marginals"], tables["alphas_bar"]
    classes = marginal.numel()
    clean = one_hot(torch.arange(classes).repeat(classes), classes).float()
    noisy = torch.arange(classes).repeat_interleave(classes)
    probability = torch.softmax(tables["toy_logits"], -1)

    for row, (s, t) in enumerate(tables["pairs_s_t"].tolist()):
        # In the reference these rows sum to one only up to float32 rounding; ours do exactly.
        exact = tables["posterior"][row].flatten(0, 1)
        exact = exact / exact.sum(-1, keepdim=True)
        for chances, bonds, expected in (
            (clean, noisy, exact),
            (probability, tables["toy_e_t"], tables["toy_p_es"][row]),
        ):
            got = skipped_posterior(chances[None], bonds[None], share[s], share[t], marginal)
            assert_close(got[0], expected, atol=1e-5, rtol=0, msg=f"s={s} t={t}")


def test_sampling_plans_visit_the_reference_s_steps(parity):
    for name, visited in parity.json("sampling_plans.json").items():
        if name.isdecimal():
            assert list(evenly_spaced(visited[0], int(name))) == visited, name
