"""Outputs as tables, JSON lines and structures; names in them; tables for other programs."""

import csv
import gzip
import io
import json
import os
import pickle
from dataclasses import replace

import pytest
from rdkit import Chem

from duallgd_cli.data.structures import read_rows
from duallgd_cli.errors import DuallgdError, UnreadableError, UsageError
from duallgd_cli.evaluate.tables import read_predictions
from duallgd_cli.predict.run import merge, predict
from duallgd_cli.results import (
    Candidate,
    ExplainedPeak,
    Header,
    HypothesisResult,
    Prediction,
    sentences,
)
from duallgd_cli.spectra.run import FeatureSettings
from duallgd_cli.spectra.tables import FeatureTable, read_table
from duallgd_cli.spectra.types import Source
from duallgd_cli.tables import table_rows
from duallgd_cli.writers import formats
from duallgd_cli.writers.features import write_features
from duallgd_cli.writers.names import NAME_COLUMNS, Names
from duallgd_cli.writers.summaries import SUMMARIES
from tests.made_runs import SETTINGS, predicted, request, rows_of
from tests.made_spectra import ASPIRIN, CAFFEINE, NICOTINE, block
from tests.stub_model import stub_model

HEADER = (
    "spectrum_id,file,index,feature_id,scans,precursor_mz,adduct,formula,rank,smiles,inchi,"
    "inchikey,inchikey14,score,confidence,samples,log_likelihood,status,message,"
    "confidence_top10,indices,name,rt_seconds,collision_energy,warnings,"
    "formula_source,formula_rank,formula_probability,adduct_source,assumptions,"
    "sources,family,family_confidence,scaffold,scaffold_confidence,level,schymanski,"
    "compound_id,usi"
)
RUN = Header("0", {}, {}, ())


def candidate(rank=1, smiles="CCO", **values):
    named = {
        "inchi": "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3", "inchikey": "LFQSCWFLJHTTHZ-UHFFFAOYSA-N",
        "formula": "C2H6O", "adduct": "[M+H]+", "samples": 31, "log_likelihood": -12.3456789,
        "score": -1.23456789, "confidence": 0.123456789, "extra_scores": {"log_share": -1.1},
        "sources": ("noise",), "family": "C", "family_confidence": 0.5,
        "scaffold": "acyclic", "scaffold_confidence": 0.75,
    }  # fmt: skip
    return Candidate(rank=rank, smiles=smiles, **named | values)


def prediction(*candidates, **values):
    outcome = HypothesisResult(
        "ok", formula="C2H6O", adduct="[M+H]+", adduct_source="inferred", n_heavy=3, sampled=100,
        rejected={"valence": 5}, peaks=(ExplainedPeak(29.03858, 1.0, "C2H5", 1.5),), seconds=3.0,
    )  # fmt: skip
    named = {
        "source": Source("a.mgf", 4), "spectrum_id": "one", "feature_id": "7", "scans": "12",
        "precursor_mz": 47.0491, "formula": "C2H6O", "adduct": "[M+H]+", "status": "ok",
        "hypotheses": (outcome,), "candidates": candidates, "confidence_top10": 0.25,
        "group": (Source("a.mgf", 4), Source("a.mgf", 6)), "name": "ethanol", "rt_seconds": 61.5,
        "collision_energy": "20 eV", "warnings": "peaks left out", "assumptions": "minutes",
        "level": "family", "schymanski": "3", "usi": "mzspec:USI000000:a:scan:12",
    }  # fmt: skip
    return Prediction(**named | values)


FAILED = prediction(
    spectrum_id='"quoted", with comma\nand break',
    precursor_mz=None,
    status="no_formula",
    message="give a formula",
    hypotheses=(),
    confidence_top10=0.0,
)


def text(kind, *predictions):
    return "".join(formats.pieces(predictions, kind, RUN))


def rows(kind, *predictions):
    written = text(kind, *predictions)
    delimiter = {"csv": ",", "tsv": "\t"}[kind]
    read = list(csv.DictReader(io.StringIO(written), delimiter=delimiter, strict=True))
    assert len(written.splitlines()) == 1 + len(read)
    return read


