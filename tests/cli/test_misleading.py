"""Features that each would mislead a chemist if they were read without a second look.

Each case is a feature of one file, with one fault that exporters and users make; no row may state a
confident answer without a word on it. m/z are those of ions: nothing was measured.
"""

import pytest

from tests.made_runs import rows_of

CAFFEINE = "138.0662 1000\n110.0713 600\n123.0427 200\n83.0604 150\n69.0447 120"
QUERCETIN = "151.0037 1000\n178.9986 400\n121.0295 250\n107.0139 200\n273.0405 60"
FERULIC = "134.0373 1000\n178.0272 300\n149.0608 250"
ISOTOPES = "195.08765 10000\n196.0910 950\n197.0935 80\n217.0696 700"


UNSUPPORTED = "unsupported_measurement"
# Of each feature: its blocks of MGF (header lines and peaks), then status, formula ("" where none
# may be stated) and adduct of its row, the highest probability of the formula that is honest, words
# of ``message``, and the column where these must stand as well.
CASES = {
    "a charge with two signs": ([("PEPMASS=301.0354\nCHARGE=-1-", QUERCETIN)], "ok", "C15H10O7",
        "[M-H]-"),
    "a charge beside the precursor": ([("PEPMASS=301.0354 5000 1-", QUERCETIN)], "ok", "C15H10O7",
        "[M-H]-"),
    "a polarity in other words": ([("PEPMASS=193.0506\nIONMODE=ESI-", FERULIC)], "ok", "C10H10O4",
        "[M-H]-"),
    "an adduct in lower case": ([("PEPMASS=217.0696\nADDUCT=[m+na]+",
        "217.0696 1000\n195.0877 20")], "ok", "C8H10N4O2", "[M+Na]+"),
    "an adduct that nobody knows": ([("PEPMASS=195.08765\nADDUCT=[M+Xy]+", CAFFEINE)],
        "unsupported_adduct", "", "[M+Xy]+", 1.0, "[M+Xy]+", "message"),
    "a charge that contradicts the adduct": ([("PEPMASS=195.08765\nCHARGE=2+\nADDUCT=[M+H]+",
        CAFFEINE)], "ok", "C8H10N4O2", "[M+H]+", 0.5, "charge +2 contradicts [M+H]+"),
    "an ion mode that contradicts the adduct": (
        [("PEPMASS=195.08765\nIONMODE=negative\nADDUCT=[M+H]+", CAFFEINE)],
        "ok", "C8H10N4O2", "[M+H]+", 0.5, "ion mode negative contradicts [M+H]+",
    ),
    "peaks of one decimal": ([("PEPMASS=195.1\nADDUCT=[M+H]+",
        "138.1 1000\n110.1 600\n123.0 200\n83.1 150")], UNSUPPORTED, "", "[M+H]+", 1.0,
        "all its peaks have m/z of at most 1 decimal", "message"),
    "a triple quadrupole": ([("PEPMASS=195.0877\nADDUCT=[M+H]+\nINSTRUMENT=Xevo TQ-S", CAFFEINE)],
        UNSUPPORTED, "", "[M+H]+", 1.0,
        "the instrument ('Xevo TQ-S') measures fragments at unit resolution", "message"),
    "the ion trap of a hybrid": (
        [("PEPMASS=195.0877\nADDUCT=[M+H]+\nINSTRUMENT=LTQ Orbitrap XL; CID; IT", CAFFEINE)],
        UNSUPPORTED, "", "[M+H]+", 1.0, "unit resolution", "message",
    ),
    "a precursor of one decimal": ([("PEPMASS=195.1\nADDUCT=[M+H]+", CAFFEINE)], "ok", "C8H10N4O2",
        "[M+H]+", 0.98,
        "the precursor m/z 195.1 is rounded: all formulas within 0.05 of it are as likely"),
    "electron ionisation": ([("PEPMASS=194.0804\nADDUCT=[M]+\nIONIZATION=EI+", CAFFEINE)],
        UNSUPPORTED, "", "[M]+", 1.0, "electron ionisation", "message"),
    "an isotope as the precursor": ([("FEATURE_ID=iso\nPEPMASS=196.0910\nMSLEVEL=1", ISOTOPES),
        ("FEATURE_ID=iso\nPEPMASS=196.0910\nMSLEVEL=2\nADDUCT=[M+H]+", CAFFEINE)], "ok",
        "C8H10N4O2", "[M+H]+", 1.0, "as strong at m/z 195.0876, lighter as by 13C: the "
        "precursor is taken for its isotope", "assumptions"),
    "no peaks": ([("PEPMASS=195.08765\nADDUCT=[M+H]+", "")], "no_peaks", "", "[M+H]+", 1.0,
        "the spectrum has no peaks", "message"),
    "peaks of nothing": ([("PEPMASS=195.08765\nADDUCT=[M+H]+",
        "138.4213 1000\n110.4102 600\n123.6123 300")], "ok", "C8H10N4O2", "[M+H]+", 0.93,
        "no formula explains a peak: ranked by mass and by known structures alone"),
    "an MS1 block without a level": ([("FEATURE_ID=ms1\nPEPMASS=195.08765\nADDUCT=[M+H]+",
        ISOTOPES), ("FEATURE_ID=ms1\nPEPMASS=195.08765\nADDUCT=[M+H]+", CAFFEINE)], "ok",
        "C8H10N4O2", "[M+H]+", 1.0, "it is read as the MS1 spectrum of this one", "assumptions"),
}  # fmt: skip
CASES = {name: (*case, *(1.0, "", "warnings")[len(case) - 4 :]) for name, case in CASES.items()}


