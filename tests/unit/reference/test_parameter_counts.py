"""The parameter table of the reference network."""

import pytest

from duallgd_cli.reference.parameter_counts import ALL, count_beside, count_by_module
from duallgd_cli.reference.settings import ReferenceDenoiserSettings


def test_the_released_network_has_the_published_counts():
    rows = count_by_module()

    assert rows[ALL].parameters == 67_538_757
    assert rows["atom stream"].parameters == 40_384_000
    assert rows["global fusion"].parameters == 12_129_280
    for row in rows.values():
        if row.paper_millions is not None:
            assert row.parameters / 1e6 == pytest.approx(row.paper_millions, abs=0.025)


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
    rows = count_by_module(ReferenceDenoiserSettings(**changes))

    assert rows[ALL].parameters == count
    assert rows[ALL].paper_millions is None


def test_the_rows_add_up_to_all():
    rows = count_by_module()
    parts = [row.parameters for name, row in rows.items() if name != ALL]

    assert sum(parts) == rows[ALL].parameters


def test_the_parts_that_the_paper_does_not_count_have_the_released_sizes():
    assert count_beside() == {"encoder": 15_164_196, "projection": 8_390_656}