def test_a_candidate_is_a_row_of_the_documented_columns_in_order():
    written = text("csv", prediction(candidate(), candidate(2, "COC")))

    header, first, second = csv.reader(io.StringIO(written))

    assert ",".join(header) == HEADER == text("csv").strip()
    assert first == [
        *("one", "a.mgf", "4", "7", "12", "47.0491", "[M+H]+", "C2H6O", "1", "CCO"),
        *("InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3", "LFQSCWFLJHTTHZ-UHFFFAOYSA-N", "LFQSCWFLJHTTHZ"),
        *("-1.23457", "0.1235", "31", "-12.3457", "ok", "", "0.25", "4 6"),
        *("ethanol", "61.5", "20 eV", "peaks left out", "file", "1", "1"),
        *("inferred", "minutes", "noise", "methyl", "0.5", "acyclic", "0.75", "family", "3", ""),
        "mzspec:USI000000:a:scan:12",
    ]
    assert (second[8], second[18]) == ("2", "")  # rank and message
    # A spectrum without candidates says why; what spectra of a feature share is written once.
    pair = prediction(candidate(), candidate(2, "COC"))
    failed, *others = rows("csv", FAILED, pair, replace(pair, source=pair.group[1]))
    empty = dict.fromkeys(("rank", "smiles", "precursor_mz", "confidence_top10"), "")
    assert failed.items() >= (empty | {"status": "no_formula", "message": "give a formula"}).items()
    assert [(row["rank"], row["status"]) for row in others] == [("1", "ok"), ("2", "ok")]


WICKED = "\x1b[31mred\x07\x85next\u2028line\x1cgroup\x9b2J\tcell\r\n"


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "sdf"])
@pytest.mark.parametrize("title", ['"begins quoted', 'a "b" c', WICKED, "a\tb", "a\udcffb"])
def test_no_title_breaks_a_row_or_steers_a_terminal(kind, title):
    predictions = prediction(candidate(), spectrum_id=title), prediction(candidate())

    written = text(kind, *predictions)

    if "\udcff" not in title or kind in {"csv", "tsv"}:
        assert all(char.isprintable() or char in "\n\t" for char in written)
    if kind == "jsonl":
        assert json.loads(written.splitlines()[0])["spectrum_id"] == title
    elif kind in {"csv", "tsv"}:
        first, second = rows(kind, *predictions)
        assert [first["status"], second["spectrum_id"]] == ["ok", "one"]
        assert '"' not in title or first["spectrum_id"] == title


@pytest.mark.parametrize(
    ("said", "written"),
    [
        *((text, f"'{text}") for text in ("=HYPERLINK(1)", "@SUM(1)", "+1+cmd", "-2+3")),
        (" =1+1", "'=1+1"),
        *((text, text) for text in ("-12.5", "+3", "-", "caffeine")),
    ],
)
def test_a_spreadsheet_runs_no_cell(said, written):
    (row,) = rows("csv", prediction(candidate(), feature_id=said))

    assert (row["feature_id"], row["score"], row["smiles"]) == (written, "-1.23457", "CCO")


@pytest.mark.parametrize("name", ["@12_a", "-PEG4", "=1", "+1a", "7", "-7", "it's", "'quoted'"])
@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_our_own_readers_find_spectra_in_our_tables_by_their_own_names(tmp_path, kind, name):
    path = tmp_path / f"out.{kind}"
    made = prediction(candidate(), spectrum_id=name, feature_id=name, name=name)
    path.write_text("".join(formats.pieces([made], kind, RUN)), "utf-8")

    assert [*read_predictions(path)] == [name]
    assert read_table(str(path))["feature_id"].keys() == {name}
    assert FeatureTable(path).row_of([name], made.precursor_mz, None).by == "id"
    assert {(row.feature_id, row.name) for row in read_rows(path)} == {(name, name)}
    assert [row["feature_id"] for row in table_rows(path)] == [name]


def test_a_message_quotes_at_most_the_beginning_of_a_long_word():
    said = sentences("the formula", "C" * 100_000, "is\x1b none")

    assert said == f"the formula; {'C' * 200}...; is none"


