"""What fields say of ion, precursor m/z, time, energy, formula and instrument."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.spectra.formulas import from_text
from duallgd_cli.spectra.reading.quantities import (
    MISSING,
    Charge,
    charge_of,
    collision_energy_ev,
    mz_of,
    polarity_of,
)
from duallgd_cli.spectra.reading.record import instrument_class, instrument_of
from duallgd_cli.spectra.types import UNIT_RESOLUTION, Feature
from tests.made_spectra import fields_of, parsed


def split(texts, mark="|"):
    return [text.strip() for text in texts.split(mark)]


MZ = {
    195.08765: """195.08765|195,08765|1.9508765E2|+195.08765|195.08765 1000.0 1+|195.08765;1000|
        195.08765,1000|195.08765, 1000|(195.08765, None)|[195.08765]|{195.08765}|'195.08765'|
        195.08765@5.2|195.08765/5.2|195.08765:1000|(195.08765,)|(195.08765)|195.08765 Da|
        195.08765 Th|195.08765 m/z|m/z 195.08765|m/z=195.08765|195.08765\u00b10.001|195.08765 (1+)|
        195.08765\t1000""",
    1195.5421: "1,195.5421|1,195.5421 1000 1+|(1,195.5421, None)|1.195,5421",
    1195.0: "1,195",
    195.087: "195.087,1000|195,087",
    195.0: "195",
    0.0: "0|0.0 100",
    -5.0: "-5",
    None: """|abc|nan|inf|1_95.1|195.08.765|195.08x|3_20|195.1_2|195.0877n|C9H8O4|1e999|
        1'195.5421|\uff11\uff19\uff15""",
}
POSITIVE = """Positive|positive|POSITIVE|Pos|POS|pos|+|+ve|+VE|(+)|positive mode|Positive scan|
    POSITIVE ION MODE|posESI|ve+|ESI+|ESI +|ESI(+)|ESI (+)|(+)ESI|(+)-ESI|+ESI|ESI-POS|ESI_POS|
    ESI Positive|Positive ESI|LC-ESI+|LC-ESI(+)-QTOF|Positive-QTOF|APCI+|H-ESI (+)|
    ion mode: positive|positiv|positif|[+]|plus|1+|+1|2+|EI+|MS:1000130;positive scan|\uff0b|
    ESI\u207a|+ c NSI Full ms2|FTMS + p ESI d Full ms2 195.0877@hcd35.00 [50.0000-205.0000]|
    Positive - QTOF|'positive'|Positive ion mode|positivo|Positive (ESI)|APPI(+)|MALDI+|HESI+|
    nanoESI(+)|DART+"""
