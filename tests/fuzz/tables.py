"""Broken tables of formulas, as SIRIUS, msbuddy, FIDDLE, MS-FINDER and people write them."""

import itertools

from duallgd_cli.errors import Failure
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.formulas import table_source
from examples.make_examples import SPECTRA
from tests.fuzz.corpus import sound_files
from tests.fuzz.loop import assert_sentence, fuzz
from tests.fuzz.mutate import mutate, packed_as

_FEW = SPECTRA[:4]


def sound_tables():
    """Content by program; features are called feature_0 to feature_3, as in the sound ``.ms``."""
    sirius = "{rank}\t{formula}\t{spaced}\t{formula}\t-1.2\t12.5\t9\t0.87\t"
    head = "rank\tmolecularFormula\tadduct\tprecursorFormula\tZodiacScore\tSiriusScore\t"
    head += "numExplainedPeaks\texplainedIntensity\t"
    return {
        "SIRIUS 4": _table(head + "name\tid", sirius + "null\t{n}_run_feature_{n}"),
        "SIRIUS 5": _table(head + "id\tfeatureId", sirius + "{n}_run_feature_{n}\tN/A"),
        "SIRIUS 6": _table(
            head + "formulaId\talignedFeatureId\tmappingFeatureId",
            sirius + "88\t61{n}\tfeature_{n}",
        ),
        "msbuddy": _table(
            "identifier\tmz\trt\tadduct\tformula_rank_1\testimated_fdr\tformula_rank_2",
            "feature_{n}\t195.0\t60\t{adduct}\t{formula}\t0.05\tC4H5N",
        ),
        "FIDDLE": _table(
            "ID\tPrecursor Type\tPred Formula\tRefined Formula (0)\tRefined Mass (0)",
            "feature_{n}\t{adduct}\tC8H8O5\t{formula}\t180.04",
        ),
        "MS-FINDER": _table(
            "File name\tTitle\tPRECURSORTYPE\tFormula\tFormula score",
            "x.mat\tfeature_{n}\t{adduct}\t{formula}\t4.1",
        ),
        "spreadsheet": _table("\ufeffid;formula;score", "feature_{n};{formula};0,9", "\r\n"),
        "plain": _table("feature_id,formula,rank", '"feature_{n}",{formula},{rank}'),
    }


def _table(header, row, end="\n"):
    rows = [
        row.format(
            n=n, formula=made.formula, adduct=made.adduct, spaced=" ".join(made.adduct), rank=rank
        )
        for n, made in enumerate(_FEW)
        for rank in (1, 2)
    ]
    return end.join([header, *rows, ""]).encode()


def fuzz_tables(count, seed, folder):
    """Look formulas up in `count` broken tables: hypotheses or one sentence a feature."""
    path = folder / "formulas"
    spectra = folder / "plain.ms"
    spectra.write_bytes(sound_files()["plain.ms"])
    with Inputs((str(spectra),)) as inputs:
        features = list(inputs.features("feature"))
    tables = sound_tables()

    def try_one(rng):
        content = mutate(tables[rng.choice(sorted(tables))], rng)
        path.write_bytes(
            packed_as(rng.choice(("gz", "xz", "bz2")), content, rng)
            if rng.random() < 0.1
            else content
        )
        source = table_source(str(path))
        for feature in features:
            found = source(feature)
            if isinstance(found, Failure):
                assert_sentence(found.message)
                yield found.status
            else:
                yield "hypotheses"
                for hypothesis in itertools.islice(found, 9):
                    assert hypothesis.log_prior <= 1e-9, "a prior above 1"

    return fuzz(count, seed, try_one)
