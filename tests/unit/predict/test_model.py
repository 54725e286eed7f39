from dataclasses import replace

import pytest

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.pipeline import noise_seed
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.spectra.types import Feature, Hypothesis
from tests.made_spectra import made_spectrum
from tests.stub_model import stub_model


def spectrum(mz=(50.0, 80.5), intensity=(0.5, 1.0), **fields):
    return made_spectrum(mz, intensity, **fields)


def seed(*spectra, seed=7, formula="C9H8O4", adduct="[M+H]+"):
    feature = Feature(spectra or (spectrum(),))
    return noise_seed(seed, Hypothesis(feature, Formula.parse(formula), parse_adduct(adduct)))


def test_the_noise_seed_is_of_peaks_formula_adduct_and_seed_alone_on_every_machine():
    other = spectrum((51.0, 80.5))
    elsewhere = spectrum(
        file="b.mzML", index=9, spectrum_id="two", metadata={"smiles": "CCO"}, scans="4"
    )

    moved = [
        seed(),
        seed(seed=8),
        seed(spectrum((50.0, 80.6))),
        seed(spectrum(intensity=(0.4, 1.0))),
        seed(spectrum(), spectrum()),
        seed(formula="C8H4O5"),
        seed(adduct="[M+Na]+"),
    ]

    assert seed() == 5590671863254926084
    assert seed(spectrum(), other) == seed(other, elsewhere)
    assert len(set(moved)) == len(moved)
    assert all(0 <= one < 2**63 for one in moved)


ANALOGUES, DATABASE = GuideFiles(analogues=("mine.smi",)), GuideFiles(databases=("all.smi",))
CALIBRATED = RankingModel(n_spectra=500, most_samples=300, least_steps=1, most_steps=50)
WITH_DATABASE = {"database": CALIBRATED}
ALIKE = "for a core, parts or analogues that are known"
ALONE = {"database_share": 1.0}
IN_IT = "for the case that the structure is in the database"
OF_DATABASE = "not calibrated for structures of a database:"


@pytest.mark.parametrize(
    ("model", "sampling", "files", "words"),
    [
        ({}, {}, None, []),
        ({}, {}, ANALOGUES, [ALIKE]),
        ({}, {"steps": 1, "samples": 1}, None, []),
        ({}, {"steps": 50, "samples": 300}, None, []),
        ({}, {"samples": 301}, None, ["(but 1 to 300 samples and 1 to 50 steps)"]),
        ({}, {"steps": 51}, None, ["not calibrated for 100 samples and 51 steps"]),
        ({}, {"steps": 51, "sources": "noise=1"}, None, ["steps) and sources noise=1:"]),
        ({}, {"core": "CCO"}, None, [ALIKE]),
        ({"ranking": RankingModel()}, {}, None, ["never fitted"]),
        (WITH_DATABASE, ALONE | {"samples": 301, "steps": 51}, DATABASE, [IN_IT]),
        (WITH_DATABASE, ALONE | {"core": "CCO"}, DATABASE, [IN_IT, ALIKE]),
        ({}, ALONE, DATABASE, [IN_IT, OF_DATABASE]),
        (WITH_DATABASE, {}, DATABASE, []),
        (WITH_DATABASE, {"samples": 301}, DATABASE, ["(but 1 to 300 samples"]),
        ({}, {}, DATABASE, [OF_DATABASE]),
    ],
)
def test_confidence_outside_what_was_calibrated_is_warned_of(model, sampling, files, words, caplog):
    settings = PredictSettings(sampling=SamplingSettings(**sampling))

    replace(stub_model(), **{"ranking": CALIBRATED} | model).ranking_for(settings, files)

    assert len(caplog.records) == len(words)
    for word, record in zip(words, caplog.records, strict=True):
        assert word in record.getMessage()