OPPOSITES = {
    **{"Posit": "Negat", "posit": "negat", "POSIT": "NEGAT", "Pos": "Neg", "POS": "NEG"},
    **{"pos": "neg", "plus": "minus", "1000130": "1000129", "+": "-", "\u207a": "\u207b"},
    "\uff0b": "\u2212",
}
NEGATIVE = re.sub("|".join(map(re.escape, OPPOSITES)), lambda word: OPPOSITES[word[0]], POSITIVE)
POLARITIES = {
    1: f"{POSITIVE}|P|p|1",
    -1: f"{NEGATIVE}|N|n|\u2013|ESI\u2212|(\u2212)",
    0: """ESI|LC-ESI-QTOF|LC-ESI|APCI|MALDI|nanoESI|H-ESI|ESI - QTOF|DART|any|EI|AJS ESI|
        Heated Electrospray Ionization|"""
    + "|".join(MISSING - {"-", "na"}),
    None: "both|Positive/Negative|pos & neg|+/-|\u00b1|switching|abc|7|M|N.N.|P/N",
}
CHARGES = {
    (1, 1): "+|[1+]|(1+,)|z=1+|1\u207a|'1+'|1 positive|1+ and 1+",
    (1, -1): "-1-|\u22121|z=-1|1-negative|1 neg",
    (2, 1): "++|+2+|2++",
    (2, -1): "--2|2--",
    (1, 0): "1|1.0|[1]|z=1",
    (0, 0): "0|0+|0.0|N/A|NA|NA+|nan|None||?",
    (0, -1): "0-|-0|negative|NEG|minus",
    (0, 1): "positive|POS|plus",
    (1, 1, 2): "1+ and 2+|1+,2+|1+ 2+|1+;2+|1+/2+|2+ or 1+|1,2+",
    (2, 1, 2): "+2 +3",
    (1, -1, 2): "1- and 2-",
    (1, 1, 3): "1+, 2+ and 3+",
}
CHARGES = {Charge(*charge): texts for charge, texts in CHARGES.items()} | {
    None: "-1+|+1-|+-1|1+-|1+ and 1-|-|--|\u00b11|abc|1e0|[M+H]+|1000000000+|1000000000|21+|1.5+|"
    f"3++|1-2|{'9' * 20}+|{'9' * 5000}"
}
INSTRUMENTS = {
    "orbitrap": """Orbitrap|LC-ESI-QFT|LC-ESI-ITFT|Q Exactive Plus Orbitrap Thermo Scientific|HCD|
        Exploris 240 Thermo Scientific|Bruker Apex QE 12T FT-ICR|LTQ-FT-ICR|LTQ Orbitrap Velos|
        LTQ Orbitrap XL hybrid iontrap-Orbitrap|IT-FT/ion trap with FTMS|CID; Velos|
        FTMS + c ESI d Full ms2 195.09@hcd35.00""",
    "qtof": """QTOF|LC-ESI-QTOF|TripleTOF 5600 SCIEX|Bruker maXis Impact|timsTOF Pro|Agilent 6530|
        quadrupole time-of-flight|LCMS-IT-TOF|Xevo G2-XS QTof|Agilent 6545|API QSTAR Pulsar i""",
    UNIT_RESOLUTION: """quadrupole|LC-ESI-IT|ESI-QIT|LC-ESI-QQ|ESI-QQQ|QqQ/triple quadrupole|QqIT|
        LIT|IT/ion trap|linear ion trap|Ion Trap|quadrupole ion trap|LC/MSD Trap|Triple Quad 5500+|
        triple-quadrupole|Triple Stage Quadrupole|LC-ESI-Q|LTQ|LTQ XL|LTQ Velos|LTQ Velos Pro|LXQ|
        LCQ Deca XP|TSQ Quantum|4000 QTRAP|Q TRAP|Q-Trap 3200|API 4000|API4000|SCIEX 6500+|SQD|
        amaZon SL|HCTultra|esquire 4000|EVOQ Elite|Xevo TQ|Xevo TQ-S|Xevo TQ-XS|ACQUITY TQD|
        Quattro_QQQ:40eV|Agilent 6490|6410 Triple Quadrupole|6470A|LCMS-8060|LCMS-2020|CID; IT|
        ITMS + c ESI d Full ms2 195.09@cid35.00|LTQ Orbitrap; FTMS + ITMS|Orbitrap Fusion; HCD IT|
        LTQ Orbitrap XL; CID; IT|Orbitrap ID-X (CID, IT)""",
    "": "N/A|CID|",
}
# By instrument and energy in eV of an ion of m/z 200. NIST writes the normalised energy beside the
# one in eV, and the latter was applied; bare numbers of Orbitraps are normalised.
ENERGIES = {
    ("qtof", 10): "qtof 10eV",
    ("qtof", 20): "10/20/30 eV",
    ("qtof", 26): "RAMP 21.0-31.0 eV",
    ("qtof", 28.6): "Ramp 22,9-34.3 eV",
    ("qtof", 30): "30 eV|30|CE=30|20 30 40",
    ("qtof", 30.5): "30,5 eV",
    ("qtof", 32.5): "Ramp 5-60 V",
    ("qtof", 35): "-35 V|35+/-15 eV|35\u00b115 eV|CID 35|35.0|[20.0, 35.0, 50.0]",
    ("qtof", 40): "20,40,60|30-50|20;40;60|20_40_60|20-40-60|20+40+60|(20, 40, 60)",
    ("qtof", 45): "45V",
    ("qtof", 48): "120 %",
    ("orbitrap", 4): "10HCD",
    ("orbitrap", 12): """30.0|30 % (nominal)|30 (nominal)|30(NCE)|HCD; 30|CE30|N30|20 30 40|
        stepped 20-30-40""",
    ("orbitrap", 14): """NCE=35% 14eV|HCD 35% 14 eV|35% (nominal) 14 eV|14eV NCE=35%|NCE(35) 14eV|
        NCE=20-35-50% 14eV|35% (14 eV)|HCD35|35 HCD|35 CID|SCE 20/35/50""",
    ("orbitrap", 14.5): "35 NCE, 14.5 V",
    ("orbitrap", 16.8): "42% (nominal) with stepped collision energies 30% and 55%",
    ("orbitrap", 20): "25,50,75% (stepped)",
    ("orbitrap", 35): "35eV|35 eV FT-MS II|NCE 35 (eV)",
    ("orbitrap", None): """0.35 arbitrary|35 arbitrary units|35 a.u.|stepped|ramp|low|HCD||N/A|ceV|
        0|0.0|scaled by m/z|SORI CID|20 kV|9999 eV|unknown|15, 30, 45, 60, 70 or 90 (nominal)|
        160-0.41mz or 15 (mz>350) nominal units""",
    ("", 4): "10HCD",
    ("", 10): "10  eV|QTOF 10 eV",
    ("", 12): "30.0 NCE|HCD (NCE 20-30-40%)|N30|20-30-40 stepped NCE",
    ("", 14): "NCE=35% 14eV|14 eV (35 NCE)|HCD 35|hcd35.00|35 (HCD)",
    ("", 30): "30|CE 30|30V|20 to 40 eV",
    ("", 35): "HCD 35 eV|35,00 eV|3.5E1 eV|35 ev|35 volts|ms2 35 eV",
    ("", 40): "20.0, 40.0, 60.0 eV",
    ("", None): "9" * 300,
}
SPELLED = {
    mz_of: MZ,
    polarity_of: POLARITIES,
    charge_of: CHARGES,
    instrument_class: INSTRUMENTS,
}


