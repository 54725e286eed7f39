"""Files of twelve made compounds, as some fifty programs write them.

Masses are those of formulas; nothing was measured. `source` names the exporter that keys, units and
words for polarity were read from; where none is public it says so.
"""

import io
import json
import re
from dataclasses import dataclass, replace

from pyteomics import mass, mgf

from tests import made_xml
from tests.made_xml import cv

ELECTRON = 0.000548579909


@dataclass(frozen=True)
class Made:
    """One spectrum as it is in truth; `charge` is signed, `rt` in seconds, `energy` in eV.

    `isotopes` are shares of the monoisotopic ion and the next two, of the most frequent elements.
    """

    name: str
    formula: str
    adduct: str
    charge: int
    mz: float
    rt: float
    energy: float
    peaks: tuple
    isotopes: tuple = ()
    level: int = 2


def _made(name, formula, adduct, charge, ion, rt, energy, fragments):
    def ion_mz(atoms, z):
        return (mass.calculate_mass(formula=atoms) - z * ELECTRON) / abs(z)

    mz = sorted(ion_mz(fragment, 1 if charge > 0 else -1) for fragment in fragments.split())
    peaks = tuple((m, 1000.0 - 111 * place) for place, m in enumerate(mz))
    atoms = mass.Composition(formula=ion)
    first = 0.0108 * atoms["C"] + 0.0037 * atoms["N"]
    isotopes = (1.0, first, first**2 / 2 + 0.002 * atoms["O"] + 0.32 * atoms["Cl"])
    return Made(name, formula, adduct, charge, ion_mz(ion, charge), rt, energy, peaks, isotopes)


MADE = tuple(
    _made(name, formula, adduct, int(charge), ion, float(rt), float(energy), fragments)
    for name, formula, adduct, charge, ion, rt, energy, fragments in (
        line.split(maxsplit=7)
        for line in """\
caffeine C8H10N4O2 [M+H]+ 1 C8H11N4O2 312.5 20 C8H11N4O2 C6H8N3O C5H8N3 C4H7N2
quercetin C15H10O7 [M-H]- -1 C15H9O7 421.75 35 C15H9O7 C8H3O4 C7H3O4 C7H3O3 C6H3O2
glucose C6H12O6 [M+Na]+ 1 C6H12O6Na 55.25 10 C6H12O6Na C4H8O4Na C3H6O3Na
chlorhexidine C22H30Cl2N10 [M+2H]2+ 2 C22H32Cl2N10 498 25 C7H9ClN3 C6H7ClN C8H15N4
choline C5H14NO [M]+ 1 C5H14NO 48.5 15 C5H14NO C3H10N C3H8N
citrate C6H8O7 [M-H]- -1 C6H7O7 66 10 C6H7O7 C5H3O3 C3H3O3 C4H5O2
lactose C12H22O11 [M+NH4]+ 1 C12H26NO11 61.75 12 C12H23O11 C6H11O5 C6H9O4 C6H7O3
sucrose C12H22O11 [M+Cl]- -1 C12H22O11Cl 60.5 18 C12H21O11 C6H11O6 C3H5O3
nicotinamide C6H6N2O [2M+H]+ 1 C12H13N4O2 95 8 C6H7N2O C6H4NO C5H6N
cortisol C21H30O5 [M-H2O+H]+ 1 C21H29O4 540.25 30 C21H29O4 C21H27O3 C20H25O2 C8H9O
salicin C13H18O7 [M+HCOO]- -1 C14H19O9 205.5 16 C13H17O7 C7H7O2 C6H5O
ATP C10H16N5O13P3 [M-2H]2- -2 C10H14N5O13P3 52.25 22 H2PO4 HP2O6 PO3""".splitlines()
    )
)


def _ms1(of):
    """The MS1 spectrum in which an ion was chosen."""
    step = 1.0032 / abs(of.charge)
    peaks = tuple((of.mz + step * n, 1e5 * share) for n, share in enumerate(of.isotopes))
    return replace(of, peaks=peaks, level=1)


WITH_MS1 = tuple(one for made in MADE for one in (_ms1(made), made))


