"""mzTab-M: rules typed from the specification, and what a reader of others makes of it."""

import io
import re

import pytest
from pyteomics import mztab

from duallgd_cli.predict.run import merge, predict
from duallgd_cli.results import Header
from duallgd_cli.spectra.types import Source
from duallgd_cli.writers.mztab import document
from tests.conftest import EXAMPLES
from tests.made_runs import request
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
TABLES = {"SMH": "SML", "SFH": "SMF", "SEH": "SME"}  # by what the line of their columns begins with


class Parsed:
    """Metadata and tables of a file; every row as a dictionary."""

    def __init__(self, text):
        self.text, self.metadata, self.tables, columns = text, {}, {}, {}
        for line in text.splitlines():
            prefix, *cells = line.split("\t")
            assert all(cell.strip() for cell in cells), f"an empty cell in {line!r}"
            if prefix == "MTD":
                assert not self.tables
                assert cells[0] not in self.metadata
                self.metadata[cells[0]] = cells[1]
            elif prefix in TABLES:
                columns[TABLES[prefix]], self.tables[TABLES[prefix]] = cells, []
            elif prefix in columns:
                assert prefix == [*self.tables][-1]
                self.tables[prefix].append(dict(zip(columns[prefix], cells, strict=True)))
            else:
                assert prefix in {"", "COM"}


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mztab")
    bad = folder / "bad.mgf"
    bad.write_text(HOSTILE)
    inputs = (str(EXAMPLES / "spectra.mgf"), str(bad))
    made = request(inputs, folder / "out.csv", formulas=EXAMPLES / "formulas.csv")
    predict(made, stub_model())
    merge(request(str(folder / "out.csv"), folder / "out.mztab"))
    return Parsed((folder / "out.mztab").read_text("utf-8"))


def test_sections_and_mandatory_fields_stand_in_order(parsed):
    names = [re.sub(r"\[\d+\]", "[n]", name) for name in parsed.metadata]
    places = [names.index(name) for name in MANDATORY.split()]

    assert [*parsed.tables] == ["SML", "SMF", "SME"]
    assert places == sorted(places)
    assert parsed.metadata["mzTab-version"] == "2.0.0-M"


def test_runs_name_their_file_its_digest_and_polarity(parsed):
    said = parsed.metadata

    assert said["ms_run[1]-location"].endswith("spectra.mgf")
    assert re.fullmatch(r"[0-9a-f]{64}", said["ms_run[2]-hash"])
    assert "MS:1000130" in said["ms_run[1]-scan_polarity[1]"]
    assert "MS:1000465" in said["ms_run[2]-scan_polarity[1]"]  # nothing says which
    assert said["study_variable[1]-assay_refs"] == "assay[1]|assay[2]"


@pytest.mark.parametrize("section", COLUMNS)
def test_every_cell_is_what_the_schema_says(parsed, section):
    rules = dict(rule.split("=") for rule in COLUMNS[section].split())
    assert parsed.tables[section]
    for row in parsed.tables[section]:
        names = list(row)
        assert names[: len(rules)] == list(rules)
        assert all(re.fullmatch(r"opt_global_[\w:-]+", name) for name in names[len(rules) :])
        ids = row.get("database_identifier", "").count("|")
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
    molecules, features, evidence = parsed.tables.values()
    listed = [row["SME_ID_REFS"].split("|") for row in features]

    assert [row["SMF_ID_REFS"] for row in molecules] == [row["SMF_ID"] for row in features]
    ids = [row["SME_ID"] for row in evidence]
    assert ids == [str(number) for number in range(1, len(ids) + 1)]
    assert [ref for refs in listed for ref in refs if ref != "null"] == ids
    for row, refs in zip(features, listed, strict=True):
        assert row["SME_ID_REF_ambiguity_code"] == ("1" if len(refs) > 1 else "null")
    for row in evidence:
        measured, theory = (float(row[f"{kind}_mass_to_charge"]) for kind in ("exp", "theoretical"))
        assert abs(measured - theory) < 1e-5 * theory
        assert 0 <= float(row["id_confidence_measure[1]"]) <= 1
        assert row["charge"] == "1"


def test_features_without_candidates_are_there_and_those_without_a_mass_are_counted(parsed):
    last = parsed.tables["SML"][-1] | parsed.tables["SMF"][-1]

    expected = {
        "opt_global_status": "unsupported_adduct", "reliability": "5", "smiles": "null",
        "best_id_confidence_value": "null", "exp_mass_to_charge": "195.0877",
    }  # fmt: skip
    assert last.items() >= expected.items()
    assert "COM\t1 spectrum left out, without a precursor m/z" in parsed.text
    read = mztab.MzTab(io.StringIO(parsed.text), table_format="dict")  # of pyteomics
    assert len(read.small_molecule_table["rows"]) == len(parsed.tables["SML"])


def document_of(*predictions, names=("a.mgf",), **settings):
    header = Header("1", settings, {}, tuple({"name": name} for name in names))
    return Parsed("".join(document(predictions, header)))


@pytest.mark.parametrize(
    ("databases", "said"),
    [((), "de novo"), (("folder/mine.smi", 'the "other".csv'), "mine.smi and the 'other'.csv")],
)
def test_a_feature_without_candidates_has_its_adduct_and_the_databases(databases, said):
    nothing = prediction(
        status="no_candidate", adduct="[M+H]+", adduct_source="file", message="m", schymanski="4"
    )

    made = document_of(nothing, databases=[{"name": name} for name in databases])

    (molecule,), (feature,), _ = made.tables.values()
    expected = {
        "adduct_ions": "[M+H]+", "smiles": "null", "reliability": "4",
        "opt_global_adduct_source": "file", "opt_global_message": "m; peaks left out",
        "opt_global_assumptions": "minutes",
    }  # fmt: skip
    assert molecule.items() >= expected.items()
    assert feature["opt_global_usi"] == "mzspec:USI000000:a:scan:12"
    assert made.metadata["database[1]"] == f'[, , "{said}", ]'


@pytest.mark.parametrize("level", ["2a", "2b", "3", "4", "5"])
def test_a_candidate_has_the_level_of_the_other_tables_and_the_spectra_of_its_file(level):
    source = Source("a.mgf.gz", 4)
    one = prediction(candidate(), schymanski=level, source=source, group=(source,))

    (molecule,), _, (evidence,) = document_of(one, names=("a.mgf", "a.mgf.gz")).tables.values()

    assert molecule["reliability"] == level
    assert evidence["spectra_ref"] == "ms_run[2]:index=4"