@pytest.mark.parametrize(
    ("read", "meaning", "texts"),
    [
        (read, meaning, split(table[meaning]))
        for read, table in SPELLED.items()
        for meaning in table
    ],
)
def test_a_text_means_the_same_however_it_is_spelled(read, meaning, texts):
    meant = pytest.approx(meaning) if isinstance(meaning, float) else meaning
    assert {text: read(text) for text in texts} == dict.fromkeys(texts, meant)


@pytest.mark.parametrize(("instrument", "energy_ev"), ENERGIES)
def test_text_becomes_one_energy_in_ev_or_none(instrument, energy_ev):
    meant = pytest.approx(energy_ev)
    for text in split(ENERGIES[instrument, energy_ev]):
        assert collision_energy_ev(text, 200.0, instrument) == meant, text
        # A normalised one needs the precursor.
        assert collision_energy_ev(text, None, instrument) in (None, meant), text


@given(
    st.floats(50, 2000),
    st.sampled_from(["{}", " {} ", "({}, None)", "[{}]", "{} 1000 1+", "{}@5.2"]),
)
def test_a_precursor_comes_back_from_any_usual_form(mz, form):
    assert mz_of(form.format(f"{mz:.5f}")) == pytest.approx(mz, abs=1e-5)
    assert mz_of(form.format(f"{mz:,.5f}")) == pytest.approx(mz, abs=1e-5)


# Ways in which programs attach a sign to a number.
ATTACHED = ("{n}{s}", "{s}{n}", "{s}{n}{s}", "[{n}{s}]", "({s}{n})", " {n} {s} ", "{s}{n}.0")
DASHES = ("-", "\u2212", "\u2013", "\u2010", "\u2011", "\uff0d", "\u207b")


