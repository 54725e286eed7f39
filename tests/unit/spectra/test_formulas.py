"""Formula sources and the checks that a hypothesis passes."""

import math

import pytest

from duallgd_cli.errors import Failure, UnreadableError, UsageError
from duallgd_cli.spectra.compounds import with_compound
from duallgd_cli.spectra.formulas import FormulaLimits, from_field, from_text, table_source
from duallgd_cli.spectra.types import Feature
from tests.made_spectra import made_spectrum

ASPIRIN_H = 181.04954


def feature_of(mz=ASPIRIN_H, adduct="[M+H]+", formula="", **more):
    named = {"precursor_mz": mz, "adduct_text": adduct, "formula_text": formula} | more
    return Feature((made_spectrum(**named),))


def propose(formula, mz=ASPIRIN_H, adduct="[M+H]+", ppm=10.0, **more):
    result = from_text(feature_of(mz, adduct, **more), formula, FormulaLimits(ppm))
    return result if isinstance(result, Failure) else result[0]


# Formula, m/z, adduct, and the words of the refusal, by its status.
REFUSED = {
    "formula_mismatch": (
        ("C9H10O4", ASPIRIN_H, "[M+H]+",
         "C9H10O4 as [M+H]+ has m/z 183.0652 but the precursor is 181.0495|allowed 10 ppm"),
        # The error is in ppm where that says something, else in Da.
        ("C9H8O4", ASPIRIN_H * (1 + 50e-6), "[M+H]+", "(+50.0 ppm, allowed 10"),
        ("C9H8O4", ASPIRIN_H * (1 + 11e-6), "[M+H]+", "(+11.0 ppm, allowed 10"),
        ("C9H8O4", ASPIRIN_H + 100, "[M+H]+", "(+100.0000 Da, allowed 10 ppm)"),
        ("C9H8O4-", ASPIRIN_H, "[M+H]+", "C9H8O4-"),
        ("C9H9O3N2", 194.0686, "[M+H]+", "odd number of electrons"),
        ("C6H6", 61.0, "[M-H2O+H]+", "lacks atoms that [M-H2O+H]+ takes away", 1e6),
        ("C9H9O4+", ASPIRIN_H, "[M+H]+", "C9H9O4+ as [M+H]+ has m/z 182.05|"
         "it is the formula of the ion: give that of the molecule"),
    ),
    "unsupported_adduct": (
        ("C9H8O4", 180.0417, "[M]+", "is a radical cation, which is not supported"),
        ("C9H8O4", 180.0417, "[M]+.", "a radical ion is not supported"),
        ("C9H8O4", 300.0, "", "none fits C9H8O4 at m/z 300.0000|[M-H2O+H]+"),
        ("C9H8O4", ASPIRIN_H, "", "none fits", 10, {"polarity": -1}),
        ("C9H8O4", 182.0, "", "several fit", 1e6),
        ("C9H8O4", 91.0284, "", "charge +2", 10, {"charge": 2, "polarity": 1}),
    ),
    "no_precursor": (
        ("C9H8O4", None, "[M+H]+", "no usable precursor m/z is given; correct it in the file"),
    ),
    "unsupported_element": (
        ("C9H7NaO4", 203.0315, "[M+H]+", "Na|C N O P S F Cl Br I B Si Se H|leave out the atoms of"),
        ("C9H8PtO4", 375.0, "[M+H]+", "Pt"),
    ),
    "no_formula": (("aspirin", ASPIRIN_H, "[M+H]+", "is not a molecular formula|C9H8O4"),),
    "too_large": (("C101H204", 1418.6, "[M+H]+", "101 heavy atoms|limit is 100", 1e6),),
    "too_small": (("CH4", 17.0386, "[M+H]+", "1 heavy atom; a", 1e6),),
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "given"),
    [(status, given) for status, cases in REFUSED.items() for given in cases],
    ids=lambda one: str(one)[:40],
)
def test_a_refusal_names_what_was_found(status, given):
    *arguments, words, ppm, more = (*given, *(10, {})[len(given) - 4 :])

    failure = propose(*arguments, ppm, **more)

    assert failure.status == status
    assert all(word in failure.message for word in words.split("|"))


