"""Tables for other programs: the columns that their importers document, and what fills them."""

import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.predict.run import merge, predict
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.writers.summaries import SUMMARIES
from tests.made_runs import predicted, request, rows_of
from tests.made_spectra import ASPIRIN, CAFFEINE, NICOTINE, block
from tests.stub_model import stub_model

# SIRIUS 6, columns of structure_identifications.tsv in its writer's order.
SIRIUS = (
    "structurePerIdRank formulaRank ConfidenceScoreExact ConfidenceScoreApproximate "
    "CSI:FingerIDScore ZodiacScore SiriusScore molecularFormula adduct precursorFormula InChIkey2D "
    "InChI name smiles xlogp pubchemids links dbflags ionMass retentionTimeInSeconds "
    "retentionTimeInMinutes formulaId alignedFeatureId mappingFeatureId overallFeatureQuality"
)
# mzmine 4, local compound database search; id and score are imported as additional columns.
MZMINE = {
    *("neutral_mass", "mz", "rt", "formula", "smiles", "inchi", "inchi_key", "name", "comment"),
    *("adduct", "id", "score"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run over a pair of spectra, one with another key and one without candidates."""
    folder = tmp_path_factory.mktemp("summaries")
    blocks = (
        block(ASPIRIN, feature_id="17", scans="17", rtinseconds="90"),
        block(ASPIRIN, feature_id="17", scans="17", scale=0.5),
        block(CAFFEINE, title="no key", scans="5"),
        block(NICOTINE, feature_id="8", pepmass="200.0"),
    )
    predicted(folder, *blocks, settings=PredictSettings(top_k=3), summaries=tuple(SUMMARIES))
    return folder


def test_sirius_tables_hold_the_first_candidate_of_each_feature(run):
    found, first = rows_of(run / "out.structure_identifications.tsv"), rows_of(run / "out.csv")[0]

    assert list(found[0]) == SIRIUS.split()
    assert [row["mappingFeatureId"] for row in found] == ["17", "5"]
    assert {row["structurePerIdRank"] for row in found} == {"1"}
    same = {"InChIkey2D": "inchikey14", "smiles": "smiles", "ConfidenceScoreExact": "confidence"}
    assert {name: found[0][name] for name in same} == {name: first[same[name]] for name in same}
    assert found[0]["molecularFormula"] == "C9H8O4"
    assert float(found[0]["ionMass"]) == pytest.approx(181.0495, abs=1e-4)
    assert (found[0]["retentionTimeInSeconds"], found[0]["retentionTimeInMinutes"]) == ("90", "1.5")


def test_mzmine_tables_hold_all_candidates_with_minutes(run):
    found = rows_of(run / "out.mzmine.csv")
    aspirin = [row for row in found if row["id"] == "17"]

    assert set(found[0]) == MZMINE
    assert [row["rt"] for row in aspirin] == ["1.5"] * 3
    assert float(aspirin[0]["neutral_mass"]) == pytest.approx(180.0423, abs=1e-4)
    assert aspirin[0]["adduct"] == "[M+H]+"
    assert all(0 <= float(row["score"]) <= 1 and row["name"] == row["inchi_key"] for row in found)


def test_gnps_tables_have_a_node_for_every_feature_by_its_cluster_index(run):
    found = rows_of(run / "out.gnps.tsv")

    assert next(iter(found[0])) == "cluster index"
    assert [row["cluster index"] for row in found] == ["17", "5", "8"]
    assert [row["duallgd_status"] for row in found] == ["ok", "ok", "formula_mismatch"]
    assert found[0]["duallgd_smiles"]
    assert not found[2]["duallgd_smiles"]


def test_merge_writes_the_same_summaries(run, tmp_path):
    merge(request(str(run / "out.csv"), tmp_path / "again.csv", summaries=("gnps",)))

    assert (tmp_path / "again.gnps.tsv").read_bytes() == (run / "out.gnps.tsv").read_bytes()
    assert not (tmp_path / "again.mzmine.csv").exists()


def test_a_summary_of_another_name_is_refused_at_once(run):
    asked = request(str(run / "in.mgf"), run / "out.csv", summaries=("metfrag",))

    with pytest.raises(UsageError, match="'metfrag' is not known; choose sirius, mzmine, gnps"):
        predict(asked, stub_model())