@given(st.integers(1, 20), st.sampled_from(ATTACHED), st.sampled_from([*DASHES, "+", "\u207a"]))
def test_a_sign_never_flips_wherever_it_is_attached(n, form, mark):
    sign = -1 if mark in DASHES else 1

    for text in (form.format(n=n, s=mark), f"{n}{'+' if sign > 0 else '-'}", f"{sign * n:+d}"):
        assert charge_of(text) == Charge(n, sign)


# The filter line decides, and then the trap of a hybrid.
ANALYSERS = """\
instrument=LTQ Orbitrap XL | filter string=ITMS + c Full ms2 -> unit
instrument=LTQ XL | filter string=FTMS + c Full ms2 -> orbitrap
instrument=FTMS + ITMS | filter string=FTMS + c Full ms2 -> orbitrap
instrument=LTQ Orbitrap | fragmentation_mode=CID; IT -> unit
instrument=Orbitrap Fusion | analyzer=ITMS -> unit
instrument_type=LC-ESI-IT | instrument=LTQ Orbitrap XL -> unit
instrument_type=LC-ESI-ITFT | instrument=LTQ Orbitrap XL -> orbitrap
instrument=Q Exactive | fragmentation_mode=HCD -> orbitrap
title=x -> """


@pytest.mark.parametrize("row", ANALYSERS.splitlines())
def test_the_analyser_is_that_of_the_fragments(row):
    fields, kind = split(row, "->")
    texts = dict(field.split("=") for field in split(fields))

    assert instrument_of(texts) == (UNIT_RESOLUTION if kind == "unit" else kind)


def mgf(*fields):
    return "\n".join(["BEGIN IONS", *fields, "181.0718 1000", "END IONS", ""])