@pytest.mark.parametrize("text", ["C5H14NO+", "C5H14NO"])
def test_a_permanent_cation_may_be_written_with_or_without_its_charge(text):
    found = propose(text, 104.1070, "[M]+")

    assert (str(found.formula), found.formula.charge) == ("C5H14NO+", 1)


INFERRED = "adduct {} inferred from formula and precursor m/z"
UNSAID = "neither adduct nor polarity is given: ions of both polarities were tried"
TRUSTED = "{} contradicts {}; the adduct is trusted"


@pytest.mark.parametrize(
    ("mz", "given", "polarity", "charge", "adduct", "note"),
    [
        (ASPIRIN_H, "", 0, 0, "[M+H]+", f"{INFERRED}; {UNSAID}"),
        (ASPIRIN_H, "", 1, 0, "[M+H]+", INFERRED),
        (203.0315, "", 1, 1, "[M+Na]+", INFERRED),
        (179.0350, "", -1, -1, "[M-H]-", INFERRED),
        (225.0405, "", -1, 0, "[M+HCOO]-", INFERRED),
        (225.0405, "[M+FA-H]-", 1, 1, "[M+HCOO]-", TRUSTED.format("charge +1", "{}")),
        (179.0350, "[M-H]-", 1, 0, "[M-H]-", TRUSTED.format("ion mode positive", "{}")),
    ],
)
def test_a_missing_adduct_is_inferred_and_a_given_one_trusted(
    mz, given, polarity, charge, adduct, note
):
    found = propose("C9H8O4", mz, given, polarity=polarity, charge=charge)

    assert (found.adduct.name, "; ".join(found.notes)) == (adduct, note.format(adduct))


def test_the_formula_is_that_of_the_first_spectrum_that_has_one_or_in_a_field_that_is_named():
    bare, labelled = feature_of(), feature_of(formula="C9H8O4")
    feature = feature_of(formula="C2H6O", metadata={"my formula": "C9H8O4", "other": "N/A"})

    (first,) = from_field(Feature(bare.spectra + labelled.spectra))
    (named,) = from_field(feature, "My Formula")
    missing = from_field(feature, "OTHER")

    assert str(first.formula) == str(named.formula) == "C9H8O4"
    assert len(first.feature.spectra) == 2
    assert missing.status == "no_formula"
    assert "has no field OTHER: give it in the file (a FORMULA field" in missing.message


def table(tmp_path, text, ppm=10.0):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    return table_source(str(path), FormulaLimits(ppm))


# Table, and the formulas, adducts and probabilities of feature 7, whose own adduct is not known.
PRIORS = {
    "the score of SIRIUS is a logarithm": (
        "formulaRank\tmolecularFormula\tadduct\tprecursorFormula\tSiriusScore\tmappingFeatureId\n"
        "1\tC9H8O4\t[M + H]+\tC9H8O4\t12.0\t7\n2\tC7H12O2S\t[M + Na]+\tC7H12O2S\t11.0\t7\n"
        "3\tC20H42\t[M + H]+\tC20H42\t3.0\t7\n1\tC2H6O\t[M + H]+\tC2H6O\t12.0\t8\n",
        [("C9H8O4", "[M+H]+", 0.7311), ("C7H12O2S", "[M+Na]+", 0.2689)],
    ),
    "ZODIAC's probabilities go before it": (
        "id\tmolecularFormula\tadduct\tZodiacScore\tSiriusScore\n"
        "3_run_7\tC9H8O4\t[M+H]+\t0.75\t2\n3_run_7\tC9H10O4\t[M+H]+\t0.25\t9\n",
        [("C9H8O4", "[M+H]+", 0.75), ("C9H10O4", "[M+H]+", 0.25)],
    ),
    "percentages add up to 100 for every feature": (
        "feature_id,formula,adduct,score\n7,C9H8O4,[M+H]+,93\n7,C9H10O4,[M+H]+,7\n8,C2H6O,,100\n",
        [("C9H8O4", "[M+H]+", 0.93), ("C9H10O4", "[M+H]+", 0.07)],
    ),
    "msbuddy has its ranks in columns": (
        "identifier\tmz\trt\tadduct\tformula_rank_1\testimated_fdr\tformula_rank_2\t"
        "formula_rank_3\n7\t181.05\t\t[M+H]+\tC9H8O4\t0.2\tC9H10O4\t\n8\t1\t\t\t\t\t\t\n",
        [("C9H8O4", "[M+H]+", 0.8), ("C9H10O4", "[M+H]+", 0.2)],
    ),
    "ranks stand in for missing scores": (
        "name,rank,formula,adduct,score\n"
        "7,2,C9H8O4,[M+H]+,\n7,1,C9H10O4,[M+H]+,\n7,1,C9H10O4,[M+H]+,\n",
        [("C9H10O4", "[M+H]+", 2 / 3), ("C9H8O4", "[M+H]+", 1 / 3)],
    ),
    "decimals after a comma are scores": (
        "sep=;\nid;formula;adduct;score\n7;C9H8O4;[M+H]+;0,9\n7;C9H10O4;[M+H]+;0,1\n",
        [("C9H8O4", "[M+H]+", 0.9), ("C9H10O4", "[M+H]+", 0.1)],
    ),
}


