"""Precursor m/z, retention times and energies of filter lines as programs write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.spectra.reading.quantities import energy_of_filter, mz_of
from tests.made_spectra import parsed

PRECURSORS = {
    **dict.fromkeys(
        ("195.08765", " 195.08765 ", "195,08765", "1.9508765E2", "+195.08765"), 195.08765
    ),
    **dict.fromkeys(("195.08765 1000.0 1+", "195.08765\t1000", "195.08765;1000"), 195.08765),
    **dict.fromkeys(("195.08765,1000", "195.08765, 1000", "(195.08765, None)"), 195.08765),
    **dict.fromkeys(("[195.08765]", "(195.08765)", "{195.08765}", "'195.08765'"), 195.08765),
    **dict.fromkeys(
        ("195.08765@5.2", "195.08765/5.2", "195.08765:1000", "(195.08765,)"), 195.08765
    ),
    **dict.fromkeys(("195.08765 Da", "195.08765 Th", "195.08765 m/z", "m/z 195.08765"), 195.08765),
    **dict.fromkeys(("m/z=195.08765", "195.08765\u00b10.001", "195.08765 (1+)"), 195.08765),
    "1,195.5421": 1195.5421,
    "1,195.5421 1000 1+": 1195.5421,
    "(1,195.5421, None)": 1195.5421,
    "1,195": 1195.0,
    "1.195,5421": 1195.5421,
    "195.087,1000": 195.087,
    "1'195.5421": None,
    "195,087": 195.087,
    "195": 195.0,
    "0": 0.0,
    "0.0 100": 0.0,
    "-5": -5.0,
    **dict.fromkeys(("", "abc", "nan", "inf", "1_95.1", "195.08.765", "195.08x", "3_20"), None),
    **dict.fromkeys(("195.1_2", "195.0877n", "C9H8O4", "1e999", "\uff11\uff19\uff15"), None),
}


@pytest.mark.parametrize(("text", "mz"), PRECURSORS.items())
def test_a_precursor_is_read_however_it_is_spelled(text, mz):
    assert mz_of(text) == (None if mz is None else pytest.approx(mz))


@given(st.floats(50, 2000), st.sampled_from(["{}", "({}, None)", "[{}]", "{} 1000 1+", "{}@5.2"]))
def test_a_precursor_comes_back_from_any_usual_form(mz, form):
    assert mz_of(form.format(f"{mz:.5f}")) == pytest.approx(mz, abs=1e-5)
    assert mz_of(form.format(f"{mz:,.5f}")) == pytest.approx(mz, abs=1e-5)


MGF = "BEGIN IONS\nPEPMASS=195.0877\n{}\n50 1\nEND IONS\n"
MSP = "Name: a\nPrecursorMZ: 195.0877\n{}\nNum Peaks: 1\n50 1\n"
MS = ">compound a\n>parentmass 195.0877\n{}\n>ms2\n50 1\n"
MINUTES, SECONDS = "is read as minutes", "is read as seconds"
TIMES = (
    (MGF, "RTINSECONDS=312.5", 312.5, ""),
    (MGF, "RTINSECONDS=3.125E2", 312.5, ""),
    (MGF, "RTINSECONDS=312,5", 312.5, ""),
    (MGF, "RTINSECONDS=310-315", 312.5, ""),
    (MGF, "RTINSECONDS=5.2", 5.2, ""),
    (MGF, "rtime=5.2", 5.2, ""),  # as R writes it
    (MGF, "RTINSECONDS=PT312.5S", 312.5, ""),
    (MGF, "RTINMINUTES=5.2", 312.0, ""),
    (MGF, "rt_min=5.2", 312.0, ""),
    (MGF, "RT (min)=5.2", 312.0, ""),
    (MGF, "rt_seconds=312", 312.0, ""),
    (MGF, "RT [s]=312", 312.0, ""),
    (MGF, "retention time (sec)=312", 312.0, ""),
    (MGF, "RETENTION_TIME_MINUTES=5.2", 312.0, ""),
    (MGF, "RT=5.21 min", 312.6, ""),
    (MGF, "RT=5.21min", 312.6, ""),
    (MGF, "RT=5.21 m", 312.6, ""),
    (MGF, "RT=312.5 s", 312.5, ""),
    (MGF, "RT=312.5 (s)", 312.5, ""),
    (MGF, "RT=5.21 [min]", 312.6, ""),
    (MGF, "RT=312.5s", 312.5, ""),
    (MGF, "RT=312.5 sec", 312.5, ""),
    (MGF, "RT=312.5 seconds", 312.5, ""),
    (MGF, "RT=0.1 h", 360.0, ""),
    (MGF, "RT=PT312.5S", 312.5, ""),
    (MGF, "RT=PT5M12.5S", 312.5, ""),
    (MGF, "RT=PT1H0M1S", 3601.0, ""),
    (MGF, "RT=5:13", 313.0, ""),
    (MGF, "RT=1:00:05", 3605.0, ""),
    (MGF, "RT=5m 12.5s", 312.5, ""),
    (MGF, "RT=5 min 12 sec", 312.0, ""),
    (MGF, "RT=5.1-5.3 min", 312.0, ""),
    (MGF, "RT=5.1 to 5.3 min", 312.0, ""),
    (MGF, "RT=5.21", 312.6, MINUTES),
    (MGF, "RETENTIONTIME=5.21", 312.6, MINUTES),
    (MGF, "retention_time=5.21", 312.6, MINUTES),
    (MGF, "retention_time=312.5", 312.5, SECONDS),
    (MSP, "RT: 5.21", 312.6, MINUTES),
    (MSP, "RETENTIONTIME: 5.21", 312.6, MINUTES),
    (MSP, "Retention_time: 5.21", 312.6, MINUTES),
    (MSP, "RT: 312.5", 312.5, SECONDS),
    (MSP, "RETENTIONTIME: 312.5", 312.5, SECONDS),
    (MSP, "RETENTIONTIME: 5.21 min", 312.6, ""),
    (MSP, "RTINSECONDS: 62", 62.0, ""),
    (MSP, "Retention_index: 1200", None, ""),
    (MS, ">rt 5.21", 5.21, ""),  # seconds by the format
    (MS, ">rt 448.2s", 448.2, ""),
    (MGF, "RT=N/A", None, ""),
    (MGF, "RT=-1", None, ""),
    (MGF, "RT=\nRTINMINUTES=5.2", 312.0, ""),
    (MGF, "RT=abc", None, "retention time 'abc' is not understood"),
    (MGF, "RT=5.2 furlongs", None, "retention time '5.2 furlongs' is not understood"),
    (MGF, "TITLE=5", None, ""),
)


@pytest.mark.parametrize(("record", "field", "seconds", "says"), TIMES)
def test_a_retention_time_has_the_unit_of_value_key_or_format(
    tmp_path, record, field, seconds, says
):
    (found,) = parsed(tmp_path, record.format(field))

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
    ("fields", "energy_ev"),
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
def test_an_energy_has_the_unit_of_its_key(tmp_path, fields, energy_ev):
    (found,) = parsed(tmp_path, MGF.replace("195.0877", "250.0").format(fields))

    assert found.collision_energy_ev == pytest.approx(energy_ev)


@pytest.mark.parametrize(
    ("fields", "formula", "says"),
    [
        ("FORMULA_SCORE=0.93", "", ""),
        ("FORMULA_SCORE=C9H8O4", "", ""),
        ("SIRIUS_FORMULA_RANK=1", "", ""),
        ("FORMULA_RANK=1\nMOLECULAR_FORMULA=C9H8O4", "C9H8O4", ""),
        ("formula_ppm=2.1", "", ""),
        ("FORMULA_PROBABILITY=0.5", "", ""),
        ("NUM_FORMULAS=3", "", ""),
        ("SIRIUS_FORMULA=C9H8O4", "C9H8O4", ""),
        ("Molecular Formula=C9H8O4", "C9H8O4", ""),
        ("MOLECULARFORMULA=C9H8O4", "C9H8O4", ""),
        ("formula (neutral)=C9H8O4", "C9H8O4", ""),
        ("FORMULA_SIRIUS=C9H8O4", "C9H8O4", ""),
        ("formula1=C9H8O4", "C9H8O4", ""),
        ("FORMULA_SOURCE=CSI", "", ""),
        ("PREDICTED_FORMULA=0.93", "", "predicted_formula '0.93' is no formula and is left out"),
        ("MY_FORMULA=none of these\nBEST_FORMULA=C9H8O4", "C9H8O4", "my_formula 'none of these'"),
        ("PRECURSOR_FORMULA=C9H9O4\nSIRIUS_FORMULA=C9H8O4", "C9H8O4", ""),
        ("FORMULA=0.93", "0.93", ""),  # the row asks for another one
        ("FORMULA=C9H8O4\nFORMULA_SCORE=0.93", "C9H8O4", ""),
    ],
)
def test_a_formula_is_what_a_key_calls_one(tmp_path, fields, formula, says):
    (found,) = parsed(tmp_path, MGF.format(fields))

    assert found.formula_text == formula
    assert (says in found.warnings[0]) if says else (found.warnings == ())
