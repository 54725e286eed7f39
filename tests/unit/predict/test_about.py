"""Facts about an installation."""

import torch

from duallgd_cli import __version__
from duallgd_cli.predict import about


def test_layers_of_a_stack_are_counted_together():
    network = torch.nn.Module()
    network.layers = torch.nn.ModuleList([torch.nn.Linear(3, 2) for _ in range(4)])
    network.readout = torch.nn.Linear(2, 1, bias=False)

    assert about.parameter_counts(network) == {"layers": 4 * 8, "readout": 2}


def test_a_shallower_count_adds_up_to_the_same():
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    outer = torch.nn.Module()
    outer.inner = network

    deep, shallow = about.parameter_counts(outer, depth=3), about.parameter_counts(outer, depth=1)

    assert sum(deep.values()) == sum(shallow.values()) == 8 + 3
    assert shallow == {"inner": 11}


def test_versions_name_what_results_depend_on():
    found = about.versions()

    assert found["duallgd"] == __version__
    assert found["torch"] == torch.__version__
    assert "absent" not in found.values()
