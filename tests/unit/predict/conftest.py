import pytest

from duallgd_cli.predict.run import predict
from tests.made_runs import request
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, NICOTINE, block, mgf
from tests.stub_model import stub_model

# Twelve features, among them a pair and every kind of trouble.
TWELVE = (
    block(ASPIRIN, feature_id="1", title="a"),
    block(CAFFEINE, feature_id="2", title="b"),
    block(ASPIRIN, mslevel="1"),
    block(ASPIRIN, scale=0.5, feature_id="1", title="a"),
    block(ALANINE, title="b"),
    block(NICOTINE, formula=None),
    block(NICOTINE, pepmass="200.0"),
    block(CAFFEINE, adduct="[M+Na]+"),
    block(CAFFEINE, adduct="[M+H]+", scale=2.0, ADDUCT="[2M+3K]+"),
    block(("C8H10N4O2", "C6H8N3O"), FORMULA="C8H10N4O2U"),
    "BEGIN IONS\nPEPMASS=195.0877\nFORMULA=C8H10N4O2\nADDUCT=[M+H]+\nEND IONS\n",
    block(NICOTINE, title=""),
    block(ALANINE, scale=3.0),
)


@pytest.fixture
def spectra(tmp_path):
    return mgf(tmp_path / "in.mgf", *TWELVE)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A run over them and what it said of itself; leave it alone."""
    folder = tmp_path_factory.mktemp("finished")
    made = mgf(folder / "in.mgf", *TWELVE)
    return predict(request(made, folder / "out.csv"), stub_model()), folder / "out.csv"
