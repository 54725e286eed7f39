"""Charge, polarity, adduct and ionisation as the programs of the field spell them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.errors import Failure
from duallgd_cli.spectra.formulas import from_text
from duallgd_cli.spectra.reading.ions import MISSING, Charge, charge_of, polarity_of
from duallgd_cli.spectra.reading.record import Record, build
from duallgd_cli.spectra.types import Feature, Source
from tests.made_spectra import parsed

POSITIVE = (
    *("Positive", "positive", "POSITIVE", "Pos", "POS", "pos", "P", "p", "+", "+ve", "+VE", "(+)"),
    *("positive mode", "POSITIVE ION MODE", "Positive ion mode", "positive scan", "posESI", "ve+"),
    *("ESI+", "ESI +", "ESI(+)", "ESI (+)", "(+)ESI", "(+)-ESI", "+ESI", "ESI-POS", "ESI_POS"),
    *("ESI Positive", "Positive ESI", "LC-ESI+", "LC-ESI(+)-QTOF", "Positive-QTOF", "APCI+", "1"),
    *("APPI(+)", "MALDI+", "HESI+", "nanoESI(+)", "DART+", "H-ESI (+)", "ion mode: positive"),
    *("positiv", "positif", "positivo", "Positive (ESI)", "[+]", "plus", "1+", "+1", "2+", "EI+"),
    *("MS:1000130|positive scan", "FTMS + p ESI d Full ms2 195.0877@hcd35.00 [50.0000-205.0000]"),
    *("+ c NSI Full ms2", "\uff0b", "ESI\u207a", " Positive ", "Positive - QTOF", "'positive'"),
)
NEGATIVE = (
    *("Negative", "negative", "NEGATIVE", "Neg", "NEG", "neg", "N", "n", "-", "-ve", "-VE", "(-)"),
    *("negative mode", "NEGATIVE ION MODE", "Negative ion mode", "negative scan", "negESI", "ve-"),
    *("ESI-", "ESI -", "ESI(-)", "ESI (-)", "(-)ESI", "(-)-ESI", "-ESI", "ESI-NEG", "ESI_NEG"),
    *("ESI Negative", "Negative ESI", "LC-ESI-", "LC-ESI(-)-QTOF", "Negative-QTOF", "APCI-", "-1"),
    *("APPI(-)", "MALDI-", "HESI-", "nanoESI(-)", "DART-", "H-ESI (-)", "ion mode: negative"),
    *("negativ", "negatif", "negativo", "Negative (ESI)", "[-]", "minus", "1-", "2-", "\u22121"),
    *("MS:1000129|negative scan", "FTMS - p ESI d Full ms2 179.0350@hcd35.00 [50.0000-190.0000]"),
    *("- c NSI Full ms2", "\u2212", "\u2013", "ESI\u207b", "ESI\u2212", "\u2212ve", "(\u2212)"),
)
NO_POLARITY = (
    *("ESI", "LC-ESI-QTOF", "LC-ESI", "APCI", "MALDI", "nanoESI", "H-ESI", "ESI - QTOF", "DART"),
    *("any", "EI", "Heated Electrospray Ionization", "AJS ESI", *MISSING - {"-", "na"}),
)
NO_SENSE = (
    *("both", "Positive/Negative", "pos & neg", "+/-", "\u00b1", "switching", "abc", "7", "M"),
    *("N.N.", "P/N"),
)


@pytest.mark.parametrize(
    ("text", "polarity"),
    [
        *((text, 1) for text in POSITIVE),
        *((text, -1) for text in NEGATIVE),
        *((text, 0) for text in NO_POLARITY),
        *((text, None) for text in NO_SENSE),
    ],
)
def test_a_polarity_is_read_however_it_is_spelled(text, polarity):
    assert polarity_of(text) == polarity


CHARGES = {
    **dict.fromkeys(("1+", "+1", "+", " 1+ ", "+1+", "[1+]", "(1+)", "(1+,)", "1 +"), (1, 1)),
    **dict.fromkeys(("+ 1", "z=1+", "1.0+", "+1.0", "1\u207a", "'1+'", "1 positive"), (1, 1)),
    **dict.fromkeys(
        ("1-", "-1", "-1-", "[1-]", "(1-)", "1 -", "- 1", "\u22121", "1\u2212"), (1, -1)
    ),
    **dict.fromkeys(("\u20131", "z=-1", "-1.0", "1\u207b", "1-negative", "1 neg"), (1, -1)),
    **dict.fromkeys(("2+", "+2", "++", "+2+", "2++", "2.0+"), (2, 1)),
    **dict.fromkeys(("2-", "-2", "--2", "-2-", "2--", "-2.0"), (2, -1)),
    **dict.fromkeys(("1", "1.0", "[1]", "z=1"), (1, 0)),
    **dict.fromkeys(("2", "2.0"), (2, 0)),
    **dict.fromkeys(("0", "0+", "0.0", "+0"), (0, 0)),
    **dict.fromkeys(("0-", "-0"), (0, -1)),
    **dict.fromkeys(("N/A", "NA", "NA+", "nan", "None", "", "unknown", "?"), (0, 0)),
    **dict.fromkeys(("positive", "POS", "plus"), (0, 1)),
    **dict.fromkeys(("negative", "NEG", "minus"), (0, -1)),
    **dict.fromkeys(
        ("1+ and 2+", "1+,2+", "1+ 2+", "1+;2+", "1+/2+", "2+ or 1+", "1,2+"), (1, 1, 2)
    ),
    **dict.fromkeys(("2+ and 3+", "2+,3+", "+2 +3"), (2, 1, 2)),
    **dict.fromkeys(("1- and 2-", "-1, -2"), (1, -1, 2)),
    "1+, 2+ and 3+": (1, 1, 3),
    "1+ and 1+": (1, 1),
    "20+": (20, 1),
}
NO_CHARGES = (
    *("-1+", "+1-", "+-1", "1+-", "1+ and 1-", "-", "--", "\u00b11", "abc", "1e0", "[M+H]+"),
    *("1000000000+", "1000000000", "21+", "9" * 20 + "+", "9" * 5000, "1.5+", "3++", "1-2"),
)


@pytest.mark.parametrize(
    ("text", "charge"),
    [
        *((text, Charge(*charge)) for text, charge in CHARGES.items()),
        *((t, None) for t in NO_CHARGES),
    ],
)
def test_a_charge_is_read_however_it_is_spelled(text, charge):
    assert charge_of(text) == charge


# Ways in which programs attach a sign to a number.
ATTACHED = ("{n}{s}", "{s}{n}", "{s}{n}{s}", "[{n}{s}]", "({s}{n})", " {n} {s} ", "{s}{n}.0")
DASHES = ("-", "\u2212", "\u2013", "\u2010", "\u2011", "\uff0d", "\u207b")


@given(st.integers(1, 20), st.sampled_from(ATTACHED), st.sampled_from([*DASHES, "+", "\u207a"]))
def test_a_sign_never_flips_wherever_it_is_attached(n, form, mark):
    sign = -1 if mark in DASHES else 1

    found = charge_of(form.format(n=n, s=mark))

    assert found == Charge(n, sign)
    for again in (f"{found.size}{'+' if sign > 0 else '-'}", f"{found.sign * found.size:+d}"):
        assert charge_of(again) == found


@given(st.text(max_size=30))
def test_any_text_is_a_charge_a_polarity_or_none(text):
    charge = charge_of(text)

    assert polarity_of(text) in (1, -1, 0, None)
    assert charge is None or (0 <= charge.size <= 20 and charge.sign in (1, -1, 0))


KEYS = (
    *("adduct", "ion", "charge", "ionmode", "polarity", "pepmass", "precursor_mz", "formula", "rt"),
    *("ionization", "instrument_type", "collision_energy", "title", "filter string", "my adduct"),
)
TEXTS = st.text(max_size=20) | st.text(alphabet="M[]()+-0123456789HNa.,;:/ePTSmin ", max_size=20)


@given(st.dictionaries(st.sampled_from(KEYS), TEXTS))
def test_any_fields_give_a_spectrum_whose_charge_and_polarity_agree(fields):
    found = build(Record(fields), Source("made.mgf", 0), keep_structures=False)

    assert found.charge * found.polarity >= 0
    assert found.retention_time_s is None or found.retention_time_s >= 0
    assert found.precursor_mz is None or found.precursor_mz > 0
    assert found.collision_energy_ev is None or 0 < found.collision_energy_ev <= 1000


@pytest.mark.parametrize("pattern", ["1", "+", "1,", "[M+H]+ ", "cs", "1-", " ", "(", "1.1-"])
def test_a_field_of_a_hundred_thousand_characters_takes_no_time(pattern):
    fields = dict.fromkeys(KEYS, pattern * (100_000 // len(pattern)))

    started = time.perf_counter()
    build(Record(fields), Source("made.mgf", 0), keep_structures=False)

    assert time.perf_counter() - started < 4


def of_mgf(folder, fields):
    """The spectrum of an MGF block with these fields, bars between them."""
    lines = "\n".join(fields.split(" | "))
    (found,) = parsed(folder, f"BEGIN IONS\nPEPMASS=181.0718\n{lines}\n181.0718 1000\nEND IONS\n")
    return found


# Charge and polarity, and fields of mzmine, MS-DIAL, SIRIUS, GNPS, MassBank, MoNA, R Spectra,
# matchms, OpenMS and mzXML that say so.
IONS = {
    (0, -1): """IONMODE=Negative, ION_MODE=NEGATIVE, Ion mode=N, POLARITY=-, MODE=negative,
        Scan mode=Negative, SCAN_POLARITY=negative, ScanPolarity=Negative, ION=negative,
        IONIZATION_MODE=negative, ionpolarity=-, ION_SOURCE=ESI-, IONIZATION=ESI(-), polarity=0,
        INSTRUMENT_TYPE=LC-ESI-QTOF negative,
        FILTER STRING=FTMS - c ESI d Full ms2 181.07@hcd30.00 [50-190],
        TITLE=Cmpd 4; -MS2(181.0718); 24.7eV; 3.2min""",
    (0, 0): "MODE=DDA, TITLE=run-MS2(1), polarity=-1",  # R writes -1 for unknown
    (0, 1): "TITLE=Cmpd 4; +MSn(181.0718); 3.2min, polarity=1, CHARGE=0- | polarity=1",
    (-1, -1): """z=-1, ADDUCT=[M-?]-, ION=1-, PRECURSORCHARGE=-1, CHARGE=-1-,
        CHARGE=1 | IONMODE=Negative""",
    (2, 1): "ION=[M+?]2+",
    (-2, -1): "CHARGE_STATE=2-",
    (1, 0): "CHARGE=1 | ION=[M-H]-, CHARGE=1 | IONMODE=ESI",
}


@pytest.mark.parametrize(
    ("fields", "ion"), [(text.strip(), ion) for ion in IONS for text in IONS[ion].split(",")]
)
def test_polarity_and_charge_are_read_under_the_keys_of_all_programs(tmp_path, fields, ion):
    found = of_mgf(tmp_path, fields)

    assert (found.charge, found.polarity) == ion
    assert (found.unread_ion, found.warnings) == ("", ())


COLUMNS = {
    (-1, -1): "5000 1-, 5000 -1, 5000 -1-, 1-",
    (1, 1): "5000.5 1+",
    (2, 1): "5000\t2+",
    (2, 0): "5000 2",
    (0, 0): "5000, 5000 0, 5000 high",
}


@pytest.mark.parametrize(
    ("columns", "ion"), [(text.strip(), ion) for ion in COLUMNS for text in COLUMNS[ion].split(",")]
)
@pytest.mark.parametrize("mz", ["181.0718", "181,0718"])
def test_the_third_column_of_pepmass_is_a_charge(tmp_path, mz, columns, ion):
    (found,) = parsed(tmp_path, f"BEGIN IONS\nPEPMASS={mz} {columns}\n50 1\nEND IONS\n")

    assert (found.precursor_mz, found.charge, found.polarity) == (181.0718, *ion)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("CHARGE=-1+", "charge '-1+' is not understood"),
        ("CHARGE=1000000000+", "charge '1000000000+' is not understood"),
        ("CHARGE=1000000000+\nIONMODE=positive", "charge '1000000000+' is not understood"),
        ("CHARGE=abc", "charge 'abc' is not understood"),
        ("CHARGE=-", "charge '-' is not understood"),
        ("IONMODE=both", "ionmode 'both' is not understood"),
        ("POLARITY=switching", "polarity 'switching' is not understood"),
        ("PEPMASS=181.0718 1 1000000000+", "third column of pepmass '1000000000+' is not"),
    ],
)
def test_what_is_there_and_not_understood_is_no_leave_to_guess(tmp_path, fields, said):
    block = "\n".join(["BEGIN IONS", fields, "PRECURSOR_MZ=181.0718", "50 1", "END IONS"])
    (found,) = parsed(tmp_path, block)

    assert said in found.warnings[0]
    refused = from_text(Feature((found,)), "C6H12O6")
    assert refused.status == "unsupported_adduct"
    assert said in refused.message
    assert "name the adduct" in refused.message


@pytest.mark.parametrize("fields", ["CHARGE=abc | IONMODE=N", "IONMODE=both | CHARGE=1-"])
def test_what_another_field_tells_is_no_loss(tmp_path, fields):
    found = of_mgf(tmp_path, fields)

    assert (found.polarity, found.unread_ion) == (-1, "")
    assert "is not understood" in found.warnings[0]


# Fields, and the beginnings of the warnings and of the assumptions.
REMARKS = """\
CHARGE=1+ ::
CHARGE=1+ and 2+ :: :: charge '1+ and 2+' is read as 1, the lowest
polarity=0 :: :: polarity 0 is read as negative, as R writes it
polarity=-1 :: :: polarity -1 counts as unknown, as R writes it
ADDUCT=Na :: :: adduct 'Na' is read as [M+Na]+
ADDUCT=+H :: :: adduct '+H' is read as [M+H]+
CHARGE=1+ | IONMODE=negative :: ionmode negative and charge 1+ contradict each other
CHARGE=1- | POLARITY=+ :: polarity + and charge 1- contradict each other
POLARITY=+ | IONMODE=neg :: polarity + and ionmode neg contradict each other
ADDUCT=[M+H]+ | ION=[M+Na]+ :: adduct [M+H]+ is used, not ion [M+Na]+
ADDUCT=[M+Foo]+ | ION=[M+Na]+ :: ion [M+Na]+ is used, not adduct [M+Foo]+
PRECURSOR_MZ=217.0696 :: precursor m/z 181.072 (pepmass) is used, not 217.07
PRECURSOR_MZ=181.0918 :: precursor m/z 181.072 (pepmass) is used, not 181.092
ION=rubbish :: ion 'rubbish' is not understood
CHARGE=1+ | CHARGE=1- :: charge 1+ and charge 1- contradict each other
ADDUCT=[M+H]+ | ADDUCT=[M+Na]+ :: adduct [M+H]+ is used, not adduct [M+Na]+
PEPMASS=217.0696 :: precursor m/z 181.072 (pepmass) is used, not 217.07 (pepmass)
FORMULA=C9H8O4 | MOLECULAR_FORMULA=C8H8O4 :: formula C9H8O4 is used, not molecular_formula
RTINSECONDS=62 | RTINMINUTES=3.5 :: retention time 62 (rtinseconds) is used, not 3.5
RTINSECONDS=62 | RTINMINUTES=1.1 :: retention time 62 (rtinseconds) is used, not 1.1
IONIZATION=CI :: measured by chemical ionisation
INSTRUMENT_TYPE=CI-B :: measured by chemical ionisation
IONIZATION=NCI :: measured by chemical ionisation
ADDUCT=[M+H]+ | ION=M+H | PRECURSORTYPE=[M+H]1+ ::
CHARGE=1+ | IONMODE=positive | POLARITY=+ | ION=1+ ::
PRECURSOR_MZ=181.0719 | PRECURSORMZ=181.0718 ::
FORMULA=C9H8O4 | MOLECULAR_FORMULA=H8C9O4 | PRECURSOR_FORMULA=C9H9O4 ::
RTINSECONDS=62 | RTINMINUTES=1.03 ::
CHARGE=1+ | CHARGE=1+ | NAME=a | NAME=b | COMMENT=x | COMMENT=y ::
ADDUCT=[M+H]+ | ADDUCT=N/A | CHARGE=1+ | CHARGE= | IONMODE= | IONMODE=positive ::"""


@pytest.mark.parametrize("line", REMARKS.splitlines())
def test_what_is_guessed_or_contradicts_itself_is_said_and_nothing_else(tmp_path, line):
    fields, warning, assumption = (*(part.strip() for part in line.split("::")), "")[:3]

    found = of_mgf(tmp_path, fields)

    assert found.failure is None
    for said, part in ((found.warnings, warning), (found.assumptions, assumption)):
        assert len(said) == bool(part)
        assert "".join(said).startswith(part)


def test_a_reader_may_refuse_a_record_and_say_what_it_guessed():
    refusal = Failure("no_precursor", "the window is too wide", "read")
    record = Record({"charge": "1+"}, assumptions=("middle of the window",), refusal=refusal)

    found = build(record, Source("made.mgf", 0), keep_structures=False)

    assert (found.failure, found.assumptions) == (refusal, ("middle of the window",))


def test_charge_and_polarity_never_contradict_each_other(tmp_path):
    found = of_mgf(tmp_path, "CHARGE=2+ | IONMODE=negative")

    assert (found.charge, found.polarity) == (-2, -1)


ADDUCT_KEYS = """ADDUCT, adduct, Adduct, ADDUCT_TYPE, Adduct type, AdductType, PRECURSORTYPE, ION,
PRECURSOR_TYPE, Precursor type, precursor-type, IONTYPE, ION_TYPE, Ion Type, IONIZATION, ionization,
ADDUCTIONNAME, AdductIonName, ADDUCT_ION, BEST_ION, best ion, Best Ion, FEATURE_ADDUCT, ION_SPECIES,
PREDICTED_ADDUCT, precursor_ion_type, Precursor Adduct, MY-ADDUCT, Adduct (ion)"""


@pytest.mark.parametrize("key", ADDUCT_KEYS.replace("\n", " ").split(", "))
def test_an_adduct_is_read_under_the_keys_of_all_programs(tmp_path, key):
    assert of_mgf(tmp_path, f"{key}=[m+na]+").adduct_text == "[m+na]+"


ADDUCTS = {
    "": """ADDUCT=N/A, ADDUCT=NA, ADDUCT=na, ADDUCT=unknown, ADDUCT=?, ADDUCT=[M+?]+,
        ADDUCT=[M + ?]+, ADDUCT=positive, ADDUCT=1+, ADDUCT=ESI, ION=ESI, ION=MALDI, ION=ESI+,
        IONIZATION=LC-ESI-QFT, IONIZATION=Thermo heated source, ADDUCT_SCORE=0.93,
        ADDUCT_MASS=1.00728""",
    "Na": "ADDUCT=Na",
    "[M+Foo]+": "ADDUCT=[M+Foo]+",
    "rubbish": "ADDUCT=rubbish",
    "[Foo]+": "ADDUCT=[Foo]+",
    "M": "ADDUCT=M",
    "[M]+*": "ADDUCT=[M]+*",
    "[Cat]+": "ADDUCT=[Cat]+",
    "[M-H]-/[M-Ser]-": "ADDUCT=[M-H]-/[M-Ser]-",
    "1.00728": "ADDUCT=1.00728",
    "M+Na": "ION=ESI | ADDUCT_GUESS=M+Na",
    "[M+H]+": "ADDUCT= | PRECURSORTYPE=[M+H]+",
    "[2M+H]+": "ION=[2M+H]+",
    "MH+": "ADDUCT=MH+",
}


@pytest.mark.parametrize(
    ("fields", "adduct"),
    [(text.strip(), adduct) for adduct in ADDUCTS for text in ADDUCTS[adduct].split(",")],
)
def test_an_adduct_is_there_unless_the_field_says_that_there_is_none(tmp_path, fields, adduct):
    assert of_mgf(tmp_path, fields).adduct_text == adduct


ELECTRON = (
    *("IONIZATION=EI+", "IONIZATION=EI", "Ionization=Electron ionization", "ION_MODE=EI"),
    *("INSTRUMENT_TYPE=GC-EI-TOF", "INSTRUMENT_TYPE=EI-B", "INSTRUMENT_TYPE=GC-EI-QTOF"),
    *("INSTRUMENT_TYPE=EI-EBEB", "ION_SOURCE=EI", "IONIZATION=electron impact", "ION=EI"),
    *("SOURCE_INSTRUMENT=GC-EI-Orbitrap", "IONIZATION_ENERGY=70 eV", "ELECTRON_ENERGY=70"),
    *("COLLISION_ENERGY=70 eV | ADDUCT=[M]+", "COLLISION_ENERGY=70eV | ADDUCT=[M]+*"),
    *("COLLISION_ENERGY=70 | ADDUCT=M+.", "INSTRUMENT_TYPE=GC-MS | ADDUCT=[M]+"),
    *("INSTRUMENT_TYPE=GC-TOF | ADDUCT=[M]+.", "IONIZATION=EI | ADDUCT=[M+H]+"),
)
SOFT = (
    *("IONIZATION=ESI", "IONIZATION=APCI", "IONIZATION=APPI", "IONIZATION=MALDI", "ION_MODE=DART"),
    *("IONIZATION=nanoESI", "INSTRUMENT_TYPE=LC-ESI-QTOF", "INSTRUMENT_TYPE=GC-APCI-QTOF"),
    *("INSTRUMENT_TYPE=ESI-QTOF | COLLISION_ENERGY=70 eV | ADDUCT=[M]+", "COLLISION_ENERGY=70 eV"),
    *("IONIZATION=atmospheric pressure chemical ionization", "SOURCE_INSTRUMENT=Heidelberg qTOF"),
    *("COLLISION_ENERGY=70 eV | ADDUCT=[M+H]+", "IONIZATION_ENERGY=15 eV", "COMMENT=EI"),
    *("SOURCE_INSTRUMENT=TripleTOF 5600 | COLLISION_ENERGY=70 eV | ADDUCT=[M]+",),
    *("INSTRUMENT=Q Exactive Plus | COLLISION_ENERGY=70 | ADDUCT=[M]+",),
)


@pytest.mark.parametrize("fields", ELECTRON)
def test_electron_ionisation_is_refused_in_a_sentence(tmp_path, fields):
    failure = of_mgf(tmp_path, fields).failure

    assert (failure.status, failure.stage) == ("unsupported_measurement", "read")
    assert "it was measured by electron ionisation" in failure.message
    assert "soft ionisation" in failure.message


def test_a_spectrum_of_electron_ionisation_is_a_row_even_if_it_is_called_ms1(tmp_path):
    found = of_mgf(tmp_path, "INSTRUMENT_TYPE=GC-EI-TOF | MSLEVEL=1")

    assert (found.ms_level, found.failure.status) == (2, "unsupported_measurement")


@pytest.mark.parametrize("fields", SOFT)
def test_soft_ionisation_is_nothing_to_speak_of(tmp_path, fields):
    found = of_mgf(tmp_path, fields)

    assert (found.failure, found.warnings) == (None, ())
