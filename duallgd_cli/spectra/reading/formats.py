"""Which format of spectra a text is, and what to say of one that is none of them.

A format follows from signs in the first characters, not from the name of the file; the name decides
only where a long preamble hides the first spectrum.
"""

import re
from pathlib import PurePath
from typing import Final

from duallgd_cli.files import PACKED_ENDINGS

FORMATS: Final = (
    "MGF, mzML, mzXML, MSP, MassBank records, SIRIUS .ms, mzSpecLib, JSON or a MassSpecGym TSV"
)
HEAD_CHARACTERS: Final = 1 << 16  # that signs are looked for in
# Tried in this order; the first that is found names the format.
_SIGNS: Final = (
    ("mzml", re.compile(r"<(?:indexed)?mzML\b")),
    ("mzxml", re.compile(r"<(?:mzXML|msRun)\b")),
    ("mzspeclib", re.compile(r"^[ \t]*<[ \t]*mzSpecLib\b", re.IGNORECASE | re.MULTILINE)),
    ("mgf", re.compile(r"^[ \t]*BEGIN[ \t]+IONS[ \t]*$", re.IGNORECASE | re.MULTILINE)),
    ("ms", re.compile(r"^>[ \t]*(?:compound|parentmass|ms[12]|collision)\b", re.I | re.M)),
    ("json", re.compile(r"\A\s*[\[{]")),
    (
        "table",
        re.compile(
            r"\A(?:\s|#[^\n]*\n|\"?sep=[^\n]*\n)*"
            r"(?=[^\n]*\bmzs\b)(?=[^\n]*\bintensities\b)[^\n]*[\t;,]",
            re.IGNORECASE,
        ),
    ),
    ("massbank", re.compile(r"^(?:(?:AC|CH|MS|PK)\$[A-Z_/]+:|RECORD_TITLE:)", re.MULTILINE)),
    ("msp", re.compile(r"^[ \t]*(?:num|number of) ?(?:peaks|features)[ \t]*:", re.I | re.M)),
    ("msp", re.compile(r"^[ \t]*(?:name|precursor_?mz)[ \t]*:", re.IGNORECASE | re.MULTILINE)),
)
_PLAIN_ENDINGS: Final = frozenset({"mgf", "msp", "ms"})
SUFFIXES: Final = {".mgf": "mgf", ".msp": "msp", ".ms": "ms", ".mzml": "mzml", ".mzxml": "mzxml"}
# Raw data of instruments, and what turns them into mzML.
_CONVERTERS: Final = {
    ".raw": "raw data of a Thermo or Waters instrument; convert it to mzML with "
    "ThermoRawFileParser or ProteoWizard's msconvert",
    ".d": "raw data of a Bruker or Agilent instrument; convert it to mzML with ProteoWizard's "
    "msconvert, or TIMSCONVERT for a timsTOF",
    ".wiff": "raw data of a Sciex instrument; convert it to mzML with ProteoWizard's msconvert",
    ".wiff2": "raw data of a Sciex instrument; convert it to mzML with ProteoWizard's msconvert",
}
_GIVE_SPECTRA: Final = "give the spectra that it is about, as MGF or mzML"
# Texts of other formats: a sign, what it is and what to do. Tried before the signs above.
_OTHERS: Final = (
    (r"<mzML\b(?=[\s\S]*(?:\bIMS:10\d+|id=\"IMS\"))", "an imzML image, whose peaks lie in a file "
     ".ibd beside it; export the MS/MS spectra of interest as mzML or MGF"),
    (r"<mzData\b", "mzData, which mzML has replaced; convert it with ProteoWizard's msconvert"),
    (r"<AnIML\b", "AnIML; export the MS/MS spectra as mzML or MGF"),
    (r"<CEF\b", "a CEF compound list of Agilent; export the MS/MS spectra as MGF or mzML"),
    (r"<MzIdentML\b", f"mzIdentML, which names peptides; {_GIVE_SPECTRA}"),
    (r"<msms_pipeline_analysis\b", f"pepXML, which names peptides; {_GIVE_SPECTRA}"),
    (r"<(?:featureMap|consensusMap|IdXML|TraML|mzQuantML)\b", "a list of features or "
     f"identifications as OpenMS writes it; {_GIVE_SPECTRA}"),
    (r"\A\s*<(?:!DOCTYPE\s+html|html)\b", "a web page, perhaps an error or a login; download "
     "the file again"),
    (r"^MTD\tmzTab-version", f"mzTab, a table of results; {_GIVE_SPECTRA}"),
    (r"^\s*##(?:TITLE|JCAMP-?DX)\s*=", "JCAMP-DX, which names no precursor; export MS/MS spectra "
     "as MGF or MSP"),
    (r"\A(?:H\t[^\n]*\n)*S\t\d+\t\d+", "MS2 text of proteomics; convert it to MGF or mzML with "
     "ProteoWizard's msconvert"),
    (r"^M  END\s*$", "structures (SDF or MOL), which --database or --analogues takes; spectra "
     "come as MGF, MSP or mzML"),
    (r"\A\s*(?:usi\s+)?mzspec:", "a list of USIs, which are not looked up; download the spectra "
     "themselves, as MGF or JSON"),
)  # fmt: skip
_OTHER_SIGNS: Final = tuple(
    (re.compile(sign, re.IGNORECASE | re.MULTILINE), said) for sign, said in _OTHERS
)
_BARE_PEAKS: Final = re.compile(r"\A\s*\d+(?:\.\d+)?[ \t,;]+\d+(?:\.\d+)?\s*$", re.MULTILINE)
_TABLE: Final = re.compile(r"\A\s*[^\n]*[A-Za-z][^\n]*[\t;,]")


def format_of(text: str, name: str) -> tuple[str, str]:
    """The format of the first characters of a file, or "" and what is wrong with it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for sign, said in _OTHER_SIGNS:
        if sign.search(text):
            return "", f"is {said}"
    for file_format, sign in _SIGNS:
        if sign.search(text):
            return file_format, ""
    file_format = SUFFIXES.get(ending_of(PurePath(name)), "")
    # By its ending alone only text whose first spectrum may come late; XML always shows its root.
    if file_format in _PLAIN_ENDINGS and len(text) >= HEAD_CHARACTERS // 2:
        return file_format, ""
    if not text.strip():
        return "", f"is empty; expected {FORMATS}"
    if _BARE_PEAKS.search(text):
        return "", (
            "is not recognised: peaks alone are no spectrum; put them between BEGIN IONS and END "
            "IONS, with a line PEPMASS= that gives the precursor m/z"
        )
    if _TABLE.search(text):
        return "", (
            "is not recognised: a table of spectra has columns mzs and intensities; otherwise "
            f"expected {FORMATS}"
        )
    return "", f"is not recognised; expected {FORMATS}"


def raw_data(path: str) -> str:
    """Whose raw data a file or a folder is by its ending, and what converts them; "" if none."""
    return _CONVERTERS.get(PurePath(path).suffix.lower(), "")


def ending_of(path: PurePath) -> str:
    """The last ending but for that of a packed file, in lower case; "" for none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    plain = [suffix for suffix in suffixes if suffix not in PACKED_ENDINGS]
    return plain[-1] if plain else ""
