"""mzTab-M 2.0, the exchange format of the Proteomics Standards Initiative for small molecules.

A small molecule (SML) and a feature (SMF) for every feature with a precursor m/z, with candidates
or without, and an evidence row (SME) for every candidate. Candidates share the evidence of their
spectra, so more than one is marked as ambiguous. There are no quantities: their columns are null.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import PurePath
from tempfile import SpooledTemporaryFile
from typing import Any, Final
from urllib.parse import quote

from duallgd_cli.chem.adduct import Adduct, parse_adduct, precursor_mz
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import Failure, FormulaError, counted, printable
from duallgd_cli.results import Candidate, Header, Prediction, sentences

NULL: Final = "null"
_IN_MEMORY: Final = 1 << 24  # bytes of each table; more lie on the disk
_FORMULA: Final = re.compile(r"([A-Z][a-z]?\d*)+")
_INDEXED: Final = "[MS, MS:1000774, multiple peak list nativeID format, ]"
_FORMATS: Final = {
    ".mgf": "[MS, MS:1001062, Mascot MGF format, ]",
    ".mzml": "[MS, MS:1000584, mzML format, ]",
    ".mzxml": "[MS, MS:1000566, ISB mzXML format, ]",
}
_POLARITIES: Final = {
    1: "[MS, MS:1000130, positive scan, ]",
    -1: "[MS, MS:1000129, negative scan, ]",
    0: "[MS, MS:1000465, scan polarity, ]",  # where no adduct says which
}
_RELIABILITY: Final = "[MS, MS:1002955, hr-ms compound identification confidence level, ]"
_CONFIDENCE: Final = "[, , duallgd confidence, ]"
_MASS_ONLY = "5"  # of the levels of Schymanski et al. (2014), of what was not predicted
_SML: Final = (
    "SML_ID SMF_ID_REFS database_identifier chemical_formula smiles inchi chemical_name uri "
    "theoretical_neutral_mass adduct_ions reliability best_id_confidence_measure "
    "best_id_confidence_value"
)
_OF_ALL: Final = ("abundance_study_variable[1]", "abundance_variation_study_variable[1]")
_OWN: Final = (
    *("spectrum_id", "feature_id", "status", "message", "adduct_source", "assumptions", "level"),
)
_SMF: Final = (
    "SMF_ID SME_ID_REFS SME_ID_REF_ambiguity_code adduct_ion isotopomer exp_mass_to_charge charge "
    "retention_time_in_seconds retention_time_in_seconds_start retention_time_in_seconds_end"
)
_SME: Final = (
    "SME_ID evidence_input_id database_identifier chemical_formula smiles inchi chemical_name uri "
    "derivatized_form adduct_ion exp_mass_to_charge charge theoretical_mass_to_charge spectra_ref "
    "identification_method ms_level id_confidence_measure[1] id_confidence_measure[2] rank "
    "opt_global_samples opt_global_sources"
)


def document(predictions: Iterable[Prediction], header: Header) -> Iterator[str]:
    """The pieces of a file; memory does not grow with the run."""
    inputs = list({entry["name"]: entry for entry in header.inputs}.values())
    runs = {str(entry["name"]): number for number, entry in enumerate(inputs, 1)}
    polarities: dict[int, set[int]] = {number: set() for number in runs.values()}
    abundances = [f"abundance_assay[{number}]" for number in polarities]
    columns = {
        "SML": [*_SML.split(), *abundances, *_OF_ALL, *(f"opt_global_{name}" for name in _OWN)],
        "SMF": [*_SMF.split(), *abundances, "opt_global_usi"],
        "SME": _SME.split(),
    }
    n_evidence = n_left_out = 0
    with ExitStack() as kept:
        tables = {
            name: kept.enter_context(SpooledTemporaryFile(_IN_MEMORY, "w+t", encoding="utf-8"))
            for name in columns
        }

        def write(name: str, row: Mapping[str, object]) -> None:
            tables[name].write(_line(name, map(row.get, columns[name])))

        for number, prediction in enumerate(predictions, 1):
            polarity = {"+": 1, "-": -1}.get(prediction.adduct[-1:], 0)
            polarities[runs[prediction.source.file]].add(polarity)
            if prediction.precursor_mz is None:
                n_left_out += 1
                continue
            ids = range(n_evidence + 1, n_evidence + 1 + len(prediction.candidates))
            n_evidence += len(ids)
            write("SML", _molecule(number, prediction))
            write("SMF", _feature(number, prediction, ids))
            for position, candidate in zip(ids, prediction.candidates, strict=True):
                write("SME", _evidence(position, prediction, candidate, runs))
        yield from (_line("MTD", pair) for pair in _metadata(header, inputs, polarities))
        if n_left_out:
            left_out = counted(n_left_out, "spectrum", "spectra")
            yield _line("COM", [f"{left_out} left out, without a precursor m/z"])
        for heading, (name, rows) in zip(("SMH", "SFH", "SEH"), tables.items(), strict=True):
            yield "\n" + _line(heading, columns[name])
            rows.seek(0)
            yield from rows


def _line(prefix: str, cells: Iterable[object]) -> str:
    """A line; text has no tabs and line breaks, and nothing is ``null``, as no cell is empty."""
    texts = ["" if cell is None else " ".join(printable(str(cell)).split()) for cell in cells]
    return "\t".join([prefix, *(text or NULL for text in texts)]) + "\n"


def _metadata(
    header: Header, inputs: Sequence[Mapping[str, Any]], polarities: Mapping[int, set[int]]
) -> Iterator[tuple[str, str]]:
    """Names and values, in the order of the specification."""
    runs = list(polarities)
    searched = [PurePath(entry["name"]).name for entry in header.settings.get("databases", ())]
    database = printable(" and ".join(searched) or "de novo").replace('"', "'")
    yield "mzTab-version", "2.0.0-M"
    yield "mzTab-ID", "duallgd"
    yield "description", "Structures proposed for tandem mass spectra; no quantities."
    yield "software[1]", f"[, , duallgd, {header.version}]"
    yield "quantification_method", "[, , none, ]"
    for number, entry in zip(runs, inputs, strict=True):
        yield from _run(f"ms_run[{number}]", entry, polarities[number])
    for number in runs:
        yield f"assay[{number}]", f"assay {number}"
        yield f"assay[{number}]-ms_run_ref", f"ms_run[{number}]"
    assays = "|".join(f"assay[{number}]" for number in runs)
    yield from {
        "study_variable[1]": "undefined",
        "study_variable[1]-assay_refs": assays,
        "study_variable[1]-description": "all spectra",
        "cv[1]-label": "MS",
        "cv[1]-full_name": "PSI-MS controlled vocabulary",
        "cv[1]-version": "4.1.155",
        "cv[1]-uri": "http://purl.obolibrary.org/obo/ms.obo",
        "database[1]": f'[, , "{database}", ]',
        "database[1]-prefix": "dn",
        "database[1]-version": "Unknown",
        "database[1]-uri": NULL,
        "small_molecule-quantification_unit": "[, , none, ]",
        "small_molecule_feature-quantification_unit": "[, , none, ]",
        "small_molecule-identification_reliability": _RELIABILITY,
        "id_confidence_measure[1]": _CONFIDENCE,
        "id_confidence_measure[2]": "[, , duallgd score, ]",
    }.items()


def _run(name: str, entry: Mapping[str, Any], polarities: set[int]) -> Iterator[tuple[str, str]]:
    """What is said of one input file."""
    path = PurePath(str(entry["name"]))
    relative = NULL if str(path) == "-" else f"file:{quote(path.as_posix())}"
    yield f"{name}-location", path.as_uri() if path.is_absolute() else relative
    ending = next((end for end in map(str.lower, path.suffixes) if end in _FORMATS), "")
    if ending:
        yield f"{name}-format", _FORMATS[ending]
        yield f"{name}-id_format", _INDEXED
    for number, polarity in enumerate(sorted(polarities - {0}, reverse=True) or [0], 1):
        yield f"{name}-scan_polarity[{number}]", _POLARITIES[polarity]
    if entry.get("sha256"):
        yield f"{name}-hash", str(entry["sha256"])
        yield f"{name}-hash_method", "[MS, MS:1003151, SHA-256, ]"


def _ion(prediction: Prediction) -> tuple[str | None, int]:
    """Name and charge of the ion; what a file calls an adduct may be anything."""
    adduct = parse_adduct(prediction.adduct)
    return (None, 1) if isinstance(adduct, Failure) else (adduct.name, abs(adduct.charge))


def _neutral(text: str) -> str:
    """A formula in Hill notation without its charge; what a file calls one may be anything."""
    try:
        return str(replace(Formula.parse(text), charge=0))
    except FormulaError:
        return text if _FORMULA.fullmatch(text) else ""


def _molecule(number: int, prediction: Prediction) -> dict[str, object]:
    """The row of a feature among the small molecules, by column: its candidates, best first."""
    found = prediction.candidates
    masses = (f"{Formula.parse(one.formula).mass:.6f}" for one in found)
    return {
        "SML_ID": number,
        "SMF_ID_REFS": number,
        "database_identifier": "|".join(f"dn:{one.inchikey}" for one in found),
        "chemical_formula": "|".join(_neutral(one.formula) for one in found or [prediction]),
        "smiles": "|".join(one.smiles for one in found),
        "inchi": "|".join(one.inchi for one in found),
        "theoretical_neutral_mass": "|".join(masses),
        "adduct_ions": "|".join(dict.fromkeys(one.adduct for one in found)) or _ion(prediction)[0],
        "reliability": prediction.schymanski or _MASS_ONLY,
        "best_id_confidence_measure": _CONFIDENCE if found else None,
        "best_id_confidence_value": f"{found[0].confidence:.4g}" if found else None,
        **{f"opt_global_{name}": getattr(prediction, name) for name in _OWN},
        "opt_global_message": sentences(prediction.message, prediction.warnings),
    }


def _feature(number: int, prediction: Prediction, evidence: Sequence[int]) -> dict[str, object]:
    """The row of a feature, by column: what was measured, and which evidence names it."""
    (adduct, charge), time = _ion(prediction), prediction.rt_seconds
    return {
        "SMF_ID": number,
        "SME_ID_REFS": "|".join(map(str, evidence)),
        "SME_ID_REF_ambiguity_code": "1" if len(evidence) > 1 else None,
        "adduct_ion": adduct,
        "exp_mass_to_charge": repr(float(prediction.precursor_mz or 0.0)),
        "charge": charge,
        "retention_time_in_seconds": None if time is None else f"{time:.6g}",
        "opt_global_usi": prediction.usi,
    }


def _evidence(
    number: int, prediction: Prediction, candidate: Candidate, runs: Mapping[str, int]
) -> dict[str, object]:
    """The row of a candidate, by column."""
    spectra = "|".join(
        f"ms_run[{runs[source.file]}]:index={source.index}" for source in prediction.group
    )
    adduct = parse_adduct(candidate.adduct)
    assert isinstance(adduct, Adduct)
    theory_mz = precursor_mz(Formula.parse(candidate.formula), adduct)
    return {
        "SME_ID": number,
        "evidence_input_id": spectra,
        "database_identifier": f"dn:{candidate.inchikey}",
        "chemical_formula": _neutral(candidate.formula),
        "smiles": candidate.smiles,
        "inchi": candidate.inchi,
        "adduct_ion": candidate.adduct,
        "exp_mass_to_charge": repr(float(prediction.precursor_mz or 0.0)),
        "charge": abs(adduct.charge),
        "theoretical_mass_to_charge": f"{theory_mz:.6f}",
        "spectra_ref": spectra,
        "identification_method": "[, , duallgd, ]",
        "ms_level": "[MS, MS:1000511, ms level, 2]",
        "id_confidence_measure[1]": f"{candidate.confidence:.4g}",
        "id_confidence_measure[2]": f"{candidate.score:.6g}",
        "rank": candidate.rank,
        "opt_global_samples": candidate.samples,
        "opt_global_sources": " ".join(candidate.sources),
    }
