"""The one loop: what each hypothesis of each feature gives, in order."""

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.pipeline import by_feature, formula_source, results
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.features import Inputs
from tests.made_spectra import ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=2))


@pytest.fixture
def features(tmp_path):
    made = mgf(
        *(tmp_path / "in.mgf", block(ASPIRIN, feature_id="1"), block(CAFFEINE, feature_id="2")),
        block(CAFFEINE, formula=None),
    )
    table = tmp_path / "formulas.csv"
    table.write_text("id,formula\n1,C9H8O4\n1,C8H8N2O3\n2,C8H10N4O2\n")
    with Inputs((made,)) as inputs:
        yield list(enumerate(inputs.features("feature"))), formula_source(SETTINGS, table, 100)


def test_results_of_a_feature_come_together_in_order(features):
    items, source = features
    whole = list(by_feature(results(items, stub_model(), SETTINGS, source=source)))

    assert [together[0].feature for together in whole] == [0, 1, 2]
    for together in whole:
        assert [one.position for one in together] == [*range(together[0].of)]
