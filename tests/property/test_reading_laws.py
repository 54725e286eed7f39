"""Whatever one character less makes of a table, or its fields of a spectrum, is read or refused."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.data.structures import read_rows
from duallgd_cli.errors import DuallgdError
from duallgd_cli.sources.known import read_guides
from duallgd_cli.spectra.reading.record import Record, build
from duallgd_cli.spectra.tables import read_table
from duallgd_cli.spectra.types import Source
from duallgd_cli.tables import table_rows
from tests.fuzz.loop import assert_sentence

TABLES = {
    "rows.csv": (table_rows, b'sep=;\n# made\nid;note\n1;"a;b"\n2;"c ""d"""\n'),
    "structures.csv": (read_rows, b"name,Canonical SMILES,inchi\na,CCO,x\nb,,InChI=1S/H2O\n"),
    "list.smi": (read_rows, b"CCO ethanol\nCCN\n"),
    "guide.csv": (read_guides, b"feature_id,core,require\n1,CCO,hexose\n2,,c1ccccc1|[OH]\n"),
    "formulas.tsv": (
        lambda path: read_table(str(path)),
        b"id\tmolecularFormula\tadduct\tscore\n1\tC8H10N4O2\t[M+H]+\t0,9\n2\tCH4\t\t0.1\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_table_without_one_of_its_characters_is_read_or_refused_in_a_sentence(name, data):
    """Files of spectra are broken in more ways by the fuzz tests."""
    read_it, content = TABLES[name]
    at = data.draw(st.integers(0, len(content) - 1))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content[:at] + content[at + 1 :])
        try:
            found = read_it(path)
            if not isinstance(found, tuple | dict):
                list(found)
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
