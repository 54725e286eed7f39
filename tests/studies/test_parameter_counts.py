"""Parameters of the authors' network are those that the paper and its checkpoints have."""

import pytest
from parameter_counts import count_beside, count_by_module, main

from duallgd_cli.reference.settings import (
    ReferenceDenoiserSettings,
    ReferenceEncoderSettings,
    ReferenceSettings,
)


def test_the_released_network_has_the_published_counts():
    rows = count_by_module()
    total, _ = rows["all"]

    assert total == 67_538_757
    assert rows["atom stream"] == (40_384_000, None)
    assert rows["global fusion"] == (12_129_280, 12.13)
    assert sum(count for count, _ in rows.values()) == 2 * total
    for count, paper_millions in rows.values():
        if paper_millions is not None:
            assert count / 1e6 == pytest.approx(paper_millions, abs=0.025)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"streams": "atoms", "readout": "edges"}, 65_753_349),
        ({"synchronisation": "none"}, 66_508_357),
        ({"synchronisation": "pairs"}, 66_714_437),
        ({"synchronisation": "atoms"}, 67_332_677),
        ({"global_feed": 2048}, 78_029_637),
        ({"kernel": "softmax"}, 67_538_757),
    ],
)
def test_ablations_have_the_published_counts(changes, count):
    assert count_by_module(ReferenceDenoiserSettings(**changes))["all"] == (count, None)


@pytest.mark.parametrize(
    ("width", "fragment_bits", "count"), [(256, 512, 15_164_196), (512, 2048, 23_364_644)]
)
def test_the_parts_that_the_paper_does_not_count_have_the_released_sizes(
    width, fragment_bits, count
):
    encoder = ReferenceEncoderSettings(width=width, fragment_bits=fragment_bits)

    found = count_beside(ReferenceSettings(encoder=encoder))

    assert found == {"encoder": count, "projection": 8_390_656}


def test_the_paper_s_figures_stand_beside_ours(study):
    done = study(main)

    assert done.code == 0, done.err
    assert "67,538,757" in done.out
    assert "67.56" in done.out
    assert "DiffMS: 53.18 million by the paper" in done.out
