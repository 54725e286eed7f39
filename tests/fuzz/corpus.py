"""Sound input files in every format, made from the example spectra, for the fuzzer to break."""

import gzip
import json

from examples.make_examples import SPECTRA, Made, ion_mz, mgf, mzml, peaks_of

_FEW = SPECTRA[:4]


def sound_files():
    """Content by file name."""
    mgf_text = mgf(_FEW)
    files = {
        "plain.mgf": mgf_text,
        "crlf.mgf": mgf_text.replace("\n", "\r\n"),
        "gnps.mgf": _gnps(),
        "plain.mzML": mzml(_FEW[:2]),
        "plain.mzXML": _mzxml(),
        "plain.msp": _msp(),
        "plain.ms": _sirius(),
        "plain.tsv": _table(),
        "matchms.json": json.dumps(_json(), indent=1),
        "gnps.json": json.dumps([{**one, "peaks_json": str(one["peaks_json"])} for one in _json()]),
        "lines.json": "".join(f"{json.dumps(one)}\n" for one in _json()),
        "mona.json": json.dumps(_mona()),
        "massbank.txt": _massbank(),
        "semicolons.csv": _semicolons(),
        "plain.mzlib.json": json.dumps(_mzspeclib_json()),
        "plain.mzlib.txt": _mzspeclib(),
    }
    content = {name: text.encode() for name, text in files.items()}
    packed = {f"{n}.gz": gzip.compress(content[n], mtime=0) for n in ("plain.mgf", "plain.mzML")}
    return content | packed


def _gnps():
    """An MGF as GNPS and MZmine write them: other keys, MS1 blocks, missing values."""
    blocks = []
    for scan, made in enumerate(_FEW, start=1):
        peaks = "\n".join(f"{mz:.4f}\t{height:.1f}" for mz, height in _rows(made))
        blocks += [
            f"BEGIN IONS\nSCANS={scan}\nMSLEVEL=1\nPEPMASS={ion_mz(made.precursor):.4f}\n"
            f"CHARGE=0\n{ion_mz(made.precursor):.4f} 1000\nEND IONS\n",
            f"BEGIN IONS\nTITLE=Scan {scan}, µ-metabolite\nPEPMASS={ion_mz(made.precursor):.4f} "
            f"8000\nCHARGE=0+\nION={made.adduct}\nIONMODE={made.adduct[-1]}\nSMILES=N/A\n"
            f"MOLECULAR_FORMULA={made.formula}\nRTINSECONDS=60-65\nMSLEVEL=2\n{peaks}\nEND IONS\n",
        ]
    return "\n".join(blocks)


def _msp():
    records = []
    for made in _FEW:
        rows = _rows(made)
        peaks = "\n".join(f"{mz:.4f} {height:.0f}" for mz, height in rows)
        records.append(
            f"Name: unknown\nPrecursorMZ: {ion_mz(made.precursor):.4f}\n"
            f"Precursor_type: {made.adduct}\nIon_mode: P\nCollision_energy: {made.energy_ev} eV\n"
            f"Formula: {made.formula}\nNum Peaks: {len(rows)}\n{peaks}\n"
        )
    return "\n".join(records)


def _sirius():
    records = []
    for number, made in enumerate(_FEW):
        peaks = "\n".join(f"{mz:.4f} {height:.0f}" for mz, height in _rows(made))
        records.append(
            f">compound feature_{number}\n>formula {made.formula}\n"
            f">parentmass {ion_mz(made.precursor):.4f}\n>ionization {made.adduct}\n\n"
            f">collision {made.energy_ev}\n{peaks}\n"
        )
    return "\n".join(records)


def _table():
    columns = "identifier mzs intensities formula precursor_mz adduct instrument_type"
    lines = ["\t".join([*columns.split(), "collision_energy"])]
    for number, made in enumerate(_FEW):
        mzs, heights = zip(*_rows(made), strict=True)
        cells = [f"id{number}", _joined(mzs), _joined(heights), made.formula]
        cells += [f"{ion_mz(made.precursor):.4f}", made.adduct, "Orbitrap", str(made.energy_ev)]
        lines.append("\t".join(cells))
    return "\n".join([*lines, ""])


def _json():
    """Spectra as matchms writes them."""
    return [
        {
            "title": f"unknown {number}",
            "precursor_mz": round(ion_mz(made.precursor), 4),
            "adduct": made.adduct,
            "ionmode": "positive" if made.adduct.endswith("+") else "negative",
            "collision_energy": made.energy_ev,
            "formula": made.formula,
            "peaks_json": [list(row) for row in _rows(made)],
        }
        for number, made in enumerate(_FEW)
    ]


def _mona():
    """Spectra as MassBank of North America gives them."""
    return [
        {
            "id": f"XX00000{number}",
            "compound": [{"metaData": [{"name": "molecular formula", "value": made.formula}]}],
            "metaData": [
                {"name": "precursor m/z", "value": round(ion_mz(made.precursor), 4)},
                {"name": "precursor type", "value": made.adduct},
                {"name": "collision energy", "value": str(made.energy_ev), "unit": "eV"},
            ],
            "spectrum": " ".join(f"{mz:.4f}:{height:.1f}" for mz, height in _rows(made)),
        }
        for number, made in enumerate(_FEW)
    ]