ANY, OF_250, OF_NONE = mgf("PEPMASS=181.0718", "{}"), mgf("PEPMASS=250", "{}"), mgf("{}")
MSP = "Name: a\nPrecursorMZ: 195.0877\n{}\nNum Peaks: 1\n50 1\n"
MS = ">compound a\n>parentmass 195.0877\n{}\n>ms2\n50 1\n"
MINUTES, SECONDS = "is read as minutes", "is read as seconds"
# Record, seconds, what is assumed, what is warned of, and the fields that say so.
TIMES = (
    (ANY, 312.5, "", "", """RTINSECONDS=312.5|RTINSECONDS=3.125E2|RTINSECONDS=312,5|RT=312.5 s|
        RTINSECONDS=310-315|RTINSECONDS=PT312.5S|RT=312.5 (s)|RT=312.5s|RT=312.5 sec|
        RT=312.5 seconds|RT=PT312.5S|RT=PT5M12.5S|RT=5m 12.5s"""),
    (ANY, 312.0, "", "", """RTINMINUTES=5.2|rt_min=5.2|RT (min)=5.2|rt_seconds=312|RT [s]=312|
        retention time (sec)=312|RETENTION_TIME_MINUTES=5.2|RT=5 min 12 sec|RT=5.1-5.3 min|
        RT=5.1 to 5.3 min|RT=\nRTINMINUTES=5.2"""),
    (ANY, 312.6, "", "", "RT=5.21 min|RT=5.21min|RT=5.21 m|RT=5.21 [min]"),
    (ANY, 5.2, "", "", "RTINSECONDS=5.2|rtime=5.2"),  # as R writes it
    (ANY, 360.0, "", "", "RT=0.1 h"),
    (ANY, 3601.0, "", "", "RT=PT1H0M1S|RT=P0Y0M0DT1H0M1S"),
    (ANY, 313.0, "", "", "RT=5:13"),
    (ANY, 3605.0, "", "", "RT=1:00:05"),
    (ANY, 312.6, MINUTES, "", "RT=5.21|RETENTIONTIME=5.21|retention_time=5.21"),
    (ANY, 6000.0, MINUTES, "", "RT=100"),
    (ANY, 312.5, SECONDS, "", "retention_time=312.5"),
    (MSP, 312.6, MINUTES, "", "RT: 5.21|RETENTIONTIME: 5.21|Retention_time: 5.21"),
    (MSP, 312.5, SECONDS, "", "RT: 312.5|RETENTIONTIME: 312.5"),
    (MSP, 312.6, "", "", "RETENTIONTIME: 5.21 min"),
    (MSP, 62.0, "", "", "RTINSECONDS: 62"),
    (MSP, None, "", "", "Retention_index: 1200"),
    (MS, 5.21, "", "", ">rt 5.21"),  # seconds by the format
    (MS, 448.2, "", "", ">rt 448.2s"),
    (ANY, None, "", "", "RT=N/A|RT=-1|TITLE=5"),
    (ANY, None, "", "retention time 'abc' is not understood", "RT=abc"),
    (ANY, None, "", "retention time '5.2 furlongs' is not understood", "RT=5.2 furlongs"),
)  # fmt: skip
FULL_MS2 = "FILTER STRING=FTMS + p ESI d Full ms2 250.0@hcd40.00 [50-260]"
FULL_MS3 = "FILTER STRING=ITMS + c ESI d Full ms3 500.1@cid35.00 250.0@hcd45.00 [50-310]"
ION_ENERGIES = {
    20: f"{FULL_MS2}|NCE=40|NCE=40\nINSTRUMENT=qTOF|HCD energy=40",
    22.5: FULL_MS3,
    5: f"COLLISION_ENERGY=10\n{FULL_MS2}",
    30: "COLLISION_ENERGY_EV=30\nINSTRUMENT=Orbitrap",
    40: "COLLISION_ENERGY=40\nINSTRUMENT=qTOF",
}
LEVELS = {
    1: "MSLEVEL=1|MSLEVEL=MS1|MSLEVEL=MS|SPECTYPE=CORRELATED MS\nMSLEVEL=2",
    2: "MSLEVEL=MS2|MSLEVEL=2.0|MSLEVEL=MSn|TITLE=x",
}
# Charge and polarity, and fields of mzmine, MS-DIAL, SIRIUS, GNPS, MassBank, MoNA, R Spectra,
# matchms, OpenMS and mzXML that say so.
IONS = {
    (0, -1): """IONMODE=Negative|ION_MODE=NEGATIVE|Ion mode=N|POLARITY=-|MODE=negative|
        Scan mode=Negative|SCAN_POLARITY=negative|ScanPolarity=Negative|ION=negative|
        IONIZATION_MODE=negative|ionpolarity=-|ION_SOURCE=ESI-|IONIZATION=ESI(-)|polarity=0|
        INSTRUMENT_TYPE=LC-ESI-QTOF negative|TITLE=Cmpd 4, -MS2(181.0718), 24.7eV, 3.2min|
        FILTER STRING=FTMS - c ESI d Full ms2 181.07@hcd30.00 [50-190]""",
    (0, 0): "MODE=DDA|TITLE=run-MS2(1)|polarity=-1",  # R writes -1 for unknown
    (0, 1): "TITLE=Cmpd 4, +MSn(181.0718), 3.2min|polarity=1|CHARGE=0-\npolarity=1",
    (-1, -1): """z=-1|ADDUCT=[M-?]-|ION=1-|PRECURSORCHARGE=-1|CHARGE=-1-|
        CHARGE=1\nIONMODE=Negative""",
    (2, 1): "ION=[M+?]2+",
    (-2, -1): "CHARGE_STATE=2-",
    (1, 0): "CHARGE=1\nION=[M-H]-|CHARGE=1\nIONMODE=ESI",
}
COLUMNS = {
    (-1, -1): "5000 1-|5000 -1|5000 -1-|1-",
    (1, 1): "5000.5 1+",
    (2, 1): "5000\t2+",
    (2, 0): "5000 2",
    (0, 0): "5000|5000 0|5000 high",
}
ADDUCT_KEYS = """ADDUCT|adduct|Adduct|ADDUCT_TYPE|Adduct type|AdductType|PRECURSORTYPE|ION|IONTYPE|
    PRECURSOR_TYPE|Precursor type|precursor-type|ION_TYPE|Ion Type|IONIZATION|ionization|BEST_ION|
    ADDUCTIONNAME|AdductIonName|ADDUCT_ION|best ion|Best Ion|FEATURE_ADDUCT|ION_SPECIES|MY-ADDUCT|
    PREDICTED_ADDUCT|precursor_ion_type|Precursor Adduct|Adduct (ion)"""
