"""Tables for other programs: the columns that their importers document, and what fills them."""

from dataclasses import replace

import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.predict.run import merge, predict
from duallgd_cli.writers.summaries import SUMMARIES
from tests.made_runs import SETTINGS, predicted, request, rows_of
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
    settings = replace(SETTINGS, top_k=3)
    predicted(folder, *blocks, settings=settings, summaries=tuple(SUMMARIES))
    return folder


def test_sirius_tables_hold_the_first_candidate_of_each_feature(run):
    aspirin, caffeine = rows_of(run / "out.structure_identifications.tsv")
    ours = rows_of(run / "out.csv")[0]

    assert list(aspirin) == SIRIUS.split()
    ids = "mappingFeatureId", "structurePerIdRank"
    assert [[row[name] for name in ids] for row in (aspirin, caffeine)] == [["17", "1"], ["5", "1"]]
    expected = {
        "InChIkey2D": ours["inchikey14"], "smiles": ours["smiles"],
        "ConfidenceScoreExact": ours["confidence"], "molecularFormula": "C9H8O4",
        "ionMass": "181.04954", "retentionTimeInSeconds": "90", "retentionTimeInMinutes": "1.5",
    }  # fmt: skip
    assert aspirin.items() >= expected.items()


def test_mzmine_tables_hold_all_candidates_with_minutes(run):
    rows = rows_of(run / "out.mzmine.csv")
    aspirin = [row for row in rows if row["id"] == "17"]

    assert set(rows[0]) == MZMINE
    assert [row["rt"] for row in aspirin] == ["1.5"] * 3
    assert float(aspirin[0]["neutral_mass"]) == pytest.approx(180.0423, abs=1e-4)
    assert aspirin[0]["adduct"] == "[M+H]+"
    assert all(0 <= float(row["score"]) <= 1 and row["name"] == row["inchi_key"] for row in rows)


def test_gnps_tables_have_a_node_for_every_feature_by_its_cluster_index(run):
    rows = rows_of(run / "out.gnps.tsv")

    assert next(iter(rows[0])) == "cluster index"
    nodes = [
        (row["cluster index"], row["duallgd_status"], row["duallgd_smiles"] != "") for row in rows
    ]
    assert nodes == [("17", "ok", True), ("5", "ok", True), ("8", "formula_mismatch", False)]


def test_merge_writes_the_same_summaries_and_refuses_others(run, tmp_path):
    merge(request(str(run / "out.csv"), tmp_path / "again.csv", summaries=("gnps",)))

    assert (tmp_path / "again.gnps.tsv").read_bytes() == (run / "out.gnps.tsv").read_bytes()
    assert not (tmp_path / "again.mzmine.csv").exists()
    asked = request(str(run / "in.mgf"), run / "out.csv", summaries=("metfrag",))
    with pytest.raises(UsageError, match="'metfrag' is not known; choose sirius, mzmine, gnps"):
        predict(asked, stub_model())
