"""mzTab-M: rules typed from the specification, and what a reader of others makes of it."""

import io
import re
from collections import defaultdict

import pytest
from pyteomics import mztab

from duallgd_cli.predict.run import merge, predict
from duallgd_cli.predict.settings import PredictRequest
from duallgd_cli.results import Header
from duallgd_cli.spectra.types import Source
from duallgd_cli.writers.mztab import document
from tests.cli.conftest import EXAMPLES
from tests.stub_model import stub_model
from tests.unit.writers.test_writers import candidate, prediction

# Fields that a file must have, in the order of the specification; [n] stands for a number.
MANDATORY = (
    "mzTab-version mzTab-ID software[n] quantification_method ms_run[n]-location "
    "ms_run[n]-scan_polarity[n] assay[n] assay[n]-ms_run_ref study_variable[n] "
    "study_variable[n]-assay_refs study_variable[n]-description cv[n]-label cv[n]-full_name "
    "cv[n]-version cv[n]-uri database[n] database[n]-prefix database[n]-version database[n]-uri "
    "small_molecule-quantification_unit small_molecule_feature-quantification_unit "
    "small_molecule-identification_reliability id_confidence_measure[n]"
)
# What values look like, as the specification says it.
KINDS = {
    "PARAMETER": r"\[[^,\]]*, ?[^,\]]*, ?[^\]]+, ?[^\]]*\]",
    "ADDUCT": r"\[\d*M([+-]\w+)*\]\d*[+-]",
    "NUMBER": r"-?\d+(\.\d+)?(e[+-]?\d+)?",
    "COUNT": r"[1-9]\d*",
    "TEXT": r"[^\t|]*\S[^\t|]*",
    "FORMULA": r"([A-Z][a-z]?\d*)+",
    "IDENTIFIER": r"dn:[A-Z]{14}-[A-Z]{10}-[A-Z]",
    "INCHI": r"InChI=1S?/.+",
    "LEVEL": "1|2[ab]?|3|4|5",
    "CODE": "[123]",
    "ANY": ".+",
    "SPECTRUM": r"ms_run\[\d+\]:index=\d+",
}
# Every column of each table in order, with its kind, of the specification's JSON schema. ? may be
# null, * is a list with bars; lists marked # have as many entries as database_identifier.
COLUMNS = {
    "SML": "SML_ID=COUNT SMF_ID_REFS=*COUNT database_identifier=?*#IDENTIFIER "
    "chemical_formula=?*#FORMULA smiles=?*#TEXT inchi=?*#INCHI chemical_name=?*#TEXT uri=?*#TEXT "
    "theoretical_neutral_mass=?*#NUMBER adduct_ions=?*ADDUCT reliability=LEVEL "
    "best_id_confidence_measure=?PARAMETER best_id_confidence_value=?NUMBER "
    "abundance_assay[1]=?NUMBER abundance_assay[2]=?NUMBER abundance_study_variable[1]=?NUMBER "
    "abundance_variation_study_variable[1]=?NUMBER",
    "SMF": "SMF_ID=COUNT SME_ID_REFS=?*COUNT SME_ID_REF_ambiguity_code=?CODE adduct_ion=?ADDUCT "
    "isotopomer=?PARAMETER exp_mass_to_charge=NUMBER charge=COUNT "
    "retention_time_in_seconds=?NUMBER retention_time_in_seconds_start=?NUMBER "
    "retention_time_in_seconds_end=?NUMBER abundance_assay[1]=?NUMBER abundance_assay[2]=?NUMBER",
    "SME": "SME_ID=COUNT evidence_input_id=ANY database_identifier=IDENTIFIER "
    "chemical_formula=?FORMULA smiles=?TEXT inchi=?INCHI chemical_name=?TEXT uri=?TEXT "
    "derivatized_form=?PARAMETER adduct_ion=?ADDUCT exp_mass_to_charge=NUMBER charge=COUNT "
    "theoretical_mass_to_charge=NUMBER spectra_ref=*SPECTRUM identification_method=PARAMETER "
    "ms_level=PARAMETER id_confidence_measure[1]=?NUMBER id_confidence_measure[2]=?NUMBER "
    "rank=COUNT",
}
HOSTILE = """BEGIN IONS
TITLE=neither a formula nor an adduct
PEPMASS=195.0877
FORMULA=C6|H6
ADDUCT=M|H
55.0 10
END IONS
BEGIN IONS
TITLE=a\ttab "and" |a bar|
PEPMASS=195.0877
CHARGE=1+
FORMULA=C6H6
55.0 10
END IONS
BEGIN IONS
TITLE=no precursor
55.0 10
END IONS
"""


