"""Keys, precursor m/z, times, energies, formulas and instruments as programs write them."""

import csv
import lzma
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.spectra.reading import record as fields
from duallgd_cli.spectra.reading.quantities import collision_energy_ev, energy_of_filter, mz_of
from duallgd_cli.spectra.reading.record import instrument_class, instrument_of
from duallgd_cli.spectra.types import UNIT_RESOLUTION
from tests.made_spectra import parsed

SPELLINGS = {
    "precursortype|precursor_type|adduct type|adduct_type": "adduct",
    "precursormz|precursor_mass|precursor m/z|precursor_m/z|mz|precursor": "precursor_mz",
    "ionmode|ion_mode|polarity|scan_polarity|ionpolarity": "ionmode",
    "collisionenergy|collision energy|ce|colenergy": "collision_energy",
    "mslevel|ms level|ms_type|spectrum type": "ms_level",
    "featureid|feature id|feature_id": "feature_id",
    "name|compoundname|compound_name": "compound_name",
    "spectrumid|accession|db#": "spectrum_id",
    "instrumenttype|instrument type": "instrument_type",
    "rtinseconds|retentiontime|rt": "retention_time",
    "my key": "my key",
}
MISSING = ("", " ", "N/A", "na", "NaN", "null", "None", "-", "unknown")
LEVELS = {"1": 1, "MS1": 1, "MS": 1, "MS2": 2, "2.0": 2, "3": 3, "MSn": 2}


@pytest.mark.parametrize(
    ("read", "given", "expected"),
    [
        *((fields.canonical_key, key, name) for keys,
            name in SPELLINGS.items() for key in keys.split("|")),
        *((fields.canonical, {"formula": value}, {}) for value in MISSING),
        *((fields.level_of, {"ms_level": text}, level) for text, level in LEVELS.items()),
        (fields.level_of, {}, 2),
        (fields.level_of, {"spectype": "CORRELATED MS", "ms_level": "2"}, 1),
    ],
)  # fmt: skip
def test_what_fields_say(read, given, expected):
    assert read(given) == expected


PRECURSORS = {
    195.08765: """195.08765| 195.08765 |195,08765|1.9508765E2|+195.08765|195.08765 1000.0 1+|
        195.08765;1000|195.08765,1000|195.08765, 1000|(195.08765, None)|[195.08765]|(195.08765)|
        {195.08765}|'195.08765'|195.08765@5.2|195.08765/5.2|195.08765:1000|(195.08765,)|
        195.08765 Da|195.08765 Th|195.08765 m/z|m/z 195.08765|m/z=195.08765|195.08765\u00b10.001|
        195.08765 (1+)|195.08765\t1000""",
    1195.5421: "1,195.5421|1,195.5421 1000 1+|(1,195.5421, None)|1.195,5421",
    1195.0: "1,195",
    195.087: "195.087,1000|195,087",
    195.0: "195",
    0.0: "0|0.0 100",
    -5.0: "-5",
    None: """|abc|nan|inf|1_95.1|195.08.765|195.08x|3_20|195.1_2|195.0877n|C9H8O4|1e999|
        1'195.5421|\uff11\uff19\uff15""",
}


@pytest.mark.parametrize(
    ("text", "mz"), [(text, mz) for mz, texts in PRECURSORS.items() for text in texts.split("|")]
)
def test_a_precursor_is_read_however_it_is_spelled(text, mz):
    assert mz_of(text.removeprefix("\n        ")) == (None if mz is None else pytest.approx(mz))


@given(st.floats(50, 2000), st.sampled_from(["{}", "({}, None)", "[{}]", "{} 1000 1+", "{}@5.2"]))
def test_a_precursor_comes_back_from_any_usual_form(mz, form):
    assert mz_of(form.format(f"{mz:.5f}")) == pytest.approx(mz, abs=1e-5)
    assert mz_of(form.format(f"{mz:,.5f}")) == pytest.approx(mz, abs=1e-5)