@pytest.mark.parametrize("title", PRIORS)
def test_several_formulas_of_a_feature_have_normalised_priors(tmp_path, title):
    text, expected = PRIORS[title]

    found = table(tmp_path, text, ppm=20_000)(feature_of(adduct="", feature_id="7"))

    rows = [(str(one.formula), one.adduct.name, math.exp(one.log_prior)) for one in found]
    assert rows == [(*named, pytest.approx(prior, abs=1e-4)) for *named, prior in expected]
    refused = "1 other formula of the table was refused"
    assert (refused in found[0].notes) == ("C20H42" in text)


SIRIUS_HEAD = "rank\tmolecularFormula\tadduct\tionMass\t"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        # SIRIUS 4 and 5: the name is a compound's or "null", the id joins number, file and name.
        (SIRIUS_HEAD + "name\tid\n1\tC9H8O4\t[M + H]+\t181.05\tnull\t3_a_run_7\n", "7"),
        (SIRIUS_HEAD + "name\tid\n1\tC9H8O4\t[M + H]+\t181.05\tAspirin\t3_run_x_7\n", "x_7"),
        (SIRIUS_HEAD + "id\tfeatureId\n1\tC9H8O4\t[M + H]+\t181.05\t3_run_7\tN/A\n", "7"),
        # SIRIUS 6: numbers of its own beside those of the file.
        (SIRIUS_HEAD + "alignedFeatureId\tmappingFeatureId\n"
            "1\tC9H8O4\t[M + H]+\t181.05\t612345678901\t7\n", "7"),
        ("identifier\tadduct\tformula_rank_1\testimated_fdr\n7\t[M+H]+\tC9H8O4\t0.1\n", "7"),
        ("ID\tPrecursor Type\tPred Formula\tRefined Formula (0)\tRefined Mass (0)\n"
            "7\t[M+H]+\tC8H8O5\tC9H8O4\t180.04\n", "7"),
        ("File name\tTitle\tPRECURSORTYPE\tFormula\tFormula score\na\t7\t[M+H]+\tC9H8O4\t4\n", "7"),
        # The likelier column knows the name too, of another spectrum: the mass tells.
        ("feature_id\tid\tformula\n7\t1\tC20H42\n8\t7\tC9H8O4\n", "7"),
    ],
    ids=["4 null", "4 name", "5", "6", "msbuddy", "FIDDLE", "MS-FINDER", "two columns"],
)  # fmt: skip
def test_the_column_whose_values_match_names_the_spectra(tmp_path, text, named):
    source = table(tmp_path, text)

    for spectrum in ({"feature_id": named}, {"spectrum_id": named}, {"metadata": {"name": named}}):
        (found,) = source(feature_of(adduct="[M+H]+", **spectrum))
        assert str(found.formula) == "C9H8O4"
    assert "(columns tried: " in source(feature_of(feature_id="404")).message


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_plain_tables_join_by_any_identifier(tmp_path, delimiter):
    text = "\ufeffFeature_ID,Formula\n12.0,C9H8O4\nscan=5,C9H8O4\n9,\n"
    source = table(tmp_path, text.replace(",", delimiter))

    assert str(source(feature_of(feature_id="12"))[0].formula) == "C9H8O4"
    assert source(feature_of(spectrum_id="scan=5"))[0].log_prior == 0
    unknown = [source(feature_of(feature_id=name)) for name in ("9", "404")]
    assert [one.status for one in unknown] == ["no_formula"] * 2
    assert "has no formula for '404'" in unknown[1].message