class Parsed:
    """Metadata and tables of a file; every row as a dictionary."""

    def __init__(self, path):
        self.metadata, self.tables, self.order, columns = {}, defaultdict(list), [], {}
        for line in path.read_text("utf-8").splitlines():
            prefix, *cells = line.split("\t")
            self.order += [prefix] if prefix not in self.order else []
            assert all(cell.strip() for cell in cells), f"an empty cell in {line!r}"
            if prefix == "MTD":
                assert cells[0] not in self.metadata
                self.metadata[cells[0]] = cells[1]
            elif prefix in {"SMH", "SFH", "SEH"}:
                columns[{"SMH": "SML", "SFH": "SMF", "SEH": "SME"}[prefix]] = cells
            elif prefix in {"SML", "SMF", "SME"}:
                self.tables[prefix].append(dict(zip(columns[prefix], cells, strict=True)))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mztab")
    bad = folder / "bad.mgf"
    bad.write_text(HOSTILE)
    request = PredictRequest(
        inputs=(str(EXAMPLES / "spectra.mgf"), str(bad)),
        formulas=EXAMPLES / "formulas.csv",
        output=str(folder / "out.csv"),
    )
    predict(request, stub_model())
    merge(PredictRequest((str(folder / "out.csv"),), str(folder / "out.mztab")))
    return folder / "out.mztab"


@pytest.fixture(scope="module")
def parsed(made):
    return Parsed(made)


def test_sections_and_mandatory_fields_stand_in_order(parsed):
    assert [one for one in parsed.order if one not in {"", "COM"}] == [
        *("MTD", "SMH", "SML", "SFH", "SMF", "SEH", "SME")
    ]
    names = [re.sub(r"\[\d+\]", "[n]", name) for name in parsed.metadata]
    places = [names.index(name) for name in MANDATORY.split()]
    assert places == sorted(places)
    assert parsed.metadata["mzTab-version"] == "2.0.0-M"


def test_runs_name_their_file_its_digest_and_polarity(parsed):
    told = parsed.metadata

    assert told["ms_run[1]-location"].endswith("spectra.mgf")
    assert re.fullmatch(r"[0-9a-f]{64}", told["ms_run[2]-hash"])
    assert "MS:1000130" in told["ms_run[1]-scan_polarity[1]"]
    assert "MS:1000465" in told["ms_run[2]-scan_polarity[1]"]  # nothing says which
    assert told["study_variable[1]-assay_refs"] == "assay[1]|assay[2]"


@pytest.mark.parametrize("section", COLUMNS)
def test_every_cell_is_what_the_schema_says(parsed, section):
    rules = dict(rule.split("=") for rule in COLUMNS[section].split())
    assert parsed.tables[section]
    for row in parsed.tables[section]:
        names = list(row)
        assert names[: len(rules)] == list(rules)
        assert all(re.fullmatch(r"opt_global_[\w:-]+", name) for name in names[len(rules) :])
        ids = row["database_identifier"].count("|") if "database_identifier" in row else 0
        for name, rule in rules.items():
            flags, kind = re.fullmatch(r"([?*#]*)(.*)", rule).groups()
            value, pattern = row[name], KINDS[kind]
            if value == "null":
                assert "?" in flags, (name, row)
                continue
            values = value.split("|") if "*" in flags else [value]
            assert all(re.fullmatch(pattern, one) for one in values), (name, value)
            assert "#" not in flags or value.count("|") == ids, (name, row)