MGF = "BEGIN IONS\nPEPMASS=195.0877\n{}\n50 1\nEND IONS\n"
MSP = "Name: a\nPrecursorMZ: 195.0877\n{}\nNum Peaks: 1\n50 1\n"
MS = ">compound a\n>parentmass 195.0877\n{}\n>ms2\n50 1\n"
MINUTES, SECONDS = "is read as minutes", "is read as seconds"
# Record, what is said of its time, seconds, and the fields that say so.
TIMES = (
    (MGF, "", 312.5, """RTINSECONDS=312.5|RTINSECONDS=3.125E2|RTINSECONDS=312,5|RTINSECONDS=310-315|
        RTINSECONDS=PT312.5S|RT=312.5 s|RT=312.5 (s)|RT=312.5s|RT=312.5 sec|RT=312.5 seconds|
        RT=PT312.5S|RT=PT5M12.5S|RT=5m 12.5s"""),
    (MGF, "", 312.0, """RTINMINUTES=5.2|rt_min=5.2|RT (min)=5.2|rt_seconds=312|RT [s]=312|
        retention time (sec)=312|RETENTION_TIME_MINUTES=5.2|RT=5 min 12 sec|RT=5.1-5.3 min|
        RT=5.1 to 5.3 min|RT=;RTINMINUTES=5.2"""),
    (MGF, "", 312.6, "RT=5.21 min|RT=5.21min|RT=5.21 m|RT=5.21 [min]"),
    (MGF, "", 5.2, "RTINSECONDS=5.2|rtime=5.2"),  # as R writes it
    (MGF, "", 360.0, "RT=0.1 h"),
    (MGF, "", 3601.0, "RT=PT1H0M1S"),
    (MGF, "", 313.0, "RT=5:13"),
    (MGF, "", 3605.0, "RT=1:00:05"),
    (MGF, MINUTES, 312.6, "RT=5.21|RETENTIONTIME=5.21|retention_time=5.21"),
    (MGF, MINUTES, 6000.0, "RT=100"),
    (MGF, SECONDS, 312.5, "retention_time=312.5"),
    (MSP, MINUTES, 312.6, "RT: 5.21|RETENTIONTIME: 5.21|Retention_time: 5.21"),
    (MSP, SECONDS, 312.5, "RT: 312.5|RETENTIONTIME: 312.5"),
    (MSP, "", 312.6, "RETENTIONTIME: 5.21 min"),
    (MSP, "", 62.0, "RTINSECONDS: 62"),
    (MSP, "", None, "Retention_index: 1200"),
    (MS, "", 5.21, ">rt 5.21"),  # seconds by the format
    (MS, "", 448.2, ">rt 448.2s"),
    (MGF, "", None, "RT=N/A|RT=-1|TITLE=5"),
    (MGF, "retention time 'abc' is not understood", None, "RT=abc"),
    (MGF, "retention time '5.2 furlongs' is not understood", None, "RT=5.2 furlongs"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("record", "says", "seconds", "field"),
    [(*case, field.strip()) for *case, texts in TIMES for field in texts.split("|")],
)
def test_a_retention_time_has_the_unit_of_value_key_or_format(
    tmp_path, record, says, seconds, field
):
    (found,) = parsed(tmp_path, record.format(field.replace(";", "\n")))

    assert found.retention_time_s == seconds
    said = (*found.assumptions, *found.warnings)
    assert (says in said[0]) if says else (said == ())
    assert bool(found.assumptions) == (says in (MINUTES, SECONDS))


@pytest.mark.parametrize(
    ("line", "energy"),
    [
        ("FTMS + p ESI d Full ms2 195.0877@hcd35.00 [50.0000-205.0000]", "35.00 NCE"),
        ("ITMS + c ESI d Full ms3 500.1@cid35.00 300.2@hcd45.00 [50-310]", "45.00 NCE"),
        ("FTMS + p ESI Full ms [100-1000]", ""),
        ("", ""),
    ],
)
def test_a_filter_line_names_an_energy(line, energy):
    assert energy_of_filter(line) == energy


@pytest.mark.parametrize(
    ("text", "energy_ev"),
    [
        ("FILTER STRING=FTMS + p ESI d Full ms2 250.0@hcd40.00 [50-260]", 20),
        ("COLLISION_ENERGY=10\nFILTER STRING=FTMS + p ESI d Full ms2 250.0@hcd40.00 [50-260]", 5),
        ("COLLISION_ENERGY_EV=30\nINSTRUMENT=Orbitrap", 30),
        ("NCE=40", 20),
        ("NCE=40\nINSTRUMENT=qTOF", 20),
        ("HCD energy=40", 20),
        ("COLLISION_ENERGY=40\nINSTRUMENT=qTOF", 40),
    ],
)
def test_an_energy_has_the_unit_of_its_key(tmp_path, text, energy_ev):
    (found,) = parsed(tmp_path, MGF.replace("195.0877", "250.0").format(text))

    assert found.collision_energy_ev == pytest.approx(energy_ev)


# Fields, the formula that they name, and what is said.
FORMULAS = """\
FORMULA_SCORE=0.93 :: ::
FORMULA_SCORE=C9H8O4 :: ::
SIRIUS_FORMULA_RANK=1 :: ::
FORMULA_RANK=1 | MOLECULAR_FORMULA=C9H8O4 :: C9H8O4 ::
formula_ppm=2.1 :: ::
FORMULA_PROBABILITY=0.5 :: ::
NUM_FORMULAS=3 :: ::
SIRIUS_FORMULA=C9H8O4 :: C9H8O4 ::
Molecular Formula=C9H8O4 :: C9H8O4 ::
MOLECULARFORMULA=C9H8O4 :: C9H8O4 ::
formula (neutral)=C9H8O4 :: C9H8O4 ::
FORMULA_SIRIUS=C9H8O4 :: C9H8O4 ::
formula1=C9H8O4 :: C9H8O4 ::
FORMULA_SOURCE=CSI :: ::
FORMULA=N/A | MOLECULAR_FORMULA=C9H8O4 :: C9H8O4 ::
FORMULA=na :: ::
FORMULA= :: ::
PREDICTED_FORMULA=0.93 :: :: predicted_formula '0.93' is no formula and is left out
MY_FORMULA=none of these | BEST_FORMULA=C9H8O4 :: C9H8O4 :: my_formula 'none of these'
PRECURSOR_FORMULA=C9H9O4 | SIRIUS_FORMULA=C9H8O4 :: C9H8O4 ::
FORMULA=0.93 :: 0.93 ::
FORMULA=C9H8O4 | FORMULA_SCORE=0.93 :: C9H8O4 ::"""


@pytest.mark.parametrize("line", FORMULAS.splitlines())
def test_a_formula_is_what_a_key_calls_one(tmp_path, line):
    text, formula, says = map(str.strip, line.split("::"))
    (found,) = parsed(tmp_path, MGF.format(text.replace(" | ", "\n")))

    assert found.formula_text == formula
    assert (says in found.warnings[0]) if says else (found.warnings == ())


# Instrument, energy in eV of an ion of m/z 200, and texts; NIST writes the normalised energy beside
# the one in eV, and the latter was applied; bare numbers of Orbitraps are normalised.
ENERGIES = (
    ("qtof", 30, "30 eV|30|30,5 eV=30.5|20,40,60=40|30-50=40|[20.0, 35.0, 50.0]=35|10/20/30 eV=20"),
    ("qtof", 35, "-35 V|35+/-15 eV|35\u00b115 eV|CID 35|35.0|45V=45|120 %=48|Ramp 5-60 V=32.5"),
    ("qtof", 40, "20;40;60|20_40_60|20-40-60|20+40+60|(20, 40, 60)|qtof 10eV=10|CE=30=30"),
    ("qtof", 26, "RAMP 21.0-31.0 eV|Ramp 22,9-34.3 eV=28.6|20 30 40=30"),
    ("orbitrap", 12, """30.0|30 % (nominal)|30 (nominal)|30(NCE)|HCD; 30|CE30|N30|20 30 40|
        stepped 20-30-40"""),
    ("orbitrap", 35, "35eV|35 eV FT-MS II|NCE 35 (eV)|25,50,75% (stepped)=20|10HCD=4"),
    ("orbitrap", 16.8, "42% (nominal) with stepped collision energies 30% and 55%"),
    ("orbitrap", 14, """NCE=35% 14eV|HCD 35% 14 eV|35% (nominal) 14 eV|14eV NCE=35%|NCE(35) 14eV|
        NCE=20-35-50% 14eV|35% (14 eV)|HCD35|35 HCD|35 CID|SCE 20/35/50|35 NCE, 14.5 V=14.5"""),
    ("", 12, "30.0 NCE|HCD (NCE 20-30-40%)|N30|20-30-40 stepped NCE|30=30|CE 30=30|30V=30"),
    ("", 14, "NCE=35% 14eV|14 eV (35 NCE)|HCD 35|hcd35.00|35 (HCD)|10HCD=4|10  eV=10"),
    ("", 35, "HCD 35 eV|35,00 eV|3.5E1 eV|35 ev|35 volts|ms2 35 eV|QTOF 10 eV=10"),
    ("", 40, "20.0, 40.0, 60.0 eV|20 to 40 eV=30"),
    ("orbitrap", None, """0.35 arbitrary|35 arbitrary units|35 a.u.|stepped|ramp|low|HCD||N/A|ceV|0|
        0.0|scaled by m/z|SORI CID|20 kV|9999 eV|unknown|15, 30, 45, 60, 70 or 90 (nominal)|
        160-0.41mz or 15 (mz>350) nominal units"""),
)  # fmt: skip


def energies():
    for instrument, energy_ev, texts in ENERGIES:
        for text in texts.split("|"):
            *start, end = text.strip().rpartition("=")
            is_own = start[0] and not end.endswith(("eV", "%"))
            yield (start[0], instrument, float(end)) if is_own else (
                text.strip(), instrument, energy_ev,
            )  # fmt: skip


@pytest.mark.parametrize(("text", "instrument", "energy_ev"), [*energies(), ("9" * 300, "", None)])
def test_text_becomes_one_energy_in_ev_or_none(text, instrument, energy_ev):
    assert collision_energy_ev(text, 200.0, instrument) == pytest.approx(energy_ev)


def test_a_normalised_energy_needs_the_precursor():
    assert collision_energy_ev("30 NCE", None, "") is None
    assert collision_energy_ev("30 eV", None, "orbitrap") == 30


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


@pytest.mark.parametrize(
    ("text", "kind"),
    [(text.strip(), kind) for kind in INSTRUMENTS for text in INSTRUMENTS[kind].split("|")],
)
def test_the_instrument_is_classed(text, kind):
    assert instrument_class(text) == kind


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ({"instrument": "LTQ Orbitrap XL", "filter string": "ITMS + c Full ms2"}, UNIT_RESOLUTION),
        ({"instrument": "LTQ XL", "filter string": "FTMS + c Full ms2"}, "orbitrap"),
        ({"instrument": "FTMS + ITMS", "filter string": "FTMS + c Full ms2"}, "orbitrap"),
        ({"instrument": "LTQ Orbitrap", "fragmentation_mode": "CID; IT"}, UNIT_RESOLUTION),
        ({"instrument": "Orbitrap Fusion", "analyzer": "ITMS"}, UNIT_RESOLUTION),
        ({"instrument_type": "LC-ESI-IT", "instrument": "LTQ Orbitrap XL"}, UNIT_RESOLUTION),
        ({"instrument_type": "LC-ESI-ITFT", "instrument": "LTQ Orbitrap XL"}, "orbitrap"),
        ({"instrument": "Q Exactive", "fragmentation_mode": "HCD"}, "orbitrap"),
        ({}, ""),
    ],
)
def test_the_filter_line_decides_and_then_the_trap_of_a_hybrid(texts, kind):
    assert instrument_of(texts) == kind


def test_every_massbank_record_gets_the_energy_of_its_column_but_for_ramps_and_choices(shared):
    csv.field_size_limit(1 << 30)
    classes = {"Orbitrap": "orbitrap", "QTOF": "qtof"}
    different = Counter()
    with lzma.open(
        shared / "data/massbank/massbank.tsv.xz", "rt", encoding="utf-8", newline=""
    ) as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            text, mz = row["collision_energy_text"], float(row["precursor_mz"])
            ours = collision_energy_ev(text, mz, classes[row["instrument_type"]])
            theirs = float(row["collision_energy"]) if row["collision_energy"] else None
            if ours != theirs and (None in (ours, theirs) or abs(ours - theirs) > 0.011):
                different[text] += 1

    # The column took the first number of these; a mean, or nothing, is meant.
    assert all(" or " in t or "-" in t or "," in t or "m/z" in t or "kV" in t for t in different)
    assert sum(different.values()) < 750
