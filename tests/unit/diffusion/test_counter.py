import pytest
import torch

from duallgd_cli.diffusion import stream_key, uniform

CPU = torch.device("cpu")
WORD = (1 << 64) - 1


def written_out(key, index):
    """SplitMix64 in Python's integers: the number after `index` steps, its upper 24 bits."""
    word = (key + (index + 1) * 0x9E3779B97F4A7C15) & WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return ((word ^ (word >> 31)) >> 40) / (1 << 24)


@pytest.mark.parametrize("key", [0, 5, 1 << 63, WORD])
def test_numbers_are_those_of_splitmix64(key):
    assert uniform(key, 0, 300, CPU).tolist() == [written_out(key, i) for i in range(300)]


def test_the_published_sequence_of_seed_1234567():
    """The first outputs in the reference implementation, cut to 24 bits."""
    published = (6457827717110365317, 3203168211198807973, 9817491932198370423)

    assert uniform(1234567, 0, 3, CPU).tolist() == [(word >> 40) / (1 << 24) for word in published]


def test_a_part_of_a_stream_is_that_part():
    whole = uniform(9, 0, 100, CPU)

    assert torch.equal(uniform(9, 40, 70, CPU), whole[40:70])
    assert uniform(9, 40, 40, CPU).shape == (0,)


def test_neighbouring_streams_are_not_correlated():
    seeds = [torch.stack([uniform(stream_key(s, e), 0, 4000, CPU) for e in (0, 1)]) for s in (0, 1)]

    between = torch.corrcoef(torch.cat(seeds).double()).fill_diagonal_(0)
    assert between.abs().max() < 5 / 4000**0.5