def _massbank():
    records = []
    for number, made in enumerate(_FEW):
        rows = _rows(made)
        peaks = "\n".join(f"  {mz:.4f} {height:.1f} 999" for mz, height in rows)
        records.append(
            f"ACCESSION: MSBNK-Made_up-XX00000{number}\nRECORD_TITLE: unknown; LC-ESI-QFT; MS2\n"
            f"CH$NAME: unknown\nCH$FORMULA: {made.formula}\nAC$INSTRUMENT_TYPE: LC-ESI-QFT\n"
            "AC$MASS_SPECTROMETRY: MS_TYPE MS2\n"
            f"AC$MASS_SPECTROMETRY: COLLISION_ENERGY {made.energy_ev} eV\n"
            f"MS$FOCUSED_ION: PRECURSOR_M/Z {ion_mz(made.precursor):.4f}\n"
            f"MS$FOCUSED_ION: PRECURSOR_TYPE {made.adduct}\nPK$NUM_PEAK: {len(rows)}\n"
            f"PK$PEAK: m/z int. rel.int.\n{peaks}\n//\n"
        )
    return "".join(records)


def _semicolons():
    """The table as a spreadsheet saves it where commas mark decimals."""
    return "sep=;\r\n" + _table().replace("\t", ";").replace("\n", "\r\n")


def _terms(made: Made):
    """Attributes of a spectrum and of its analyte in the PSI-MS vocabulary."""
    polarity = "MS:1000130|positive scan" if made.adduct[-1] == "+" else "MS:1000129|negative scan"
    spectrum = [
        ("MS:1003061", "library spectrum name", "unknown \\ [1]"),
        ("MS:1000744", "selected ion m/z", f"{ion_mz(made.precursor):.4f}"),
        ("MS:1000465", "scan polarity", polarity),
        ("MS:1000045", "collision energy", str(made.energy_ev)),
        ("UO:0000000", "unit", "UO:0000266|electronvolt"),
    ]
    analyte = [
        ("MS:1000866", "molecular formula", made.formula),
        ("MS:1002813", "adduct ion formula", made.adduct),
    ]
    return spectrum, analyte


def _mzspeclib():
    """A library as the Proteomics Standards Initiative specifies it."""
    text = ["<mzSpecLib>", "MS:1003186|library format version=1.0"]
    text += ["<AttributeSet Spectrum=all>", "MS:1000031|instrument model=MS:1001911|Q Exactive"]
    for number, made in enumerate(_FEW, 1):
        spectrum, analyte = _terms(made)
        text += [
            f"<Spectrum={number}>",
            *(f"{a}|{name}={value}" for a, name, value in spectrum[:3]),
        ]
        text += [f"[1]{a}|{name}={value}" for a, name, value in spectrum[3:]]
        text += ["<Analyte=1>", *(f"{a}|{name}={value}" for a, name, value in analyte)]
        text += ["<Peaks>", *(f"{mz:.4f}\t{height:.1f}\t?" for mz, height in _rows(made)), ""]
    return "\n".join(text)


def _mzspeclib_json():
    def listed(terms):
        found = [{"accession": a, "name": name, "value": value} for a, name, value in terms]
        for one in found[3:]:
            one["cv_param_group"] = "1"
        return found

    spectra = []
    for made in _FEW:
        spectrum, analyte = _terms(made)
        mzs, heights = zip(*_rows(made), strict=True)
        spectra.append(
            {
                "attributes": listed(spectrum),
                "analytes": {"1": {"attributes": listed(analyte)}},
                "mzs": mzs,
                "intensities": heights,
            }
        )
    return {"format_version": "1.0", "attributes": [{"name": "a", "value": 1}], "spectra": spectra}


def _mzxml():
    import base64

    import numpy as np

    scans = []
    for number, made in enumerate(_FEW[:2], start=1):
        pairs = np.array(_rows(made)).astype(">f4")
        data = base64.b64encode(pairs.tobytes()).decode()
        scans.append(
            f'<scan num="{number}" msLevel="2" peaksCount="{len(pairs)}" polarity="+" '
            f'centroided="1" collisionEnergy="{made.energy_ev}">\n'
            f'<precursorMz precursorIntensity="1">{ion_mz(made.precursor):.4f}</precursorMz>\n'
            '<peaks precision="32" byteOrder="network" contentType="m/z-int" '
            f'compressionType="none" compressedLen="0">{data}</peaks>\n</scan>\n'
        )
    return (
        '<?xml version="1.0" encoding="ISO-8859-1"?>\n'
        '<mzXML xmlns="http://sashimi.sourceforge.net/schema_revision/mzXML_3.2">\n'
        f'<msRun scanCount="{len(scans)}">\n{"".join(scans)}</msRun>\n</mzXML>\n'
    )


def _rows(made: Made):
    return list(zip(*(values.tolist() for values in peaks_of(made)), strict=True))


def _joined(values):
    return ",".join(f"{value:.4f}" for value in values)