ADDUCTS = {
    "": """ADDUCT=N/A|ADDUCT=NA|ADDUCT=na|ADDUCT=unknown|ADDUCT=?|ADDUCT=[M+?]+|ADDUCT=[M + ?]+|
        ADDUCT=positive|ADDUCT=1+|ADDUCT=ESI|ION=ESI|ION=MALDI|ION=ESI+|IONIZATION=LC-ESI-QFT|
        IONIZATION=Thermo heated source|ADDUCT_SCORE=0.93|ADDUCT_MASS=1.00728""",
    "[m+na]+": "|".join(f"{key}=[m+na]+" for key in split(ADDUCT_KEYS)),
    "M+Na": "ION=ESI\nADDUCT_GUESS=M+Na",
    "[M+H]+": "ADDUCT=\nPRECURSORTYPE=[M+H]+",
    "[2M+H]+": "ION=[2M+H]+",
} | {
    adduct: f"ADDUCT={adduct}"
    for adduct in ("Na", "[M+Foo]+", "rubbish", "[Foo]+", "M", "[M]+*", "[Cat]+", "MH+", "1.00728",
                   "[M-H]-/[M-Ser]-")
}  # fmt: skip
# Spectra of electron ionisation, which are refused, and of soft ionisation.
ELECTRON = """IONIZATION=EI+|IONIZATION=EI|Ionization=Electron ionization|ION_MODE=EI|ION=EI|
    INSTRUMENT_TYPE=GC-EI-TOF|INSTRUMENT_TYPE=EI-B|IONIZATION=electron impact|ELECTRON_ENERGY=70|
    SOURCE_INSTRUMENT=GC-EI-Orbitrap|IONIZATION_ENERGY=70 eV|INSTRUMENT_TYPE=GC-EI-TOF\nMSLEVEL=1|
    COLLISION_ENERGY=70 eV\nADDUCT=[M]+|COLLISION_ENERGY=70eV\nADDUCT=[M]+*|
    COLLISION_ENERGY=70\nADDUCT=M+.|INSTRUMENT_TYPE=GC-MS\nADDUCT=[M]+|
    INSTRUMENT_TYPE=GC-QTOF\nADDUCT=[M]+.|IONIZATION=EI\nADDUCT=[M+H]+"""
SOFT = """IONIZATION=ESI|IONIZATION=APCI|INSTRUMENT_TYPE=GC-APCI-QTOF|COMMENT=EI|
    IONIZATION=atmospheric pressure chemical ionization|SOURCE_INSTRUMENT=Heidelberg qTOF|
    COLLISION_ENERGY=70 eV\nADDUCT=[M+H]+|IONIZATION_ENERGY=15 eV|COLLISION_ENERGY=70 eV|
    INSTRUMENT_TYPE=ESI-QTOF\nCOLLISION_ENERGY=70 eV\nADDUCT=[M]+|
    SOURCE_INSTRUMENT=TripleTOF 5600\nCOLLISION_ENERGY=70 eV\nADDUCT=[M]+"""
