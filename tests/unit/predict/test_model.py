from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.pipeline import noise_seed
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.spectra.types import Feature, Hypothesis, Source, Spectrum
from tests.stub_model import stub_model


def spectrum(mz=(50.0, 80.5), intensity=(0.5, 1.0), **fields):
    named = {"source": Source("a.mgf", 0), "spectrum_id": "one"} | fields
    return Spectrum(mz=np.array(mz), intensity=np.array(intensity), **named)


def hypothesis(*spectra, formula="C9H8O4", adduct="[M+H]+"):
    feature = Feature(spectra or (spectrum(),))
    return Hypothesis(feature, Formula.parse(formula), parse_adduct(adduct))


def test_the_noise_seed_is_the_same_on_every_machine():
    assert noise_seed(7, hypothesis()) == 5590671863254926084


def test_names_places_fields_and_the_order_of_spectra_do_not_move_the_noise():
    a, b = spectrum(), spectrum(mz=(51.0, 80.5))
    renamed = spectrum(
        source=Source("b.mzML", 9), spectrum_id="two", metadata={"smiles": "CCO"}, scans="4"
    )

    assert noise_seed(7, hypothesis(a, b)) == noise_seed(7, hypothesis(b, renamed))


def test_seed_peaks_formula_and_adduct_move_the_noise():
    seeds = [
        noise_seed(7, hypothesis()),
        noise_seed(8, hypothesis()),
        noise_seed(7, hypothesis(spectrum(mz=(50.0, 80.6)))),
        noise_seed(7, hypothesis(spectrum(intensity=(0.4, 1.0)))),
        noise_seed(7, hypothesis(spectrum(), spectrum())),
        noise_seed(7, hypothesis(formula="C8H4O5")),
        noise_seed(7, hypothesis(adduct="[M+Na]+")),
    ]

    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


ANALOGUES, DATABASE = GuideFiles(analogues=("mine.smi",)), GuideFiles(databases=("all.smi",))
CALIBRATED = RankingModel(n_spectra=500, most_samples=300, least_steps=1, most_steps=50)
ALIKE = "for a core, parts or analogues that are known"
ALONE = {"database_share": 1.0}
IN_IT = "for the case that the structure is in the database"


@pytest.mark.parametrize(
    ("model", "sampling", "files", "words"),
    [
        ({}, {}, None, []),
        ({}, {}, ANALOGUES, [ALIKE]),
        ({}, {"steps": 1, "samples": 1}, None, []),
        ({}, {"samples": 301}, None, ["(but 1 to 300 samples and 1 to 50 steps)"]),
        ({}, {"steps": 51}, None, ["not calibrated for 100 samples and 51 steps"]),
        ({}, {"steps": 51, "sources": "noise=1"}, None, ["steps) and sources noise=1:"]),
        ({}, {"core": "CCO"}, None, [ALIKE]),
        ({"ranking": RankingModel()}, {}, None, ["never fitted"]),
        ({"database": CALIBRATED}, ALONE | {"samples": 301, "steps": 51}, DATABASE, [IN_IT]),
        ({"database": CALIBRATED}, ALONE | {"core": "CCO"}, DATABASE, [IN_IT, ALIKE]),
        ({}, ALONE, DATABASE, [IN_IT, "not calibrated for structures of a database:"]),
        ({"database": CALIBRATED}, {}, DATABASE, []),
        ({"database": CALIBRATED}, {"samples": 301}, DATABASE, ["(but 1 to 300 samples"]),
        ({}, {}, DATABASE, ["not calibrated for structures of a database:"]),
    ],
)
def test_confidence_outside_what_was_calibrated_is_warned_of(model, sampling, files, words, caplog):
    settings = PredictSettings(sampling=SamplingSettings(**sampling))

    replace(stub_model(), **{"ranking": CALIBRATED} | model).ranking_for(settings, files)

    assert len(caplog.records) == len(words)
    for word, record in zip(words, caplog.records, strict=True):
        assert word in record.getMessage()