COLUMNS = ("message", "warnings", "assumptions")


def made(folder):
    """The file of all cases; the last feature is two under one FEATURE_ID."""
    blocks = [block for blocks, *_ in CASES.values() for block in blocks]
    blocks += [
        ("FEATURE_ID=two\nPEPMASS=195.08765\nCHARGE=1+\nRTINSECONDS=100", CAFFEINE),
        ("FEATURE_ID=two\nPEPMASS=195.08770\nCHARGE=1+\nRTINSECONDS=900", CAFFEINE),
    ]
    text = "\n".join(f"BEGIN IONS\n{head}\n{peaks}\nEND IONS\n" for head, peaks in blocks)
    path = folder / "misleading.mgf"
    path.write_text(text)
    return str(path)


def named(rows):
    """The first row of each spectrum by the case that it belongs to."""
    first = {}
    for row in rows:
        first.setdefault(int(row["index"]), row)
    ordered = [first[index] for index in sorted(first)]
    assert len(ordered) == len(CASES) + 2
    return dict(zip(CASES, ordered, strict=False)), ordered[-2:]


@pytest.mark.parametrize(("command", "more"), [("predict", ("--samples", 2)), ("formulas", ())])
def test_no_row_misleads_a_chemist(duallgd, tmp_path, command, more):
    done = duallgd(command, made(tmp_path), "-o", "out.csv", "--top-k", 1, *more)
    rows, apart = named(rows_of(tmp_path / "out.csv"))

    assert done.code == 0, done.err
    for name, (_, status, formula, adduct, most, said, column) in CASES.items():
        row = rows[name]
        if command == "formulas" and name == "no peaks":
            assert float(row["probability"]) < 0.93
            assert "no peaks to explain" in row["message"]
            continue
        assert (row["status"], row["adduct"], row["formula"]) == (status, adduct, formula), name
        where = COLUMNS if command == "predict" else ("message", "assumptions")
        own = column if column in where else "message"  # formulas have one column for both
        assert not said or [it for it in where if said in row[it]][-1:] == [own], name
        probability = row.get("formula_probability", row.get("probability"))
        if formula:
            assert 0 < float(probability) <= most, name
            # A structure is at most as probable as its formula.
            assert float(row.get("confidence_top10", 0)) <= float(probability) + 1e-6
        else:
            assert (row.get("smiles", ""), row.get("confidence", "")) == ("", ""), name
    for row in apart:
        assert row.get("indices", "") in {"", row["index"]}, row
        said = row["warnings" if command == "predict" else "message"]
        assert "differ in retention time and are read apart" in said