CHEMICAL = "IONIZATION=CI|INSTRUMENT_TYPE=CI-B|IONIZATION=NCI"
REFUSED = {"ms_level": 2, "status": "unsupported_measurement"}
# Fields of MGF, the formula that they name, what is warned of, and what is assumed.
REMARKS = """\
FORMULA_SCORE=C9H8O4 :: :: ::
FORMULA_RANK=1 | MOLECULAR_FORMULA=C9H8O4 :: C9H8O4 :: ::
formula_ppm=2.1 | NUM_FORMULAS=3 | FORMULA_SOURCE=CSI :: :: ::
SIRIUS_FORMULA=C9H8O4 :: C9H8O4 :: ::
formula (neutral)=C9H8O4 :: C9H8O4 :: ::
formula1=C9H8O4 :: C9H8O4 :: ::
FORMULA=N/A | MOLECULAR_FORMULA=C9H8O4 :: C9H8O4 :: ::
FORMULA=na :: :: ::
MY_FORMULA=none of these | BEST_FORMULA=C9H8O4 :: C9H8O4 :: my_formula 'none of these' ::
PRECURSOR_FORMULA=C9H9O4 | SIRIUS_FORMULA=C9H8O4 :: C9H8O4 :: ::
PRECURSOR_FORMULA=C9H9O4 | Ion formula=C9H9O4 :: :: ::
PREDICTION_FORMULA=C9H8O4 :: C9H8O4 :: ::
FORMULA=0.93 :: 0.93 :: ::
FORMULA=C9H8O4 | MOLECULAR_FORMULA=C8H8O4 :: C9H8O4 :: is used, not molecular_formula C8H8O4 ::
FORMULA=C9H8O4 | MOLECULAR_FORMULA=H8C9O4 | PRECURSOR_FORMULA=C9H9O4 :: C9H8O4 :: ::
CHARGE=1+ :: :: ::
MSLEVEL=two :: :: mslevel 'two' is no MS level ::
ms level=centroid | SPECTRUMTYPE=Centroid :: :: ms level 'centroid' is no MS level ::
MSLEVEL=MS/MS | MSTYPE=any :: :: ::
CHARGE=abc | IONMODE=N :: :: charge 'abc' is not understood ::
IONMODE=both | CHARGE=1- :: :: ionmode 'both' is not understood ::
CHARGE=1+ and 2+ :: :: :: charge '1+ and 2+' is read as 1, the lowest
polarity=0 :: :: :: polarity 0 is read as negative, as R writes it
polarity=-1 :: :: :: polarity -1 counts as unknown, as R writes it
ADDUCT=Na :: :: :: adduct 'Na' is read as [M+Na]+
ADDUCT=+H :: :: :: adduct '+H' is read as [M+H]+
CHARGE=1+ | IONMODE=negative :: :: ionmode negative and charge 1+ contradict each other ::
CHARGE=1- | POLARITY=+ :: :: polarity + and charge 1- contradict each other ::
POLARITY=+ | IONMODE=neg :: :: polarity + and ionmode neg contradict each other ::
ADDUCT=[M+H]+ | ION=[M+Na]+ :: :: adduct [M+H]+ is used, not ion [M+Na]+ ::
ADDUCT=[M+Foo]+ | ION=[M+Na]+ :: :: ion [M+Na]+ is used, not adduct [M+Foo]+ ::
ION=rubbish :: :: ion 'rubbish' is not understood ::
CHARGE=1+ | CHARGE=1- :: :: charge 1+ and charge 1- contradict each other ::
ADDUCT=[M+H]+ | ADDUCT=[M+Na]+ :: :: adduct [M+H]+ is used, not adduct [M+Na]+ ::
PRECURSOR_MZ=217.0696 :: :: precursor m/z 181.072 (pepmass) is used, not 217.07 ::
PRECURSOR_MZ=181.0918 :: :: precursor m/z 181.072 (pepmass) is used, not 181.092 ::
PEPMASS=217.0696 :: :: precursor m/z 181.072 (pepmass) is used, not 217.07 (pepmass) ::
RTINSECONDS=62 | RTINMINUTES=3.5 :: :: retention time 62 (rtinseconds) is used, not 3.5 ::
RTINSECONDS=62 | RTINMINUTES=1.1 :: :: retention time 62 (rtinseconds) is used, not 1.1 ::
ACTIVATION=EAD :: :: fragments of EAD: the networks know those of collisions ::
DISSOCIATION_METHOD=ETD :: :: fragments of ETD: the networks know those of collisions ::
SCANFILTER=FTMS + p Full ms2 181.07@etd50.00 [50-200] :: :: the networks know those of coll ::
ACTIVATION=HCD | DISSOCIATION_METHOD=CID :: :: ::
ADDUCT=[M+H]+ | ION=M+H | PRECURSORTYPE=[M+H]1+ :: :: ::
CHARGE=1+ | IONMODE=positive | POLARITY=+ | ION=1+ :: :: ::
PRECURSOR_MZ=181.0719 | PRECURSORMZ=181.0718 :: :: ::
RTINSECONDS=62 | RTINMINUTES=1.03 :: :: ::
CHARGE=1+ | CHARGE=1+ | NAME=a | NAME=b | COMMENT=x | COMMENT=y :: :: ::
ADDUCT=[M+H]+ | ADDUCT=N/A | CHARGE=1+ | CHARGE= | IONMODE= | IONMODE=positive :: :: ::"""
# Forms of records, texts in them, fields of what is read, the one warning and the one assumption.
RECORDS = (
    *((form, split(texts), {"retention_time_s": seconds}, warning, assumption)
      for form, seconds, assumption, warning, texts in TIMES),
    *((OF_250, split(texts), {"collision_energy_ev": pytest.approx(ev)}, "", "")
      for ev, texts in ION_ENERGIES.items()),
    *((ANY, split(texts), {"ms_level": level}, "", "") for level, texts in LEVELS.items()),
    *((ANY, split(texts), {"charge": ion[0], "polarity": ion[1], "unread_ion": ""}, "", None)
      for ion, texts in IONS.items()),
    *((OF_NONE, [f"PEPMASS={mz} {text}" for text in split(texts) for mz in (181.0718, "181,0718")],
       {"precursor_mz": 181.0718, "charge": ion[0], "polarity": ion[1]}, "", "")
      for ion, texts in COLUMNS.items()),
    *((ANY, split(texts), {"adduct_text": adduct}, None, None)
      for adduct, texts in ADDUCTS.items()),
    (ANY, split(ELECTRON), REFUSED, "", None),
    (ANY, split(SOFT), {"ms_level": 2, "status": ""}, "", None),
    (ANY, split(CHEMICAL), {"status": ""}, "measured by chemical ionisation", ""),
    *((ANY, [fields.replace(" | ", "\n")], {"formula_text": formula, "status": ""}, *said)
      for fields, formula, *said in (split(line, "::") for line in REMARKS.splitlines())),
)  # fmt: skip


