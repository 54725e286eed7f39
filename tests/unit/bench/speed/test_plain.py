"""The plain path is the fast one's specification: the same parameters give the same numbers."""

from dataclasses import replace

import pytest
import torch

from duallgd_cli.bench.speed.cells import Cell, Subject
from duallgd_cli.bench.speed.default_jobs import DefaultJobs
from duallgd_cli.bench.speed.networks import fill_at_random
from duallgd_cli.bench.speed.plain import PlainDenoiser
from duallgd_cli.bench.speed.plain_reference import PlainReferenceDenoiser, relaxed_hops
from duallgd_cli.bench.speed.reference_jobs import ReferenceJobs
from duallgd_cli.reference.denoiser import build
from duallgd_cli.reference.kernels import draw_projection
from duallgd_cli.reference.settings import ReferenceDenoiserSettings, ReferenceSettings
from duallgd_cli.reference.structure import hops
from duallgd_cli.runtime import Runtime
from tests.made_graphs import small_settings, stirred

CPU = Runtime(torch.device("cpu"), None, compile=False, threads=1)
SMALL = ReferenceDenoiserSettings(
    layers=2, condition_width=40, atom_width=24, edge_width=16, global_width=20, atom_hidden=12,
    edge_hidden=12, global_hidden=16, atom_feed=12, edge_feed=12, global_feed=12, pair_feed=12,
    heads=4, n_features=20,
)  # fmt: skip


def default_jobs(kernel):
    features = {"favor": 8, "softmax": 0}[kernel]
    return DefaultJobs(stirred(small_settings(pair_features=features)), CPU)


def reference_jobs(kernel):
    name = {"favor": "positive", "softmax": "softmax"}[kernel]
    settings = ReferenceSettings(denoiser=replace(SMALL, kernel=name))
    network = build(settings.denoiser).eval()
    fill_at_random(network, network.readout.outer, 3)
    for buffer_name, buffer in network.named_buffers():
        if buffer_name.endswith("projection"):
            buffer.copy_(draw_projection(*buffer.shape, torch.Generator().manual_seed(1)))
    return ReferenceJobs(network, settings, CPU)


@pytest.mark.parametrize("kernel", ["softmax", "favor"])
@pytest.mark.parametrize("part", ["attention", "forward", "loop"])
@pytest.mark.parametrize("jobs_of", [default_jobs, reference_jobs])
def test_both_paths_give_the_same_numbers(jobs_of, part, kernel):
    jobs = jobs_of(kernel)
    cell = Cell(Subject(), part, kernel, "plain", 9, samples=2, steps=3 if part == "loop" else 1)

    with torch.inference_mode():
        plain = getattr(jobs, part)(cell).run()
        fast = getattr(jobs, part)(replace(cell, path="fast")).run()

    torch.testing.assert_close(fast, plain, atol=2e-5, rtol=1e-5)
    assert plain.float().std() > 0


@pytest.mark.parametrize("jobs_of", [default_jobs, reference_jobs])
def test_the_plain_network_shares_all_parameters_and_leaves_the_fast_one_alone(jobs_of):
    fast = jobs_of("favor").model
    fast = getattr(fast, "denoiser", fast)
    kinds = [type(module) for module in fast.modules()]

    plain = (PlainDenoiser if jobs_of is default_jobs else PlainReferenceDenoiser)(fast)

    own = {id(parameter) for parameter in fast.parameters()}
    assert own == {id(parameter) for parameter in plain.parameters()}
    assert kinds == [type(module) for module in fast.modules()]


def test_relaxed_distances_are_those_of_powers():
    generator = torch.Generator().manual_seed(2)
    adjacency = torch.rand(3, 14, 14, generator=generator).triu(1) > 0.9
    adjacency = adjacency | adjacency.transpose(1, 2)

    assert torch.equal(relaxed_hops(adjacency).long(), hops(adjacency.float()))


def test_random_weights_depend_on_the_seed_and_not_on_the_kernel():
    first, again, other = (reference_jobs(kernel).model for kernel in ("favor", "favor", "softmax"))

    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
        assert a.abs().max() > 0
