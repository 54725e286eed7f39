"""Ids in tables that no feature of the input has are said once, at the end of a run."""

import pytest

from duallgd_cli.sources.known import GuideFiles
from tests.made_runs import predicted
from tests.made_spectra import ASPIRIN, CAFFEINE, block

BLOCKS = (
    block(ASPIRIN, feature_id="1", scans="11"),
    block(CAFFEINE, feature_id="2", name="known"),
)


def said(caplog):
    return [one.getMessage() for one in caplog.records if "check the ids" in one.getMessage()]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("id,formula\n1,C9H8O4\n2,C8H10N4O2\n", None),
        ("id,formula\n1,C9H8O4\n", None),
        ("id,name,formula\n1,x,C9H8O4\n77,known,C8H10N4O2\n", None),
        (
            "id,formula\n1,C9H8O4\n3,CH4\n3,C2H6\n",
            "1 id of --formulas matches no feature of the input: '3'; check the ids",
        ),
        (
            "id,formula\n" + "".join(f"{n},CH4\n" for n in range(1, 9)),
            "6 ids of --formulas match no feature of the input: '3', '4', '5' and others; "
            "check the ids",
        ),
    ],
)
def test_ids_of_formulas(tmp_path, caplog, table, message):
    (tmp_path / "f.csv").write_text(table)

    predicted(tmp_path, *BLOCKS, formulas=tmp_path / "f.csv")

    assert said(caplog) == ([] if message is None else [message])


def test_ids_of_guides_and_analogues(tmp_path, caplog):
    (tmp_path / "g.csv").write_text("feature_id,forbid\n1,indole\nknown,indole\n")
    (tmp_path / "a.csv").write_text("smiles,feature_id\nCCO,2\nCCN,9\nCCC,\n")
    files = GuideFiles(tables=(str(tmp_path / "g.csv"),), analogues=(str(tmp_path / "a.csv"),))

    predicted(tmp_path, *BLOCKS, guide=files)

    # Compound names are not looked up in guides.
    assert said(caplog) == [
        "2 ids of --guide or --analogues match no feature of the input: 'known', '9'; check the ids"
    ]