def test_a_table_goes_before_the_spectrum_which_keeps_what_the_table_does_not_know(tmp_path):
    source = table(tmp_path, "feature_id,formula,adduct\n1,C9H8O4,\n3,C9H8O4,[M+Na]+\n")

    (own,) = source(feature_of(formula="C9H8O4", feature_id="2", scans="1"))
    (other,) = source(feature_of(203.03148, "[M+H]+", feature_id="3"))

    assert own.notes == ("formula from the file, since the table has none",)
    assert other.notes == ("the table's adduct [M+Na]+ is used, not the spectrum's [M+H]+",)
    assert source(feature_of(feature_id="2", scans="1")).status == "no_formula"
    assert len(source(feature_of(scans="1"))) == 1


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", UnreadableError, "is empty"),
        ("\n\n", UnreadableError, "is empty"),
        ("a,b\n1,2\n", UsageError, "no identifier column among a, b"),
        ("id,b\n1,2\n", UsageError, "no formula column among id, b"),
        ("id\0,formula", UnreadableError, "is a binary file"),
        ("id,formula,Formula\n7,C9H8O4,CH4\n", UnreadableError, "two columns 'formula'; rename or"),
    ],
)
def test_a_bad_table_is_refused_with_what_was_found(tmp_path, text, error, message):
    with pytest.raises(error, match=message):
        table(tmp_path, text)


def test_a_given_formula_may_be_that_of_the_monoisotopic_ion():
    isotope = {"monoisotopic_mz": ASPIRIN_H, "mz": ASPIRIN_H + 1.00336}

    found, neither = propose("C9H8O4", **isotope), propose("C9H10O4", **isotope)

    assert found.feature.first.precursor_mz == ASPIRIN_H
    assert f"the formula is that of m/z {ASPIRIN_H:.4f}" in found.notes
    assert neither.status == "formula_mismatch"
    assert "but the precursor is 182.0529" in neither.message


SURE, OPEN = [("[M+Na]+", 0.97), ("[M+K]+", 0.02)], [("[M+Na]+", 0.6), ("[M+K]+", 0.4)]
SAID = "other ions of compound 5 tell [M+Na]+ (0.{})"


@pytest.mark.parametrize(
    ("told", "mz", "adduct", "said"),
    [
        (SURE, ASPIRIN_H, None, SAID.format(97)),
        (SURE, 203.03148, "[M+Na]+", ""),
        (OPEN, ASPIRIN_H, "[M+H]+", SAID.format(6)),
        (OPEN, 219.00542, "[M+K]+", SAID.format(6)),
        (OPEN, 203.03148, "[M+Na]+", ""),
    ],
)
def test_a_formula_that_contradicts_what_other_ions_tell_is_refused_or_says_so(
    told, mz, adduct, said
):
    linked = with_compound(made_spectrum(precursor_mz=mz, polarity=1), "5", told)

    result = from_text(Feature((linked,)), "C9H8O4")

    if adduct is None:
        assert (result.status, said in result.message) == ("formula_mismatch", True)
    else:
        notes = [note for note in result[0].notes if "other ions" in note]
        assert (result[0].adduct.name, len(notes)) == (adduct, bool(said))
        assert said in "".join(notes)