def test_references_lead_from_molecule_to_feature_to_evidence(parsed):
    molecules, features, evidence = (parsed.tables[name] for name in ("SML", "SMF", "SME"))
    ids = [row["SME_ID"] for row in evidence]

    assert ids == [str(number) for number in range(1, len(ids) + 1)]
    assert [row["SMF_ID_REFS"] for row in molecules] == [row["SMF_ID"] for row in features]
    listed = [ref for row in features for ref in row["SME_ID_REFS"].split("|") if ref != "null"]
    assert listed == ids
    for row in features:
        several = "|" in row["SME_ID_REFS"]
        assert row["SME_ID_REF_ambiguity_code"] == ("1" if several else "null")
    for row in evidence:
        measured, theory = (float(row[f"{kind}_mass_to_charge"]) for kind in ("exp", "theoretical"))
        assert abs(measured - theory) < 1e-5 * theory
        assert 0 <= float(row["id_confidence_measure[1]"]) <= 1
        assert row["charge"] == "1"


def test_features_without_candidates_are_there_and_those_without_a_mass_are_counted(parsed, made):
    hostile, text = parsed.tables["SML"][-1], made.read_text("utf-8")

    assert hostile["opt_global_status"] == "unsupported_adduct"
    assert hostile["smiles"] == hostile["best_id_confidence_value"] == "null"
    assert hostile["reliability"] == "5"
    assert parsed.tables["SMF"][-1]["exp_mass_to_charge"] == "195.0877"
    assert "COM\t1 spectra without a precursor m/z are left out" in text
    read = mztab.MzTab(io.StringIO(text), table_format="dict")  # of pyteomics
    assert len(read.small_molecule_table["rows"]) == len(parsed.tables["SML"])


def document_of(path, *predictions, names=("a.mgf",), **settings):
    header = Header("1", settings, {}, tuple({"name": name} for name in names))
    path.write_text("".join(document(predictions, header)))
    return Parsed(path)


@pytest.mark.parametrize(
    ("databases", "said"),
    [((), "de novo"), (("folder/mine.smi", 'the "other".csv'), "mine.smi and the 'other'.csv")],
)
def test_a_feature_without_candidates_has_its_adduct_and_the_databases(tmp_path, databases, said):
    nothing = prediction(
        status="no_candidate", adduct="[M+H]+", adduct_source="file", message="m", schymanski="4"
    )

    found = document_of(
        tmp_path / "out.mztab", nothing, databases=[{"name": name} for name in databases]
    )

    (row,) = found.tables["SML"]
    assert (row["adduct_ions"], row["smiles"], row["reliability"]) == ("[M+H]+", "null", "4")
    assert row["opt_global_adduct_source"] == "file"
    assert row["opt_global_message"] == "m; peaks left out"
    assert row["opt_global_assumptions"] == "minutes"
    assert found.tables["SMF"][0]["opt_global_usi"] == "mzspec:USI000000:a:scan:12"
    assert found.metadata["database[1]"] == f'[, , "{said}", ]'


@pytest.mark.parametrize("level", ["2a", "2b", "3", "4", "5"])
def test_the_reliability_is_the_level_of_the_other_tables(tmp_path, level):
    found = document_of(tmp_path / "out.mztab", prediction(candidate(), schymanski=level))

    assert found.tables["SML"][0]["reliability"] == level


def test_a_spectrum_is_of_its_own_file_whatever_the_others_are_called(tmp_path):
    source = Source("a.mgf.gz", 4)
    one = prediction(candidate(), source=source, group=(source,))

    found = document_of(tmp_path / "out.mztab", one, names=("a.mgf", "a.mgf.gz"))

    assert [row["spectra_ref"] for row in found.tables["SME"]] == ["ms_run[2]:index=4"]
