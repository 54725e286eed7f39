"""Pieces of mzML and mzXML, built from the formats' definitions."""

import base64
import zlib

import numpy as np

MZML = '<?xml version="1.0" encoding="utf-8"?>\n<mzML xmlns="http://psi.hupo.org/ms/mzml">'
CID = ("MS:1000133", "collision-induced dissociation")


def cv(accession, name, value="", unit=""):
    """A term of the vocabulary; a unit is ``UO:0000031|minute``."""
    if unit:
        unit = ' unitCvRef="UO" unitAccession="{}" unitName="{}"'.format(*unit.split("|"))
    return f'<cvParam cvRef="MS" accession="{accession}" name="{name}" value="{value}"{unit}/>'


def packed(values, dtype="<f8", compress=False):
    """Numbers as text."""
    data = np.array(values, dtype).tobytes()
    return base64.b64encode(zlib.compress(data) if compress else data).decode()


def array(values, name, accession, compress=False):
    """One array of a spectrum."""
    kind = ("MS:1000574", "zlib compression") if compress else ("MS:1000576", "no compression")
    terms = cv("MS:1000523", "64-bit float") + cv(*kind) + cv(accession, name)
    text = packed(values, compress=compress)
    return f"<binaryDataArray>{terms}<binary>{text}</binary></binaryDataArray>"


def arrays(mz, intensity, compress=False):
    """Both arrays of a spectrum."""
    mz = array(mz, "m/z array", "MS:1000514", compress)
    return mz + array(intensity, "intensity array", "MS:1000515", compress)


def windowed(target=181.05, lower=None, upper=None, ions=(), activation="", of_ion=""):
    """A precursor of mzML by its isolation window and selected ions."""
    window = cv("MS:1000827", "isolation window target m/z", target)
    if lower is not None:
        window += cv("MS:1000828", "isolation window lower offset", lower)
        window += cv("MS:1000829", "isolation window upper offset", upper)
    listed = "".join(
        f"<selectedIon>{cv('MS:1000744', 'selected ion m/z', ion)}{of_ion}</selectedIon>"
        for ion in ions
    )
    selected = f"<selectedIonList>{listed}</selectedIonList>" if ions else ""
    return (
        f"<precursor><isolationWindow>{window}</isolationWindow>{selected}"
        f"<activation>{activation}</activation></precursor>"
    )


def precursors(*each):
    """All precursors of a spectrum of mzML."""
    return f'<precursorList count="{len(each)}">{"".join(each)}</precursorList>'


def spectrum(number, own, terms="", scan="", precursor="", native=""):
    """A spectrum of mzML; `own` are its arrays, `scan` is what stands within its scan."""
    return (
        f'<spectrum index="{number - 1}" id="{native}scan={number}" defaultArrayLength="9">{terms}'
        f'<scanList count="1"><scan>{scan}</scan></scanList>{precursor}'
        f'<binaryDataArrayList count="2">{own}</binaryDataArrayList></spectrum>\n'
    )


def mzml(spectra, configurations="", head="", run=""):
    """An mzML file of spectra; the first instrument is ``IC1``, of which terms may be given."""
    if not configurations.startswith("<instrumentConfiguration "):
        configurations = (
            f'<instrumentConfiguration id="IC1">{configurations}</instrumentConfiguration>'
        )
    return (
        f"{MZML}{head}<instrumentConfigurationList>{configurations}"
        f'</instrumentConfigurationList><run id="r"{run}><spectrumList>{"".join(spectra)}'
        "</spectrumList></run></mzML>\n"
    )


def mzxml(scans, instrument=""):
    """An mzXML file."""
    return (
        '<?xml version="1.0" encoding="ISO-8859-1"?>\n<mzXML xmlns="http://sashimi.sourceforge.net/'
        f'schema_revision/mzXML_3.2"><msRun><msInstrument>{instrument}</msInstrument>'
        f"{''.join(scans)}</msRun></mzXML>\n"
    )


def peaks_of_mzxml(pairs, precision=64, compress=False):
    """Peaks of a scan of mzXML."""
    text = packed(sorted(pairs), f">f{precision // 8}", compress)
    kind = f'compressionType="{"zlib" if compress else "none"}" compressedLen="{len(text)}"'
    return (
        f'<peaks precision="{precision}" byteOrder="network" contentType="m/z-int" {kind}>'
        f"{text}</peaks>"
    )
