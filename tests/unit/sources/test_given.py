"""Candidates chosen from the user's structures instead of drawn."""

from dataclasses import replace

import pytest

from duallgd_cli import GuideFiles
from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.chem.guide import Guide
from duallgd_cli.config import SamplingSettings, dump
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.calibrate import fit_weights_file
from duallgd_cli.evaluate.membership import fit_membership
from duallgd_cli.files import sha256
from duallgd_cli.predict.model import Encoder, LoadedModel, sources_of
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.scores import FingerprintLikelihood, FingerprintTanimoto
from duallgd_cli.sources.database import opened
from duallgd_cli.sources.enumerated import DatabaseSource
from duallgd_cli.sources.known import Known
from tests.made_queries import chances, key, keys, query, small_sampler
from tests.made_runs import request
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, block, mgf
from tests.made_training import cpu

CAFFEIC_ACID, CAFFEINE_SMILES = "O=C(O)C=Cc1ccc(O)c(O)c1", "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
ISOMERS = {
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "caffeic acid": CAFFEIC_ACID,
    "pyruvic acid": "O=C(O)C(=O)Cc1ccc(O)cc1",
}
ROWS = [("name", "smiles"), *ISOMERS.items(), ("again", r"O=C(O)/C=C/c1ccc(O)c(O)c1")]
ROWS += [("caffeine", CAFFEINE_SMILES), ("ethanol", "CCO")]
KEYS = set(map(key, ISOMERS.values()))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "database.csv").write_text("".join(f"{','.join(row)}\n" for row in ROWS))
    return GuideFiles(databases=(str(tmp_path / "database.csv"),))


@pytest.fixture(scope="module")
def model():
    """Predicts with a network that was not trained, with the two scores that need no fit."""
    sampler = small_sampler()
    return LoadedModel(
        encode=Encoder(sampler.model.encoder, cpu()),
        sources=sources_of(sampler),
        scores=(FingerprintLikelihood(), FingerprintTanimoto()),
        ranking=RankingModel(),
        name="w",
        sha256="0" * 64,
    )


@pytest.fixture
def spectra(tmp_path):
    return mgf(tmp_path / "s.mgf", block(ALANINE), block(ASPIRIN), block(CAFFEINE))


@pytest.fixture
def listed(files):
    """Keys of the structures of the database that are proposed, in order."""
    (name,) = files.databases

    def run(n=100, guide=None, formula="C9H8O4", likely=CAFFEIC_ACID, databases=(name,)):
        known = Known(guide, databases=tuple(map(opened, databases)))
        asked = query(formula, chances(likely), known=known)
        proposals = list(DatabaseSource().propose(asked, n, 4))
        assert all(one[:1] + one[2:] == ("database", None, False, "") for one in proposals)
        return keys(one.mol for one in proposals)

    return run


@pytest.mark.parametrize("likely", ISOMERS.values())
def test_all_structures_of_the_formula_are_proposed_each_once_the_likeliest_first(listed, likely):
    every = listed(likely=likely)

    assert (len(every), set(every), every[0]) == (3, KEYS, key(likely))
    assert listed(2, likely=likely) == every[:2]


def test_no_other_structures_are_proposed(listed):
    assert listed(formula="C9H8O5") == listed(databases=()) == []
    assert listed(guide=Guide(forbid=("[OX2H]c",))) == [key(ISOMERS["aspirin"])]


def only(**sampling):
    return PredictSettings(sampling=SamplingSettings(database_share=1.0, **sampling))


@pytest.mark.parametrize(
    ("required", "said"),
    [
        ((), "no structure of the database has the formula C3H7NO2; without --database-only"),
        (("[NH2]",), "has the formula C3H7NO2 and is as asked for; without --database-only"),
    ],
)
def test_without_such_a_structure_the_row_says_so(model, spectra, files, required, said):
    settings = replace(only(samples=2), require=required)

    alanine, *_ = model.predict(spectra, settings, guide=files)

    assert (alanine.status, said in alanine.message) == ("no_candidate", True)


