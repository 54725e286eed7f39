"""Whatever a table or settings are broken into, or fields of a spectrum, is read or refused."""

import itertools
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.config import commented_yaml, dump, parse, read_mapping
from duallgd_cli.data.structures import read_rows
from duallgd_cli.errors import DuallgdError, Failure
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.sources.known import read_guides
from duallgd_cli.spectra.formulas import table_source
from duallgd_cli.spectra.reading.record import Record, build
from duallgd_cli.spectra.types import Feature, Source
from duallgd_cli.tables import table_rows
from duallgd_cli.train.settings import RecipeSettings
from tests.fuzz.loop import assert_sentence, mutate
from tests.made_spectra import made_spectrum

OF_SIRIUS = """\
rank\tmolecularFormula\tadduct\tprecursorFormula\tZodiacScore\tSiriusScore\tmappingFeatureId
1\tC8H10N4O2\t[M + H]+\tC8H10N4O2\t-1.2\t12.5\t7
2\tC9H8O4\t[M + H]+\tC9H8O4\t-1.2\t2.5\t7
"""
OF_MSBUDDY = """\
identifier,mz,rt,adduct,formula_rank_1,estimated_fdr,formula_rank_2
7,195.0877,60,[M+H]+,C8H10N4O2,0.05,C4H5N
"""
SEVEN = Feature((made_spectrum(feature_id="7", precursor_mz=195.08765, adduct_text="[M+H]+"),))


def looked_up(path):
    """The formulas that a table gives for a feature, or one sentence."""
    answer = table_source(str(path))(SEVEN)
    if isinstance(answer, Failure):
        assert_sentence(answer.message)
    else:
        assert all(one.log_prior <= 1e-9 for one in itertools.islice(answer, 9)), "a prior above 1"


def settings_of(kind):
    """A function that reads settings, which are read back as they are written."""

    def read_it(path):
        settings = parse(kind, read_mapping(path))
        assert parse(kind, dump(settings)) == settings

    return read_it


READ = {
    "rows.csv": (
        lambda path: list(table_rows(path)),
        'sep=;\n# made\nid;note\n1;"a;b"\n2;"c ""d"""\n',
    ),
    "structures.csv": (
        lambda path: list(read_rows(path)),
        "name,Canonical SMILES,inchi\na,CCO,x\nb,,InChI=1S/H2O\n",
    ),
    "list.smi": (lambda path: list(read_rows(path)), "CCO ethanol\nCCN\n"),
    "guide.csv": (read_guides, "feature_id,core,require\n1,CCO,hexose\n2,,c1ccccc1|[OH]\n"),
    "sirius.tsv": (looked_up, OF_SIRIUS),
    "msbuddy.csv": (looked_up, OF_MSBUDDY),
    "spreadsheet.csv": (looked_up, "\ufeffid;formula;score\r\n7;C8H10N4O2;0,9\r\n7;C9H8O4;0,1\r\n"),
    "predict.yaml": (settings_of(PredictSettings), commented_yaml(PredictSettings())),
    "train.yaml": (
        settings_of(RecipeSettings),
        commented_yaml(RecipeSettings(("a.mgf",), ("b.smi",))),
    ),
}


@pytest.mark.parametrize("name", READ)
@given(st.integers(0, 1 << 32))
def test_a_broken_file_is_read_or_refused_in_a_sentence(name, seed):
    """Files of spectra are broken by the fuzz tests; every other one here lacks a byte alone."""
    (read_it, text), rng = READ[name], random.Random(seed)
    content = text.encode()
    at = rng.randrange(len(content))
    broken = mutate(content, rng) if seed % 2 else content[:at] + content[at + 1 :]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(broken)
        try:
            read_it(path)
        except DuallgdError as error:
            assert_sentence(str(error))


KEYS = (
    *("adduct", "ion", "charge", "ionmode", "polarity", "pepmass", "precursor_mz", "formula", "rt"),
    *("ionization", "instrument_type", "collision_energy", "title", "filter string", "my adduct"),
)
TEXTS = st.text(max_size=20) | st.text(alphabet="M[]()+-0123456789HNa.,;:/ePTSmin ", max_size=20)


def built(fields):
    return build(Record(fields), Source("made.mgf", 0), keep_structures=False)


@given(st.dictionaries(st.sampled_from(KEYS), TEXTS))
def test_any_fields_give_a_spectrum_whose_charge_and_polarity_agree(fields):
    found = built(fields)

    assert found.charge * found.polarity >= 0
    assert abs(found.charge) <= 20
    assert found.retention_time_s is None or found.retention_time_s >= 0
    assert found.precursor_mz is None or found.precursor_mz > 0
    assert found.collision_energy_ev is None or 0 < found.collision_energy_ev <= 1000


@pytest.mark.parametrize("pattern", ["1", "+", "1,", "[M+H]+ ", "cs", "1-", " ", "(", "1.1-"])
def test_a_field_of_a_million_characters_takes_no_time(pattern):
    """Where it grows as the square, hours."""
    text = pattern * (1_000_000 // len(pattern))

    assert built(dict.fromkeys(KEYS, text)).source.index == 0
