"""What several processes share, without starting several."""

import torch

from duallgd_cli.train.distributed import Group, process_group


def test_what_no_rank_used_keeps_no_gradient(monkeypatch):
    """Else weight decay and momentum would move it, in several processes but not in one."""
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor: tensor.mul_(2))
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 1), "idle": torch.nn.Linear(2, 1)})
    model["used"](torch.ones(2)).backward()

    Group(0, 2).sum_gradients(model)

    assert model["used"].weight.grad.tolist() == [[2, 2]]
    assert model["used"].bias.grad.tolist() == [2]
    assert model["idle"].weight.grad is None


def test_a_group_of_one_sums_to_the_value_itself():
    with process_group(0, 1, "gloo") as group:
        assert group == Group()
        total, number = group.sum(torch.tensor(2.5), torch.tensor(4))

    assert (float(total), float(number)) == (2.5, 4)
