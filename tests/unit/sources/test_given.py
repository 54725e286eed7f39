"""Candidates chosen from the user's structures instead of drawn."""

from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli import GuideFiles
from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.identity import fingerprint, inchikey_block, parse_smiles
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.fitting import fit_weights_file
from duallgd_cli.files import sha256
from duallgd_cli.predict import pipeline
from duallgd_cli.predict.loading import Encoder, sources_of
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.report.contents import ReportedRun
from duallgd_cli.scores.substructures import FingerprintLikelihood, FingerprintTanimoto
from duallgd_cli.sources import Query, enumerated
from duallgd_cli.sources.given import DatabaseSource
from duallgd_cli.sources.known import Known
from duallgd_cli.sources.structures import Analogues
from duallgd_cli.spectra.reading import read
from tests.made_graphs import small_settings, stirred
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, annotated, block, mgf
from tests.made_training import cpu

ASPIRIN_SMILES = "CC(=O)Oc1ccccc1C(=O)O"
CAFFEIC_ACID = "O=C(O)C=Cc1ccc(O)c(O)c1"
CAFFEINE_SMILES = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
ISOMERS = (ASPIRIN_SMILES, CAFFEIC_ACID, "O=C(O)C(=O)Cc1ccc(O)cc1")
TABLE = "".join(
    f"{name},{smiles}\n"
    for name, smiles in (
        ("name", "smiles"), ("aspirin", ISOMERS[0]), ("caffeic acid", r"O=C(O)/C=C/c1ccc(O)c(O)c1"),
        ("caffeic acid again", CAFFEIC_ACID), ("pyruvic acid", ISOMERS[2]),
        ("caffeine", CAFFEINE_SMILES), ("ethanol", "CCO"),
    )
)  # fmt: skip


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "database.csv").write_text(TABLE)
    return tmp_path / "database.csv"


@pytest.fixture(scope="module")
def network():
    return stirred(small_settings())


@pytest.fixture
def model(network):
    return model_of(network, "0" * 64)


def model_of(network, digest):
    """Predicts with a network, with the two scores that need no fit."""
    return LoadedModel(
        encode=Encoder(network.encoder, cpu()),
        sources=sources_of(Sampler(network, cpu())),
        scores=(FingerprintLikelihood(), FingerprintTanimoto()),
        ranking=RankingModel(),
        name="w",
        sha256=digest,
    )


@pytest.fixture
def spectra(tmp_path):
    return mgf(tmp_path / "s.mgf", block(ALANINE), block(ASPIRIN), block(CAFFEINE))


def listed(database, n=100, guide=None, formula="C9H8O4", likely=CAFFEIC_ACID):
    """Keys of the structures of the database that are proposed, in order."""
    chance = np.full(FINGERPRINT_BITS, 0.01, np.float32)
    chance[fingerprint(parse_smiles(likely))] = 0.9
    known = Known(guide, databases=(Analogues.read(database),))
    proposals = list(
        DatabaseSource().propose(Query(annotated([], formula), chance, known=known), n, 4)
    )
    assert all(one[:1] + one[2:] == ("database", None, False, "") for one in proposals)
    return [inchikey_block(one.mol) for one in proposals]


def only(**sampling):
    return PredictSettings(sampling=SamplingSettings(database_share=1.0, **sampling))


def blocks(smiles):
    return {inchikey_block(parse_smiles(one)) for one in smiles}


def test_all_structures_of_the_formula_are_proposed_each_once(database):
    found = listed(database)

    assert len(found) == 3
    assert set(found) == blocks(ISOMERS)
    assert listed(database, formula="C9H8O5") == []
    assert set(listed(database, guide=Guide(forbid=("[OX2H]c",)))) == blocks([ASPIRIN_SMILES])
    for known in (None, Known(None)):
        asked = Query(annotated([], "C9H8O4"), np.zeros(FINGERPRINT_BITS, np.float32), known=known)
        assert list(DatabaseSource().propose(asked, 9, 4)) == []


@pytest.mark.parametrize("n", [1, 2])
def test_the_likeliest_are_taken_where_there_are_many(database, n):
    for smiles in ISOMERS:
        every, found = (listed(database, most, likely=smiles) for most in (100, n))
        assert found == every[:n]
        assert found[0] == inchikey_block(parse_smiles(smiles))


def test_many_are_compared_by_their_peaks_too(database, monkeypatch):
    monkeypatch.setattr(enumerated, "_COMPARED", 3)
    last, wanted = listed(database)[-1], []

    class Peaks:
        def peaks(self, query, mol):
            wanted.append(inchikey_block(mol))
            return 1000.0 * (wanted[-1] == last), 0.0

    chance = np.full(FINGERPRINT_BITS, 0.01, np.float32)
    known = Known(None, databases=(Analogues.read(database),))
    asked = Query(annotated([], "C9H8O4"), chance, known=known)

    (one,) = DatabaseSource(Peaks()).propose(asked, 1, 4)

    assert inchikey_block(one.mol) == last
    assert len(wanted) == 3


def test_the_message_says_where_only_the_likeliest_were_looked_at(
    model, spectra, database, monkeypatch
):
    monkeypatch.setattr(pipeline, "MOST_OF_A_DATABASE", 2)
    files = GuideFiles(databases=(str(database),))

    _, aspirin, caffeine = model.predict(list(read(str(spectra))), only(), guide=files)

    assert "chosen among the likeliest 2 structures of the database" in aspirin.warnings
    assert "the only possible structure of the database" in caffeine.warnings