def test_jsonl_has_one_object_per_spectrum_with_hypotheses_and_peaks():
    match = {"name": "x", "library": "l", "smiles": "CCO", "mz": (29.0,), "intensity": (1.0,)}
    plain = prediction(candidate())
    hypotheses = (replace(plain.hypotheses[0], known={"library_match": match}),)

    written = text("jsonl", FAILED, replace(plain, hypotheses=hypotheses))

    failed, found = map(json.loads, written.splitlines())
    assert (failed["candidates"], failed["hypotheses"], failed["precursor_mz"]) == ([], [], None)
    (first,), (hypothesis,) = found["candidates"], found["hypotheses"]
    for values, expected in (
        (found, {"confidence_top10": 0.25, "assumptions": "minutes", "rt_seconds": 61.5}),
        (found, {"library_match": {"name": "x", "library": "l", "smiles": "CCO"}}),
        (first, {"inchikey14": "LFQSCWFLJHTTHZ", "extra_scores": {"log_share": -1.1}}),
        (hypothesis, {"sampled": 100, "rejected": {"valence": 5}, "adduct_source": "inferred"}),
        (hypothesis, {"formula_probability": 1.0}),
    ):
        assert values.items() >= expected.items()
    (peak,) = hypothesis["explained_peaks"]
    assert peak == {"mz": 29.03858, "intensity": 1.0, "formula": "C2H5", "ppm": 1.5}
    assert '"seconds"' not in written


def test_sdf_holds_candidates_with_coordinates_and_upper_case_tags(tmp_path):
    wicked = {"spectrum_id": "$$$$\n> <X>", "feature_id": "$$$$", "scans": ">  <Y>"}
    smiles = ["c1ccc2[nH]ccc2c1", "C[N+](C)(C)CC(=O)[O-]", "O=[N+]([O-])c1ccccc1"]
    three = prediction(*(candidate(rank, one) for rank, one in enumerate(smiles, 1)))

    written = text("sdf", FAILED, prediction(candidate(), **wicked), three)
    (tmp_path / "out.sdf").write_text(written, encoding="utf-8")
    first, *others = list(Chem.SDMolSupplier(str(tmp_path / "out.sdf")))

    assert [Chem.MolToSmiles(mol) for mol in (first, *others)] == ["CCO", *smiles]
    assert [mol.GetProp("_Name") for mol in others] == ["one_1", "one_2", "one_3"]
    tags, atoms = others[0].GetPropsAsDict(), others[0].GetConformer()
    assert {"FEATURE_ID", "RANK", "SCORE", "FORMULA", "PRECURSOR_MZ", "INCHIKEY"} <= tags.keys()
    assert (tags["ADDUCT_SOURCE"], tags["ASSUMPTIONS"]) == ("inferred", "minutes")
    assert all(tag == tag.upper() for tag in tags)
    assert not atoms.Is3D()
    assert abs(atoms.GetPositions()).max() > 0.1


@pytest.mark.parametrize(
    ("output", "name", "kind"),
    [
        *(("a.csv", "", "csv"), ("a.b/x.TSV", "", "tsv"), ("a.sdf", "", "sdf"), ("-", "", "csv")),
        *(("-", "sdf", "sdf"), ("a.csv", "JSONL", "jsonl")),
        *(("a.xlsx", "", None), ("a", "", None), ("a.csv", "parquet", None)),
    ],
)
def test_the_format_follows_from_the_name_or_the_ending(output, name, kind):
    if kind is None:
        with pytest.raises(UsageError, match="csv"):
            formats.resolve_format(output, name)
    else:
        assert formats.resolve_format(output, name) == kind


def test_two_runs_of_one_output_do_not_disturb_each_other(tmp_path, monkeypatch):
    path = str(tmp_path / "out.csv")

    def slowly():
        yield "first, "
        monkeypatch.setattr(os, "getpid", lambda: 2)
        formats.write_pieces(["second"], path)  # begins and ends while the first still writes
        yield "whole \udcff"

    monkeypatch.setattr(os, "getpid", lambda: 1)
    formats.write_pieces(slowly(), path)

    assert [one.read_text() for one in tmp_path.iterdir()] == ["first, whole \\udcff"]


ETHANOL = "LFQSCWFLJHTTHZ-UHFFFAOYSA-N"
FLAT, L, D = (f"QNAYBMKLOCPYGJ-{end}-N" for end in ("UHFFFAOYSA", "REOHCLBHSA", "UWTATZPHSA"))
HEAD = "inchikey\tname\tclass\n"
ALANINES = f"{HEAD}{L}\tL-alanine\tamino acids\n{D}\tD-alanine\tamino acids\n"


