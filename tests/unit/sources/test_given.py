"""Candidates chosen from the user's structures instead of drawn."""

from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli import GuideFiles
from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.identity import fingerprint, inchikey_block, parse_smiles
from duallgd_cli.config import SamplingSettings, dump
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.calibrate import fit_weights_file
from duallgd_cli.evaluate.membership import fit_membership
from duallgd_cli.files import sha256
from duallgd_cli.predict.model import Encoder, LoadedModel, sources_of
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.scores import FingerprintLikelihood, FingerprintTanimoto
from duallgd_cli.sources import Query
from duallgd_cli.sources.database import opened
from duallgd_cli.sources.enumerated import DatabaseSource
from duallgd_cli.sources.known import Known
from duallgd_cli.spectra.reading import read
from tests.made_graphs import small_settings, stirred
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, annotated, block, mgf
from tests.made_training import cpu

pytestmark = pytest.mark.usefixtures("databases")

CAFFEIC_ACID, CAFFEINE_SMILES = "O=C(O)C=Cc1ccc(O)c(O)c1", "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
ISOMERS = {
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "caffeic acid": CAFFEIC_ACID,
    "pyruvic acid": "O=C(O)C(=O)Cc1ccc(O)cc1",
}
ROWS = [("name", "smiles"), *ISOMERS.items(), ("again", r"O=C(O)/C=C/c1ccc(O)c(O)c1")]
ROWS += [("caffeine", CAFFEINE_SMILES), ("ethanol", "CCO")]


@pytest.fixture
def database(tmp_path):
    (tmp_path / "database.csv").write_text("".join(f"{','.join(row)}\n" for row in ROWS))
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


def key(smiles):
    return inchikey_block(parse_smiles(smiles))


KEYS = {key(smiles) for smiles in ISOMERS.values()}


def listed(database, n=100, guide=None, formula="C9H8O4", likely=CAFFEIC_ACID):
    """Keys of the structures of the database that are proposed, in order."""
    chance = np.full(FINGERPRINT_BITS, 0.01, np.float32)
    chance[fingerprint(parse_smiles(likely))] = 0.9
    known = Known(guide, databases=() if database is None else (opened(str(database)),))
    proposals = list(
        DatabaseSource().propose(Query(annotated([], formula), chance, known=known), n, 4)
    )
    assert all(one[:1] + one[2:] == ("database", None, False, "") for one in proposals)
    return [inchikey_block(one.mol) for one in proposals]


def only(**sampling):
    return PredictSettings(sampling=SamplingSettings(database_share=1.0, **sampling))


def test_all_structures_of_the_formula_are_proposed_each_once_the_likeliest_first(database):
    found = listed(database)

    assert len(found) == 3
    assert set(found) == KEYS
    assert listed(database, formula="C9H8O5") == listed(None) == []
    assert listed(database, guide=Guide(forbid=("[OX2H]c",))) == [key(ISOMERS["aspirin"])]
    for smiles in ISOMERS.values():
        every = listed(database, likely=smiles)
        assert every[0] == key(smiles)
        assert listed(database, 2, likely=smiles) == every[:2]


@pytest.mark.parametrize(
    ("required", "said"),
    [
        (None, "no structure of the database has the formula C3H7NO2; without --database-only"),
        ("[NH2]", "has the formula C3H7NO2 and is as asked for; without --database-only"),
    ],
)
def test_without_such_a_structure_the_row_says_so(model, spectra, database, required, said):
    settings = replace(only(samples=2), require=(required,) if required else ())

    alanine, *_ = model.predict(spectra, settings, guide=GuideFiles(databases=(str(database),)))

    assert (alanine.status, said in alanine.message) == ("no_candidate", True)


@pytest.mark.parametrize("samples", [1, 400])
def test_every_structure_of_the_database_is_there_however_few_samples(
    model, spectra, database, samples
):
    """The only one that was looked at would seem certain."""
    files, settings = GuideFiles(databases=(str(database),)), only(samples=samples)

    _, aspirin, caffeine = model.predict(list(read(str(spectra))), settings, guide=files)

    assert {one.inchikey14 for one in aspirin.candidates} == KEYS
    assert "chosen among 3 structures of the database" in aspirin.warnings
    assert "not calibrated" not in aspirin.warnings
    likeness = [aspirin.analogue_of(one) for one in aspirin.candidates]
    assert {one["name"] for one in likeness} == set(ISOMERS)
    assert {one["change"] for one in likeness} == {"the same molecule"}
    assert [one.smiles for one in caffeine.candidates] == [CAFFEINE_SMILES]


@pytest.mark.slow
def test_the_fit_for_a_database_is_kept_beside_that_for_drawn_structures(
    tmp_path, network, spectra, database
):
    weights, out = tmp_path / "w.safetensors", tmp_path / "fitted.safetensors"
    drawn = {"fingerprint_tanimoto": 3.0}
    save(weights, Checkpoint(network.settings, dict(network.state_dict()), {}, drawn))
    request = PredictRequest(
        (str(spectra),), str(tmp_path / "out.csv"),
        settings=PredictSettings(sampling=SamplingSettings(steps=1, samples=20)),
        guide=GuideFiles(databases=(str(database),)),
    )  # fmt: skip
    predict(request, model_of(network, sha256(weights)))
    keys = ("inchikey", "QNAYBMKLOCPYGJ", "BSYNRYMUTXBXSQ", "RYYVLZVUVIJVGH")
    rows = zip(("identifier", "s:0", "s:1", "s:2"), keys, strict=True)
    (tmp_path / "truth.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))

    ranking, validation = fit_weights_file(
        weights, [tmp_path / "out.csv"], tmp_path / "truth.tsv", out
    )

    fitted = load(out)
    assert fitted.ranking == drawn
    assert fitted.database["n_spectra"] == ranking.n_spectra == validation.n_spectra == 3
    assert "database_validation" in fitted.record
    assert "ranking_validation" not in fitted.record
    # Fewer structures of a database are no fewer draws: no parts are fitted on.
    assert not validation.by_samples

    with pytest.raises(UsageError, match="no ranking of its structures"):
        fit_membership(weights, tmp_path / "out.csv", tmp_path / "truth.tsv", out)
    (tmp_path / "less.tsv").write_text("identifier\tinchikey\n")
    with pytest.raises(UsageError, match="no row for spectrum"):
        fit_membership(out, tmp_path / "out.csv", tmp_path / "less.tsv", out)
    membership = fit_membership(out, tmp_path / "out.csv", tmp_path / "truth.tsv", out)
    assert dump(membership) == load(out).membership
    assert membership.constant != 0


@pytest.mark.slow
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
        assert {one.inchikey14 for one in inside} == KEYS
        confidence = [one.confidence for one in aspirin.candidates]
        assert confidence == sorted(confidence, reverse=True)
        assert 0 < sum(confidence) <= 1 + 1e-9

    assert sums[0] < sums[1]
