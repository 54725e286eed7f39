"""Ids in tables that no feature of the input has are said once, at the end of a run."""

import pytest

from duallgd_cli.sources.known import GuideFiles
from tests.made_runs import predicted
from tests.made_spectra import ASPIRIN, CAFFEINE, block

BLOCKS = (block(ASPIRIN, feature_id="1", scans="11"), block(CAFFEINE, feature_id="2", name="known"))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"formulas": "id,formula\n1,C9H8O4\n2,C8H10N4O2\n"}, None),
        ({"formulas": "id,formula\n1,C9H8O4\n"}, None),
        ({"formulas": "id,name,formula\n1,x,C9H8O4\n77,known,C8H10N4O2\n"}, None),
        (
            {"formulas": "id,formula\n1,C9H8O4\n3,CH4\n3,C2H6\n"},
            "1 id of --formulas matches no feature of the input: '3'; check the ids",
        ),
        (
            {"formulas": "id,formula\n" + "".join(f"{n},CH4\n" for n in range(1, 9))},
            "6 ids of --formulas match no feature of the input: '3', '4', '5' and others; "
            "check the ids",
        ),
        (
            {  # compound names are not looked up in guides
                "tables": "feature_id,forbid\n1,indole\nknown,indole\n",
                "analogues": "smiles,feature_id\nCCO,2\nCCN,9\nCCC,\n",
            },
            "2 ids of --guide or --analogues match no feature of the input: 'known', '9'; "
            "check the ids",
        ),
    ],
)
def test_ids_that_nothing_has_are_said_at_the_end(tmp_path, caplog, tables, message):
    for name, text in tables.items():
        (tmp_path / f"{name}.csv").write_text(text)
    places = {name: tmp_path / f"{name}.csv" for name in tables}
    formulas = places.pop("formulas", None)
    files = GuideFiles(**{name: (str(place),) for name, place in places.items()})

    predicted(tmp_path, *BLOCKS, formulas=formulas, guide=files if places else None)

    said = [one.getMessage() for one in caplog.records if "check the ids" in one.getMessage()]
    assert said == ([] if message is None else [message])
