"""What a table says of single features."""

import numpy as np
import pytest

from duallgd_cli.chem.guide import Guide
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.sources import structures
from duallgd_cli.sources.known import GuideFiles, Knowledge
from duallgd_cli.sources.structures import read_guides
from duallgd_cli.spectra.types import Feature, Source, Spectrum

HEAD = "feature_id,core,require,forbid,analogue\n"


def feature(name):
    peaks = np.array([50.0]), np.array([1.0])
    return Feature((Spectrum(Source("a", 0), "x", *peaks, 100.0, feature_id=name),))


def made(tmp_path, text, name="guide.csv"):
    (tmp_path / name).write_text(text)
    return read_guides(tmp_path / name)


def test_rows_of_a_feature_add_up_to_what_holds_for_all(tmp_path):
    (tmp_path / "guide.csv").write_text(
        HEAD + "1,c1ccccc1,hexose | indole,,CCO|CCN\n2,,,[F],\n1,C=O,,[Cl],\n"
    )

    known = Knowledge.read(Guide(forbid=("[Br]",)), GuideFiles(tables=(f"{tmp_path}/guide.csv",)))

    one, two, other = (known.of(feature(name)) for name in ("1", "2", "3"))
    assert one.guide == Guide("c1ccccc1.C=O", ("hexose", "indole"), ("[Br]", "[Cl]"))
    assert two.guide == Guide(forbid=("[Br]", "[F]"))
    assert other.guide == Guide(forbid=("[Br]",))
    assert [mask.sum() for _, mask in one.analogues] == [2]
    assert not any(mask.any() for _, mask in two.analogues)


def test_a_table_with_tabs_and_few_columns_is_read(tmp_path):
    for name in ("guide.tsv", "guide.csv", "guide.txt"):
        guides, analogues = made(tmp_path, "Feature_ID\tforbid\n7\t[F,Cl]\n", name)

        assert guides == {"7": Guide(forbid=("[F,Cl]",))}
        assert analogues is None


def test_tables_of_one_feature_add_up(tmp_path):
    (tmp_path / "a.csv").write_text(HEAD + "1,CCO,,,\n")
    (tmp_path / "b.txt").write_text(HEAD + "1,,indole,,CCN\n2,,,[F],\n")

    files = GuideFiles(tables=(f"{tmp_path}/a.csv", f"{tmp_path}/b.txt"))
    known = Knowledge.read(None, files)

    assert known.of(feature("1")).guide == Guide("CCO", ("indole",))
    assert known.of(feature("2")).guide == Guide(forbid=("[F]",))
    assert known.of(feature("3")).guide is None


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("", UnreadableError, "has no column feature_id; it has no columns"),
        ("id,smiles\n1,C\n", UnreadableError, "has no column feature_id; it has id, smiles"),
        ("feature_id,smiles\n1,C\n", UsageError, "fill core, require, forbid, analogue"),
        (HEAD, UsageError, "says nothing of any feature"),
        (HEAD + "1,,,,\n", UsageError, "says nothing of any feature"),
        (HEAD + ",CCO,,,\n", UsageError, "line 2: no feature_id"),
        (HEAD + "1,c1cc,,,\n", UsageError, "line 2: core 'c1cc' is not a SMILES"),
        (HEAD + "1,,C,,\n1,,hexoze,,\n", UsageError, "line 3: 'hexoze' is neither"),
        (HEAD + "1,,,,xx(\n", UsageError, "line 2: analogue 'xx(' is no molecule"),
        (HEAD + "1,C,,,\n" * 4, UsageError, "has more than 3 rows"),
        ("feature_id,core\n1,\udcff\n", UsageError, "line 2: core '\u00ff' is not a SMILES"),
        ("feature_id,core\n1\0" + "\1" * 99, UnreadableError, "is a binary file"),
    ],
)
def test_what_is_of_no_use_is_one_sentence(tmp_path, monkeypatch, text, error, said):
    monkeypatch.setattr(structures, "_MOST_ROWS", 3)
    (tmp_path / "guide.csv").write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(error) as refused:
        read_guides(tmp_path / "guide.csv")

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