@pytest.mark.parametrize(
    ("required", "said"),
    [
        (None, "no structure of the database has the formula C3H7NO2; without --database-only"),
        ("[NH2]", "has the formula C3H7NO2 and is as asked for; without --database-only"),
    ],
)
def test_without_such_a_structure_the_row_says_so(model, spectra, database, required, said):
    files = GuideFiles(databases=(str(database),))
    settings = replace(only(samples=2), require=(required,) if required else ())

    alanine, *_ = model.predict(spectra, settings, guide=files)

    assert alanine.status == "no_candidate"
    assert said in alanine.message


@pytest.mark.parametrize("samples", [1, 400])
def test_every_spectrum_gets_structures_of_the_database_or_a_reason(
    model, spectra, database, samples
):
    """The number of samples has no say: the only one that was looked at would seem certain."""
    files, settings = GuideFiles(databases=(str(database),)), only(samples=samples)

    nothing, aspirin, caffeine = model.predict(list(read(str(spectra))), settings, guide=files)

    assert nothing.status == "no_candidate"
    assert "no structure of the database has the formula C3H7NO2" in nothing.message
    assert {one.inchikey14 for one in aspirin.candidates} == blocks(ISOMERS)
    assert "chosen among 3 structures of the database" in aspirin.warnings
    assert "not calibrated" not in aspirin.warnings
    named = {aspirin.analogue_of(one)["name"] for one in aspirin.candidates}
    assert named == {"aspirin", "caffeic acid", "pyruvic acid"}
    changes = {aspirin.analogue_of(one)["change"] for one in aspirin.candidates}
    assert changes == {"the same molecule"}
    assert [one.smiles for one in caffeine.candidates] == [CAFFEINE_SMILES]


def test_table_and_page_say_how_the_database_calls_a_candidate(tmp_path, model, spectra, database):
    out, guide = tmp_path / "out.csv", GuideFiles(databases=(str(database),))
    predict(PredictRequest((str(spectra),), str(out), guide=guide, settings=only()), model)

    _, aspirin, caffeine = ReportedRun([out]).features()

    assert "is caffeine" in out.read_text()
    assert [one["like"] for one in caffeine["candidates"]] == ["is caffeine"]
    names = {one["like"] for one in aspirin["candidates"]}
    assert names == {"is aspirin", "is caffeic acid", "is pyruvic acid"}


def test_the_fit_for_a_database_is_kept_beside_that_for_drawn_structures(
    tmp_path, network, spectra, database
):
    weights, out = tmp_path / "w.safetensors", tmp_path / "fitted.safetensors"
    drawn = {"fingerprint_tanimoto": 3.0}
    save(weights, Checkpoint(network.settings, dict(network.state_dict()), {}, drawn))
    model = model_of(network, sha256(weights))
    asked = PredictSettings(sampling=SamplingSettings(steps=1, samples=20))
    request = PredictRequest(
        (str(spectra),), str(tmp_path / "out.csv"), settings=asked,
        guide=GuideFiles(databases=(str(database),)),
    )  # fmt: skip
    predict(request, model)
    keys = ("QNAYBMKLOCPYGJ", "BSYNRYMUTXBXSQ", "RYYVLZVUVIJVGH")
    rows = zip(("identifier", "s:0", "s:1", "s:2"), ("inchikey", *keys), strict=True)
    (tmp_path / "truth.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))

    ranking, validation = fit_weights_file(
        weights, [tmp_path / "out.csv"], tmp_path / "truth.tsv", out
    )

    fitted = load(out)
    assert fitted.ranking == drawn
    assert fitted.database["n_spectra"] == ranking.n_spectra == 3
    assert "database_validation" in fitted.record
    assert "ranking_validation" not in fitted.record
    # Fewer structures of a database are no fewer draws: no parts are fitted on.
    assert not validation.by_samples
    assert validation.n_spectra == 3
    both = (tmp_path / "out.csv", tmp_path / "drawn.csv")
    predict(replace(request, output=str(both[1]), guide=None), model)
    with pytest.raises(UsageError, match="some had none; fit one at a time"):
        fit_weights_file(weights, both, tmp_path / "truth.tsv", out)


def test_a_run_is_ranked_as_was_fitted_for_what_it_chooses_from(model, spectra, database, caplog):
    files, settings = GuideFiles(databases=(str(database),)), only()
    fitted = replace(model, database=RankingModel(familiarity=7.0, n_spectra=9))

    assert fitted.ranking_for(settings, files).database.familiarity == 7
    assert fitted.ranking_for(settings, files).share == 1
    assert fitted.ranking_for(settings, None).database is None
    assert model.ranking_for(settings, files).database == model.ranking
    next(iter(fitted.predict(list(read(str(spectra))), settings, guide=files, samples=400)))
    assert "for the case that the structure is in the database" in caplog.text


def test_both_worlds_are_in_one_list_and_who_believes_in_the_database_trusts_it(
    model, spectra, database
):
    files, sums = GuideFiles(databases=(str(database),)), []
    fitted = replace(model, ranking=RankingModel(n_spectra=9), database=RankingModel(n_spectra=9))
    for share in (0.1, 0.9):
        settings = PredictSettings(
            top_k=999, sampling=SamplingSettings(steps=1, samples=30, database_share=share)
        )
        alanine, aspirin, _ = fitted.predict(list(read(str(spectra))), settings, guide=files)
        inside = [one for one in aspirin.candidates if "database" in one.sources]
        sums.append(sum(one.confidence for one in inside))

        assert alanine.status == "ok"  # the database has no structure of the formula
        assert "0 structures of the database" in alanine.warnings
        assert {"noise"} == {name for one in alanine.candidates for name in one.sources}
        assert {one.inchikey14 for one in inside} == blocks(ISOMERS)
        assert len(aspirin.candidates) > len(inside)
        confidence = [one.confidence for one in aspirin.candidates]
        assert confidence == sorted(confidence, reverse=True)
        assert 0 < sum(confidence) <= 1 + 1e-9

    assert sums[0] < sums[1]