def test_a_core_that_is_drawn_as_an_ion_is_found_in_acids(model, spectra, files):
    _, aspirin, _ = model.predict(spectra, only(samples=2, core="c1ccccc1C(=O)[O-]"), guide=files)

    assert [one.inchikey14 for one in aspirin.candidates] == [key(ISOMERS["aspirin"])]
    assert "the core is taken as O=C(O)c1ccccc1" in aspirin.remarks


@pytest.mark.parametrize("samples", [1, 400])
def test_every_structure_of_the_database_is_there_however_few_samples(
    model, spectra, files, samples
):
    """The only one that was looked at would seem certain."""
    _, aspirin, caffeine = model.predict(spectra, only(samples=samples), guide=files)

    assert {one.inchikey14 for one in aspirin.candidates} == KEYS
    assert "chosen among 3 structures of the database" in aspirin.warnings
    assert "not calibrated" not in aspirin.warnings
    likeness = [aspirin.analogue_of(one) for one in aspirin.candidates]
    assert {(one["name"], one["change"]) for one in likeness} == {
        (name, "the same molecule") for name in ISOMERS
    }
    assert [one.smiles for one in caffeine.candidates] == [CAFFEINE_SMILES]


@pytest.mark.slow
def test_the_fit_for_a_database_is_kept_beside_that_for_drawn_structures(
    tmp_path, model, spectra, files
):
    weights, out, truth = (tmp_path / name for name in ("w.safetensors", "f.safetensors", "t.tsv"))
    drawn, network = {"fingerprint_tanimoto": 3.0}, model.sources[-1].sampler.model
    save(weights, Checkpoint(network.settings, dict(network.state_dict()), {}, drawn))
    settings = PredictSettings(sampling=SamplingSettings(steps=1, samples=20))
    asked = request(spectra, tmp_path / "out.csv", settings=settings, guide=files)
    predict(asked, replace(model, sha256=sha256(weights)))
    blocks = ("QNAYBMKLOCPYGJ", "BSYNRYMUTXBXSQ", "RYYVLZVUVIJVGH")
    rows = [f"s:{number}\t{block}\n" for number, block in enumerate(blocks)]
    truth.write_text("".join(["identifier\tinchikey\n", *rows]))

    ranking, validation = fit_weights_file(weights, [tmp_path / "out.csv"], truth, out)

    fitted = load(out)
    assert fitted.ranking == drawn
    assert fitted.database["n_spectra"] == ranking.n_spectra == validation.n_spectra == 3
    assert "database_validation" in fitted.record
    assert "ranking_validation" not in fitted.record
    with pytest.raises(UsageError, match="no ranking of its structures"):
        fit_membership(weights, tmp_path / "out.csv", truth, out)
    membership = fit_membership(out, tmp_path / "out.csv", truth, out)
    assert dump(membership) == load(out).membership
    assert membership.constant != 0
    truth.write_text("identifier\tinchikey\n")
    with pytest.raises(UsageError, match="no row for spectrum"):
        fit_membership(out, tmp_path / "out.csv", truth, out)


@pytest.mark.slow
def test_both_worlds_are_in_one_list_and_who_believes_in_the_database_trusts_it(
    model, spectra, files
):
    fitted = replace(model, ranking=RankingModel(n_spectra=9), database=RankingModel(n_spectra=9))
    sums = []
    for share in (0.1, 0.9):
        sampling = SamplingSettings(steps=1, samples=30, database_share=share)
        settings = PredictSettings(top_k=999, sampling=sampling)
        alanine, aspirin, _ = fitted.predict(spectra, settings, guide=files)
        inside = [one for one in aspirin.candidates if "database" in one.sources]
        sums.append(sum(one.confidence for one in inside))

        assert alanine.status == "ok"  # the database has no structure of the formula
        assert "0 structures of the database" in alanine.warnings
        assert {"noise"} == {name for one in alanine.candidates for name in one.sources}
        assert {one.inchikey14 for one in inside} == KEYS
        confidence = [one.confidence for one in aspirin.candidates]
        assert confidence == sorted(confidence, reverse=True)
        assert 0 < sum(confidence) <= 1 + 1e-9

    assert sums[0] < sums[1]