@pytest.mark.parametrize(
    ("form", "texts", "fields", "warning", "assumption"),
    RECORDS,
    ids=[texts[0][:60].replace("\n", " ") for _, texts, *_ in RECORDS],
)
def test_what_is_read_of_a_record_and_said_of_it(
    tmp_path, form, texts, fields, warning, assumption
):
    for text in texts:
        (found,) = parsed(tmp_path, form.format(text))

        assert fields_of(found, fields) == fields, text
        assert found.failure is None or "measured by electron ionisation" in found.failure.message
        for said, part in ((found.warnings, warning), (found.assumptions, assumption)):
            assert part is None or (len(said) == bool(part) and part in "".join(said)), text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("CHARGE=-1+", "charge '-1+' is not understood"),
        ("CHARGE=1000000000+\nIONMODE=positive", "charge '1000000000+' is not understood"),
        ("CHARGE=-", "charge '-' is not understood"),
        ("IONMODE=both", "ionmode 'both' is not understood"),
        ("POLARITY=switching", "polarity 'switching' is not understood"),
        ("PEPMASS=181.0718 1 1000000000+", "third column of pepmass '1000000000+' is not"),
    ],
)
def test_what_is_there_and_not_understood_is_no_leave_to_guess(tmp_path, fields, said):
    (found,) = parsed(tmp_path, mgf(fields, "PRECURSOR_MZ=181.0718"))

    refused = from_text(Feature((found,)), "C6H12O6")

    assert said in found.warnings[0]
    assert refused.status == "unsupported_adduct"
    assert said in refused.message
    assert "name the adduct" in refused.message