@dataclass(frozen=True)
class Dialect:
    """A writer of files; `unsaid` are fields that they leave open or get wrong."""

    file: str
    source: str
    write: object
    unsaid: frozenset
    made: tuple


DIALECTS = {}


def dialect(name, file, source, write, unsaid="", made=MADE):
    DIALECTS[name] = Dialect(file, source, write, frozenset(unsaid.split()), made)


def words(made):
    """What a template may say of a spectrum."""
    positive = made.charge > 0
    said = {name: pair[positive] for name, pair in {
        "Mode": ("Negative", "Positive"), "MODE": ("NEGATIVE", "POSITIVE"), "P": "NP", "sign": "-+",
        "mode": ("negative", "positive"), "polarity": "01", "minus": ("-", ""),
        "scan": ("MS:1000129|negative scan", "MS:1000130|positive scan"),
    }.items()}  # fmt: skip
    z = abs(made.charge)
    unknown = z if z > 1 else 0
    numbers = {"z": z, "z_if_many": unknown, "min": made.rt / 60, "count": len(made.peaks)}
    return vars(made) | numbers | said


def peaks(made, pattern="{:.4f} {:.1f}", between="\n"):
    return between.join(pattern.format(*peak) for peak in made.peaks)


def text(name, file, source, template, unsaid="", ms1="", peak="{:.4f} {:.1f}", head=""):
    """A dialect of text: lines of a record, bars between them; `ms1` is that of an MS1 spectrum."""

    def write(made):
        records = []
        for place, one in enumerate(made):
            n = (place // 2 if ms1 else place) + 1
            said = words(one) | {"n": n, "peaks": peaks(one, peak)}
            lines = (ms1 if one.level == 1 else template).split(" | ")
            records.append("\n".join(line.format(**said) for line in lines) + "\n")
        return head + "".join(records)

    dialect(name, file, source, write, unsaid, WITH_MS1 if ms1 else MADE)


def ions(name, source, fields, unsaid="", ms1="", before="", **options):
    """A dialect of MGF: what stands between BEGIN IONS and the peaks."""
    block = f"{before}BEGIN IONS | {{}} | {{{{peaks}}}} | END IONS | "
    ms1 = block.format(ms1) if ms1 else ""
    text(name, "a.mgf", source, block.format(fields), unsaid, ms1, **options)


def entries(name, source, fields, unsaid="", count="Num Peaks: {count}", **options):
    """A dialect of MSP: what stands before the number of peaks."""
    text(name, "a.msp", source, f"{fields} | {count} | {{peaks}} | ", unsaid, **options)


# fmt: off
ions("mzmine 2 GNPS", "mzmine 2.37 GNPSExportTask; no sign where the scan has no precursor charge",
     "FEATURE_ID={n} | PEPMASS={mz} | SCANS={n} | RTINSECONDS={rt} | CHARGE=1 | MSLEVEL=2",
     "polarity charge adduct energy", peak="{} {}")
mzmine2 = "FEATURE_ID={{n}} | PEPMASS={{mz}} | CHARGE={} | RTINSECONDS={{rt}} | {} | FILENAME=a"
CORRELATED = "SPECTYPE=CORRELATED MS | MSLEVEL=1"
ions("mzmine 2 SIRIUS", "mzmine 2.40 SiriusExportTask", mzmine2.format("{z}{sign}", "MSLEVEL=2"),
     "adduct energy", mzmine2.format("{z}{sign}", CORRELATED))
charge = "{minus}{z_if_many}"
ions("mzmine 3 SIRIUS", "mzmine 3.0 SiriusExportTask; the row's charge, mostly unknown, is -0 then",
     mzmine2.format(charge, "MSLEVEL=2"), "polarity charge adduct energy",
     mzmine2.format(charge, CORRELATED))
mzmine4 = ("FEATURE_ID={n} | MSLEVEL={level} | RTINSECONDS={rt:.2f} | ADDUCT={adduct} | "
           "PEPMASS={mz:.4f} | CHARGE={charge} | FEATURE_MS1_HEIGHT=1.0E5 | ")
ms2 = mzmine4 + ("SPECTYPE=SINGLE_BEST_SCAN | COLLISION_ENERGY=[{energy}] | INSTRUMENT_TYPE=QTOF | "
                 "IONMODE={MODE} | SCANS=12-14,17 | PRECURSOR_PURITY=0.98 | Num peaks={count}")
ions("mzmine 4 SIRIUS", "mzmine 4.5 MGFEntryGenerator, DBEntryField.formatForMgf; lists as JSON",
     ms2, ms1=mzmine4 + "SPECTYPE=CORRELATED MS | IONMODE={MODE} | Num peaks={count}")
ions("mzmine 4 library MGF", "as above", "NAME={name} | EXACTMASS=1 | FORMULA={formula} | " + ms2)
ions("mzmine 3 library MGF", "mzmine 3.9 MGFEntryGenerator; the method stands as the energy",
     "NAME={name} | MSLEVEL=MS2 | INSTRUMENT_TYPE=qTof | IONMODE={Mode} | COLLISION_ENERGY=CID | "
     "PEPMASS={mz:.4f} | ADDUCT={adduct} | RTINSECONDS={rt}", "charge energy")
ions("MS-DIAL 4 GNPS", "MS-DIAL 4.9 as read by MSDIALconveRter; 1+ whatever the adduct",
     "SCANS={n} | PEPMASS={mz:.5f} | MSLEVEL=2 | CHARGE=1+ | RTINMINUTES={min:.3f} | ION={adduct}",
     "polarity charge energy", peak="{:.5f}\t{:.0f}")
ions("MS-DIAL 5 MGF", "MS-DIAL 5.5 SpectraExport.WriteChromPeakFeatureInfoAsMgf",
     "SCANS={n} | TITLE=Unknown|ID={n}|MZ={mz:.4f}|RT={min:.3f}||PEAKID={n}|ISOTOPE=M+0 | "
     "PEPMASS={mz} | MSLEVEL=2 | ION={adduct} | CHARGE={z}{sign} | RTINMINUTES={min} | "
     "Num Peaks: {count}", "energy", peak="{:.5f}\t{:.0f}")
ions("GNPS library MGF", "library downloads of GNPS; charges without sign, adduct within NAME",
     "PEPMASS={mz:.4f} | CHARGE={z_if_many} | MSLEVEL=2 | SOURCE_INSTRUMENT=ESI-qTof | "
     "SEQ=*..* | FILENAME=a.mzXML | IONMODE={mode} | NAME={name} M+X | PI=N/A | SMILES=N/A | "
     "LIBRARYQUALITY=1 | SPECTRUMID=CCMSLIB{n:011} | SCANS={n}",
     "charge rt energy adduct", peak="{:.6f}\t{:.6f}")
ions("msconvert MGF", "ProteoWizard 3 Serializer_MGF; empty lines in place of mobilities",
     "TITLE=a.{n}.{n}.{z} File:\"a.d\", NativeID:\"scan={n}\" | RTINSECONDS={rt} | "
     "PEPMASS={mz:.8f} 51234.5 |  |  | CHARGE={z}{sign}", "adduct energy level",
     peak="{:.7f} {:.10f}")
title = "TITLE=msLevel 2; retentionTime {rt}; scanNum {n} | "
ions("R MsBackendMgf", "MsBackendMgf 1.14 .export_mgf of what mzR read; polarity 0 is negative",
     title + "msLevel=2 | RTINSECONDS={rt} | SCANS={n} | scanIndex={n} | centroided=TRUE | "
     "polarity={polarity} | PEPMASS={mz:.6f} | PEPMASSINT=51234.5 | CHARGE={z}+ | "
     "collisionEnergy={energy} | isolationWindowTargetMz={mz:.2f}", "polarity charge adduct")
ions("xcms FBMN", "xcms-gnps-tools formatSpectraForGNPS, then MsBackendMgf; no charge is CHARGE=",
     title + "RTINSECONDS={rt} | SCANS={n} | PEPMASS={mz:.6f} | CHARGE= | FEATURE_ID=FT{n:03}",
     "charge polarity adduct energy level")
ions("OpenMS GNPSExport", "OpenMS 3 GNPSMGFFile::writeMSMSBlockHeader_",
     "OUTPUT=most_intense | SCANS={n} | FEATURE_ID=e_900000000000000{n:04} | MSLEVEL=2 | "
     "CHARGE={z}{sign} | PEPMASS={mz:.6f} | FILE_INDEX={n} | RTINSECONDS={rt}", "adduct energy",
     peak="{:.4f}\t{:.4f}")
ions("MetaboScape MGF", "its exporter is not public; keys as mtbsccli build_mgf writes them",
     "FEATURE_ID={n} | NAME={name} | PEPMASS={mz} | CHARGE={z}{sign} | IONMODE={Mode} | "
     "ADDUCT={adduct} | RTINSECONDS={rt} | CCS=161.71", "energy level", peak="{}\t{}")
ions("Bruker DataAnalysis MGF", "files that proteoQ quotes; the energy stands in TITLE alone",
     "TITLE=Cmpd {n}, {sign}MS2({mz:.4f}), {energy}eV, {min:.1f}min, #{n} | RTINSECONDS={rt} | "
     "RAWSCANS={n} | PEPMASS={mz:.5f}\t70295 | CHARGE={z}{sign}", "adduct energy level",
     peak="{:.5f}\t{:.0f}\t", before="###FS:    #m/z: {{mz:.5f}} #charge {{z}}{{sign}} | "
     "###MS: {{n}} | ###MSMS: {{n}} | ")
ions("Agilent MassHunter MGF", "not public; charges without sign as in files of its users",
     "TITLE={sign}ESI Product Ion (rt: {min:.3f} min) Frag=175.0V | PEPMASS={mz:.5f} | "
     "CHARGE={z} | RTINSECONDS={rt}", "polarity charge adduct energy level", peak="{:.5f}\t{:.2f}")
ions("Sciex MGF", "MS Data Converter, as quoted in ProteinProspector; charges of peaks in a column",
     'TITLE=Locus:1.1.1.{n}.2 File:"a.wiff" (id=872572) | PEPMASS={mz:.6f} 21480.9 | '
     "CHARGE={z}{sign} | RTINSECONDS={rt}", "adduct energy level", peak="{:.6f} {:.1f}  1+")
ions("Thermo Discoverer MGF", "files that proteoQ quotes; a line before the first block",
     'TITLE=File: "Z:\\a.raw"; SpectrumID: "{n}"; scans: "{n}" | PEPMASS={mz:.5f} 110739.89844 | '
     "CHARGE={z}{sign} | RTINSECONDS={rt} | SCANS={n}", "adduct energy level",
     head="MASS=Monoisotopic\n")

entries("mzmine 4 MSP", "mzmine 4.5 MSPEntryGenerator; minutes, lists as Java prints them",
        "Name: {name} | PrecursorMZ: {mz:.5f} | RT: {min:.4f} | Precursor_type: {adduct} | "
        "Spectrum_type: 2 | charge: {charge} | Formula: {formula} | Method: CID | "
        "Collision_energy: [{energy}] | Ion_mode: {MODE}")
msdial4 = ("NAME: {name} | SCANNUMBER: {n} | RETENTIONTIME: {min:.4f} | PRECURSORMZ: {mz:.5f} | "
           "PRECURSORTYPE: {adduct} | IONMODE: {Mode} | SPECTRUMTYPE: Centroid | INTENSITY: 512 | "
           "INCHIKEY:  | FORMULA: {formula} | COLLISIONENERGY: {energy} | COMMENT: run_7")
entries("MS-DIAL 4 MSP", "MS-DIAL 4.9 TableExportUtility.writeMsAnnotationTag", msdial4,
        "charge level", peak="{:.5f}\t{:.0f}")
mat = " | MSTYPE: MS{level} | Num Peaks: {count} | {peaks}"
text("MS-DIAL 4 MAT", "a.mat", "as above, isMsp false", mat[3:] + " | ", "charge",
     msdial4 + mat, peak="{:.5f}\t{:.0f}")
msdial5 = ("NAME: Unknown|ID={n}|MZ={mz:.4f}|RT={min:.3f} | PRECURSORMZ: {mz:.5f} | "
           "PRECURSORTYPE: {adduct} | RETENTIONTIME: {min:.4f} | FORMULA: {formula} | ONTOLOGY:  | "
           "INCHIKEY:  | COMMENT: |PEAKID={n}|ISOTOPE=M+0")
entries("MS-DIAL 5 MSP", "MS-DIAL 5.5 NistRecordBuilder; no ion mode",
        msdial5 + " | COLLISIONENERGY: {energy} | INSTRUMENTTYPE: LC-ESI-QTOF",
        "polarity charge level", peak="{:.5f}\t{:.0f}")
dialect("MS-DIAL 5 MSP, commas", "a.msp", "the same with Windows in German",
        lambda made: re.sub(r"(?<=\d)\.(?=\d)", ",", DIALECTS["MS-DIAL 5 MSP"].write(made)),
        "polarity charge level")
text("MS-DIAL 5 MAT", "a.mat", "MS-DIAL 5.5 SaveSpectraTableAsMatFormat", mat[3:] + " | ",
     "charge energy", msdial5 + " | IONMODE: {Mode}" + mat, peak="{:.5f}\t{:.0f}")
entries("MS-FINDER MSP", "MS-FINDER 3 writeMspFile; a comment behind each peak",
        msdial4 + " | METABOLITENAME: ", "charge level", "Num Peaks:{count}",
        peak='{:.5f}\t{:.3f}\t"Rearranged hydrogens: 1& SMILES: C"')
massbank = ("Name: {{name}} | Synon: $:00in-source | DB#: MA{{n:06}} | "
            "Precursor_type: {{adduct}} | Spectrum_type: MS2 | PrecursorMZ: {{mz:.4f}} | "
            "Instrument_type: LC-ESI-QTOF | Ion_mode: {{{}}} | Collision_energy: {{energy}} eV | "
            "Formula: {{formula}} | MW: 200 | "
            "ExactMass: 200.1 | Comments: ")
entries("MassBank NIST MSP", "MassBank-lib RecordToNIST_MSP",
        massbank.format("MODE") + "Parent={mz:.4f} | Splash: splash10-0000", "charge rt")
entries("MoNA MSP", "download page of MoNA",
        massbank.format("P") + '"retention time={min:.2f} min" "ms level=MS2"', "charge")
entries("MassBank RIKEN MSP", "MassBank-lib RecordToRIKEN_MSP; its retention time is always 0",
        "NAME: {name} | PRECURSORMZ: {mz:.4f} | PRECURSORTYPE: {adduct} | FORMULA: {formula} | "
        "INCHIKEY: N/A | RETENTIONTIME: 0 | INSTRUMENTTYPE: LC-ESI-QTOF | IONMODE: {Mode} | "
        "Comment: DB#=MA{n:06}; origin=MassBank", "charge rt energy level", peak="{:.4f}\t{:.1f}")
entries("NIST MSP", "NIST 20 by lib2nist, energies as 3DMolMS parses them",
        "Name: {name} | Notes: Consensus spectrum | Precursor_type: {adduct} | "
        "Spectrum_type: ms2 | PrecursorMZ: {mz:.4f} | Instrument_type: HCD | Ionization: ESI | "
        "Collision_energy: NCE=35% {energy:.0f}eV | Ion_mode: {P} | Formula: {formula} | "
        "MW: 200 | NIST#: {n}", "charge rt", peak='{:.4f} {:.2f} "p-H2O/0.5ppm"')
entries("R MsBackendMsp", "MsBackendMsp 1.10 .export_msp, all variables; seconds",
        "NAME: {n} | msLevel: MS2 | RETENTIONTIME: {rt} | acquisitionNum: {n} | centroided: TRUE | "
        "IONMODE: {Mode} | PRECURSORMZ: {mz:.6f} | precursorCharge: {z} | "
        "collisionEnergy: {energy}", "adduct charge")
text("msPurity MSP", "a.msp", "msPurity 1.32 write_msp_single; MassBank keys, no end mark, seconds",
     "CH$NAME: MZ:{mz:.4f} - RT:{rt:.1f} | MS$FOCUSED_ION: PRECURSOR_M/Z {mz:.6f} | "
     "AC$CHROMATOGRAPHY: RETENTION_TIME {rt} | MS$FOCUSED_ION: PRECURSOR_TYPE {adduct}  | "
     "COMMENT: Exported from msPurity | PK$NUM_PEAK: {count} | PK$PEAK: m/z int. rel.int. | "
     "{peaks} | ", "polarity charge energy level", peak="{0:.4f}\t{1:.1f}\t{1:.2f}")
entries("Progenesis QI MSP", "GNPSDocumentation issue 58; retention time in the id alone",
        "Name: Unknown ({min:.2f}_{mz:.4f}m/z) | Precursor_type: {adduct} | "
        "PrecursorMZ: {mz:.4f} | Comment: {min:.2f}_{mz:.4f}m/z", "polarity charge rt energy level")
entries("mzVault MSP", "its exporter is not public; the usual keys",
        "Name: {name} | Formula: {formula} | Precursor_type: {adduct} | PrecursorMZ: {mz:.5f} | "
        "Ion_mode: {sign} | Retention_time: {min:.3f} min | Collision_energy: {energy} eV",
        "charge level")
entries("matchms MSP", "matchms 0.27 save_as_msp",
        "COMPOUND_NAME: {name} | PRECURSOR_MZ: {mz:.6f} | CHARGE: {charge} | ADDUCT: {adduct} | "
        "IONMODE: {mode} | RETENTION_TIME: {rt} | COLLISION_ENERGY: {energy} | MS_LEVEL: 2",
        count="NUM PEAKS: {count}", peak="{}\t{}")

text("SIRIUS ms", "a.ms", "SIRIUS 6 JenaMsWriter", ">collision {energy} | {peaks} | ",
     "polarity charge", ">compound {name} | >parentmass {mz:.6f} | >ionization {adduct} | "
     ">rt {rt}s | #scans {n} |  | "
     ">ms1 | {peaks} | ")
text("MS-DIAL 5 ms", "a.ms", "MS-DIAL 5.5 SaveSpectraTableAsSiriusMsFormat",
     ">ms2 | Num Peaks: {count} | {peaks} | ", "polarity charge rt energy",
     ">compound Unknown|ID={n} | >parentmass {mz} | >ionization {adduct} | >formula {formula} |  | "
     ">ms1 | Num Peaks: {count} | {peaks} | ", peak="{:.5f}\t{:.0f}")
text("MassBank record", "a.txt", "MassBank record format 2.6",
     "ACCESSION: MSBNK-Made-MA{n:06} | RECORD_TITLE: {name}; LC-ESI-QTOF; MS2 | DATE: 2024.01.01 | "
     "CH$NAME: {name} | CH$FORMULA: {formula} | CH$EXACT_MASS: 200.1 | CH$SMILES: N/A | "
     "AC$INSTRUMENT: maXis | AC$INSTRUMENT_TYPE: LC-ESI-QTOF | AC$MASS_SPECTROMETRY: MS_TYPE MS2 | "
     "AC$MASS_SPECTROMETRY: ION_MODE {MODE} | AC$MASS_SPECTROMETRY: IONIZATION ESI | "
     "AC$MASS_SPECTROMETRY: COLLISION_ENERGY {energy} eV | "
     "AC$CHROMATOGRAPHY: RETENTION_TIME {min:.3f} min | MS$FOCUSED_ION: PRECURSOR_M/Z {mz:.4f} | "
     "MS$FOCUSED_ION: PRECURSOR_TYPE {adduct} | PK$SPLASH: splash10-0 | "
     "PK$ANNOTATION: m/z formula |   100.1 C2H2+ | PK$NUM_PEAK: {count} | "
     "PK$PEAK: m/z int. rel.int. | {peaks} | //",
     "charge", peak="  {0:.4f} {1:.1f} {1:.0f}")
text("mzSpecLib text", "a.mzspeclib.txt", "the exporter of matchms; time as mzSpecLib 1.0 has it",
     "<Spectrum={n}> | MS:1003061|library spectrum name={name} | MS:1000511|ms level=2 | "
     "MS:1003208|experimental precursor monoisotopic m/z={mz:.5f} | "
     "MS:1000041|charge state={charge} | MS:1000465|scan polarity={scan} | "
     "[1]MS:1000894|retention time={rt} | "
     "[1]UO:0000000|unit=UO:0000010|second | [2]MS:1000045|collision energy={energy} | "
     "[2]UO:0000000|unit=UO:0000266|electronvolt | [3]MS:1003275|other attribute name=adduct | "
     "[3]MS:1003276|other attribute value={adduct} | MS:1003059|number of peaks={count} | "
     "<Analyte=1> | MS:1000866|molecular formula={formula} | <Peaks> | {peaks} | ",
     head="<mzSpecLib>\nMS:1003186|library format version=1.0\nMS:1003188|library name=made\n",
     peak="{:.4f}\t{:.1f}\t?")


def _table(made):
    head = "identifier mzs intensities formula precursor_mz adduct instrument_type collision_energy"
    rows = [(f"MassSpecGymID{n:07}", peaks(m, "{0:.4f}", ","), peaks(m, "{1}", ","), m.formula,
             f"{m.mz:.4f}", m.adduct, "QTOF", f"{m.energy}") for n, m in enumerate(made)]
    return "\n".join("\t".join(row) for row in [head.split(), *rows]) + "\n"


dialect("MassSpecGym TSV", "a.tsv", "MassSpecGym 1.0", _table, "polarity charge rt level")


def matchms(m):
    return {"compound_name": m.name, "precursor_mz": m.mz, "charge": m.charge, "adduct": m.adduct,
            "ionmode": words(m)["mode"], "retention_time": m.rt, "ms_level": "2",
            "collision_energy": f"{m.energy} eV"}


def by_pyteomics(params):
    def write(made):
        written = io.StringIO()
        mgf.write([{"params": params(m), "m/z array": [p[0] for p in m.peaks],
                    "intensity array": [p[1] for p in m.peaks]} for m in made], output=written)
        return written.getvalue()
    return write


dialect("matchms MGF", "a.mgf", "matchms 0.27 save_as_mgf; no PEPMASS", by_pyteomics(matchms))
dialect("pyteomics MGF", "a.mgf", "pyteomics 5 mgf.write", by_pyteomics(lambda m: {
    "title": m.name, "pepmass": (m.mz, 5e4), "charge": m.charge, "rtinseconds": m.rt}),
    "adduct energy level")
dialect("matchms JSON", "a.json", "matchms 0.27 save_as_json", lambda made: json.dumps(
    [matchms(m) | {"peaks_json": [list(p) for p in m.peaks]} for m in made]))
dialect("GNPS JSON", "a.json", "library downloads; numbers as texts", lambda made: json.dumps([{
    "spectrum_id": f"CCMSLIB{n:011}", "scan": str(n), "ms_level": "2", "Instrument": "qTof",
    "Ion_Source": "LC-ESI", "Compound_Name": m.name, "Adduct": m.adduct, "ExactMass": "0.0",
    "Precursor_MZ": f"{m.mz:.4f}", "Charge": str(words(m)["z_if_many"]),
    "Ion_Mode": words(m)["Mode"],
    "peaks_json": json.dumps([[round(p[0], 4), p[1]] for p in m.peaks]),
} for n, m in enumerate(made)]), "charge rt energy")
dialect("mzmine 4 JSON", "a.json", "mzmine 4.5 MZmineJsonGenerator; an object a line, minutes",
        lambda made: "\n".join(json.dumps({
            "softwaresource": "mzmine-4.5.0", "compound_name": m.name, "formula": m.formula,
            "ms_level": 2, "rt": m.rt / 60, "adduct": m.adduct, "precursor_mz": m.mz,
            "charge": m.charge, "collision_energy": [m.energy], "polarity": words(m)["Mode"],
            "num_peaks": len(m.peaks), "peaks": [list(p) for p in m.peaks]}) for m in made))
dialect("MoNA JSON", "a.json", "download page of MoNA", lambda made: json.dumps([{
    "compound": [{"names": [{"name": m.name}], "metaData": [
        {"name": "molecular formula", "value": m.formula}]}],
    "id": f"MA{n:06}", "spectrum": peaks(m, "{:.4f}:{:.6f}", " "),
    "metaData": [{"computed": False, "name": key, "value": value} for key, value in {
        "instrument type": "LC-ESI-QTOF", "ms level": "MS2", "collision energy": f"{m.energy} eV",
        "retention time": f"{m.rt / 60:.3f} min", "ionization mode": words(m)["mode"],
        "precursor m/z": round(m.mz, 4), "precursor type": m.adduct}.items()],
} for n, m in enumerate(made)]), "charge")


def _mzml(time, energy):
    def scan(n, m):
        kind = [("MS:1000580", "MSn spectrum"), ("MS:1000579", "MS1 spectrum")][m.level == 1]
        terms = cv("MS:1000511", "ms level", m.level) + cv(*kind)
        terms += cv(*words(m)["scan"].split("|")) + cv("MS:1000127", "centroid spectrum")
        of = made_xml.windowed(m.mz, 0.5, 0.5, [m.mz], cv(*made_xml.CID) + energy(m),
                               cv("MS:1000041", "charge state", abs(m.charge)))
        own = made_xml.arrays(*zip(*m.peaks, strict=True))
        of = made_xml.precursors(of) if m.level == 2 else ""
        return made_xml.spectrum(n + 1, own, terms, time(m), of)
    maxis = made_xml.instrument(cv("MS:1001547", "maXis"))
    head = f'{made_xml.MZML}{maxis}<run id="r"><spectrumList count="24">'
    tail = "</spectrumList></run></mzML>\n"
    return lambda made: head + "".join(map(scan, range(len(made)), made)) + tail


def _mzxml(made):
    def scan(n, m):
        energy, of = "", ""
        if m.level == 2:
            energy = f' collisionEnergy="{m.energy}"'
            of = f'<precursorMz precursorCharge="{abs(m.charge)}">{m.mz}</precursorMz>'
        return (
            f'<scan num="{n + 1}" centroided="1" msLevel="{m.level}" peaksCount="{len(m.peaks)}" '
            f'polarity="{words(m)["sign"]}" retentionTime="PT{m.rt}S"{energy}>{of}'
            f"{made_xml.peaks_of_mzxml(m.peaks)}</scan>")
    return made_xml.mzxml("".join(map(scan, range(len(made)), made)), "")


EV = "UO:0000266|electronvolt"
dialect("msconvert mzML", "a.mzML", "ProteoWizard 3 IO.cpp; minutes, charges without sign", _mzml(
    lambda m: cv("MS:1000016", "scan start time", m.rt / 60, "UO:0000031|minute"),
    lambda m: cv("MS:1000045", "collision energy", m.energy, EV)), "adduct", WITH_MS1)
dialect("OpenMS mzML", "a.mzML", "OpenMS 3 MzMLHandler; seconds, activation energy", _mzml(
    lambda m: cv("MS:1000016", "scan start time", m.rt, "UO:0000010|second"),
    lambda m: cv("MS:1000509", "activation energy", m.energy, EV)), "adduct", WITH_MS1)
dialect("msconvert mzXML", "a.mzXML", "ProteoWizard 3 Serializer_mzXML", _mzxml, "adduct", WITH_MS1)
# fmt: on

# Agilent's compound exchange format, which is refused
CEF = (
    '<?xml version="1.0" encoding="utf-8"?>\n<CEF version="1.0.0.0"><CompoundList><Compound>'
    '<Location m="194.0804" rt="5.208"/><Spectrum type="AMRM"><MzOfInterest><mz>195.0877</mz>'
    '</MzOfInterest><MSPeaks><p x="138.0662" y="1000"/></MSPeaks></Spectrum></Compound>'
    "</CompoundList></CEF>\n"
)