MORE, VERY = f"{FLAT[:14]}\tAla\t\n{FLAT[:14]}\tA\t\n", f"{FLAT}\talanine\t\n"
OF_ETHANOL, OTHER = ("ethanol", "alcohols"), "RYYVLZVUVIJVGH-UHFFFAOYSA-N"
NUMBERED = "class\tnumber\tInChI Key\tCompound Name"


@pytest.fixture
def table(tmp_path):
    """Writes a table of names."""

    def written(text):
        (tmp_path / "names.tsv").write_text(text, encoding="utf-8")
        return tmp_path / "names.tsv"

    return written


@pytest.mark.parametrize(
    ("text", "key", "called"),
    [
        (f"{HEAD}{ETHANOL}\tethanol\talcohols\n", ETHANOL, OF_ETHANOL),
        (f"{HEAD}{ETHANOL}\tethanol\talcohols\n", OTHER, ("", "")),
        (f"# mine\n{NUMBERED}\nalcohols\t7\t{ETHANOL}\tethanol\n", ETHANOL, OF_ETHANOL),
        (
            f"\ufeffInChIKey2D,Name,Class\r\n{ETHANOL[:14]},ethanol,alcohols\r\n",
            ETHANOL,
            OF_ETHANOL,
        ),
        (f"inchikey;name;class\nInChIKey={ETHANOL};ethanol;alcohols\n", ETHANOL, OF_ETHANOL),
        (
            f"{HEAD}{ETHANOL.lower()}\tethanol\talcohols\n{ETHANOL}\tethanol\t\n",
            ETHANOL,
            OF_ETHANOL,
        ),
        # Of several names of a block none is guessed, but the very key counts.
        (ALANINES, FLAT, ("L-alanine | D-alanine", "amino acids")),
        (ALANINES + VERY, FLAT, ("alanine", "")),
        (ALANINES + MORE, FLAT, ("L-alanine | D-alanine | Ala | 1 more", "amino acids")),
    ],
)
def test_a_table_of_names_may_have_any_of_these_forms(table, text, key, called):
    path = table(text)
    packed = path.with_name("packed.tsv.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))

    # A process gets its place alone.
    sent = pickle.dumps(Names.read(packed))

    for names in (Names.read(path), pickle.loads(sent)):
        assert tuple(names.of(key).values()) == called
    assert len(sent) < 500


def test_bad_rows_are_one_warning(table, caplog):
    path = table(f"{HEAD}{ETHANOL}\tethanol\tx\nno key\tx\ty\n{ETHANOL}\t\t\n\tz\t\n")

    assert tuple(Names.read(path).of(ETHANOL).values()) == ("ethanol", "x")
    (record,) = caplog.records
    said = "names.tsv: 3 of 4 rows left out, the first in line 3: 'no key' is no InChIKey"
    assert record.getMessage().endswith(said)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name\tclass\nethanol\talcohols\n", "has no column inchikey; it has name, class"),
        (f"{ETHANOL}\tethanol\talcohols\n", "has no column inchikey"),
        (f"{HEAD}{ETHANOL}\ta\tb\tc\n", "line 2: the row has more cells"),
        ("inchikey\tname\nx\ty\n", "names no molecule: line 2: 'x' is no InChIKey"),
        ("inchikey\tname\n", "names no molecule$"),
        ("", "has no column inchikey"),
    ],
)
def test_what_names_nothing_is_refused(table, text, message):
    path = table(text)

    with pytest.raises(DuallgdError, match=message):
        Names.read(path)
    with pytest.raises(DuallgdError, match="does not exist"):
        Names.read(path.with_name("absent.tsv"))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "sdf"])
def test_outputs_say_what_listed_candidates_are_called(table, kind):
    names = Names(table(f"{HEAD}{ETHANOL}\t=ethanol\talcohols\n"))
    other = candidate(2, "COC", inchikey="LCGLNKUTAGEVQW-UHFFFAOYSA-N")

    text = "".join(formats.pieces([FAILED, prediction(candidate(), other)], kind, RUN, names))

    if kind == "sdf":
        assert text.count(">  <CANDIDATE_NAME>\n=ethanol\n") == 1
    elif kind == "jsonl":
        found = json.loads(text.splitlines()[1])["candidates"]
        assert [one["candidate_name"] for one in found] == ["=ethanol", ""]
    else:
        head, *rows = csv.reader(io.StringIO(text), delimiter="," if kind == "csv" else "\t")
        assert head == [*formats.COLUMNS, *NAME_COLUMNS]
        assert [row[-2:] for row in rows] == [["", ""], ["'=ethanol", "alcohols"], ["", ""]]


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


