"""Molecules that come with the weights: candidates like any others, unless they are excluded."""

from dataclasses import replace

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.sources.known import GuideFiles
from tests.made_runs import rows_of
from tests.made_spectra import CAFFEINE, block, mgf
from tests.stub_model import stub_model


@pytest.mark.parametrize("has_database", [False, True])
def test_where_all_are_known_the_row_says_so(tmp_path, monkeypatch, has_database):
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    made = str(mgf(tmp_path / "in.mgf", block(CAFFEINE)))
    (tmp_path / "all.smi").write_text("Cn1c(=O)c2c(ncn2C)n(C)c1=O\n")
    files = GuideFiles(databases=(str(tmp_path / "all.smi"),)) if has_database else None
    sampling = SamplingSettings(steps=1, samples=8, exclude_known=True)
    settings = PredictSettings(top_k=99, sampling=sampling)
    asked = PredictRequest((made,), str(tmp_path / "a.csv"), guide=files, settings=settings)
    predict(asked, stub_model())
    drawn = {row["inchikey14"] for row in rows_of(tmp_path / "a.csv")}
    model = replace(stub_model(), known=tuple(drawn))

    predict(replace(asked, output=str(tmp_path / "b.csv")), model)

    (row,) = rows_of(tmp_path / "b.csv")
    assert row["status"] == "no_candidate"
    said = "all found for C8H10N4O2 are known molecules; drop --exclude-known"
    assert row["message"] == said
