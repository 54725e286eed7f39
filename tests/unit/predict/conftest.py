import pytest

from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, NICOTINE, block, mgf


@pytest.fixture
def spectra(tmp_path):
    """Twelve features, among them a pair and every kind of trouble."""
    return mgf(
        tmp_path / "in.mgf",
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