def test_summaries_have_the_columns_and_values_of_their_importers(run):
    names = ("out.csv", "out.structure_identifications.tsv", "out.mzmine.csv", "out.gnps.tsv")
    ours, sirius, mzmine, gnps = (rows_of(run / name) for name in names)

    # The first candidate of each feature.
    assert list(sirius[0]) == SIRIUS.split()
    ids = [(row["mappingFeatureId"], row["structurePerIdRank"]) for row in sirius]
    assert ids == [("17", "1"), ("5", "1")]
    expected = {
        "InChIkey2D": ours[0]["inchikey14"], "smiles": ours[0]["smiles"],
        "ConfidenceScoreExact": ours[0]["confidence"], "molecularFormula": "C9H8O4",
        "ionMass": "181.04954", "retentionTimeInSeconds": "90", "retentionTimeInMinutes": "1.5",
    }  # fmt: skip
    assert sirius[0].items() >= expected.items()
    # All candidates, with minutes.
    assert set(mzmine[0]) == MZMINE
    aspirin = [
        (row["rt"], row["neutral_mass"], row["adduct"]) for row in mzmine if row["id"] == "17"
    ]
    assert aspirin == [("1.5", "180.042259", "[M+H]+")] * 3
    assert all(0 <= float(row["score"]) <= 1 and row["name"] == row["inchi_key"] for row in mzmine)
    # A node for every feature.
    assert next(iter(gnps[0])) == "cluster index"
    of_nodes = ("cluster index", "duallgd_status")
    nodes = [(*map(row.get, of_nodes), row["duallgd_smiles"] != "") for row in gnps]
    assert nodes == [("17", "ok", True), ("5", "ok", True), ("8", "formula_mismatch", False)]


def test_merge_writes_the_same_summaries_and_refuses_others(run, tmp_path):
    merge(request(str(run / "out.csv"), tmp_path / "again.csv", summaries=("gnps",)))

    assert (tmp_path / "again.gnps.tsv").read_bytes() == (run / "out.gnps.tsv").read_bytes()
    assert not (tmp_path / "again.mzmine.csv").exists()
    asked = request(str(run / "in.mgf"), run / "out.csv", summaries=("metfrag",))
    with pytest.raises(UsageError, match="'metfrag' is not known; choose sirius, mzmine, gnps"):
        predict(asked, stub_model())


BROKEN = "BEGIN IONS\nPEPMASS=abc\n100.0 x\nEND IONS\n"


def written(folder, content, name="in.mgf"):
    """How many features were written and not, and why; and the remarks of the table."""
    (folder / name).write_bytes(content)
    try:
        result = write_features(
            (str(folder / name),), str(folder / "out.mgf"), "run", FeatureSettings()
        )
    except UnreadableError as error:
        result = str(error)
    return result, [row["remarks"] for row in rows_of(folder / "out.csv")]


@pytest.mark.parametrize(
    ("name", "text"),
    [("in.mgf", BROKEN.encode()), ("in.mzML", b"<mzML><run><spectrum id='scan=1' ")],
)
def test_where_no_record_can_be_read_it_is_an_error_and_the_table_says_why(tmp_path, name, text):
    said, (remarks,) = written(tmp_path, text, name)

    assert said == f"none of 1 record can be read: {remarks}; see {tmp_path / 'out.csv'}"
    assert said.count(";") > 1


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_read_is_written_and_what_is_not_is_said(tmp_path, packed):
    content = (BROKEN + block(CAFFEINE) * 50).encode()

    (n_written, n_left_out, why), rows = written(
        tmp_path, gzip.compress(content)[:-40] if packed else content
    )

    assert n_written + n_left_out == len(rows)
    assert n_written > 0
    assert (n_left_out, "the file ends early after" in why) == (1 + packed, packed)
