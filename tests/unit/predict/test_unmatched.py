"""Ids in tables that no feature of the input has are said once, at the end of a run."""

import pytest

from duallgd_cli.sources.known import GuideFiles
from tests.made_runs import predicted
from tests.made_spectra import ASPIRIN, CAFFEINE, block

BLOCKS = (block(ASPIRIN, feature_id="1", scans="11"), block(CAFFEINE, feature_id="2", name="known"))
SIX = "id,formula\n" + "".join(f"{n},CH4\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"formulas": "id,formula\n1,C9H8O4\n2,C8H10N4O2\n"}, []),
        ({"formulas": "id,formula\n1,C9H8O4\n"}, []),
        ({"formulas": "id,name,formula\n1,x,C9H8O4\n77,known,C8H10N4O2\n"}, []),
        (
            {"formulas": "id,formula\n1,C9H8O4\n3,CH4\n3,C2H6\n"},
            ["1 id of --formulas matches no feature of the input: '3'"],
        ),
        (
            {"formulas": SIX},
            ["6 ids of --formulas match no feature of the input: '3', '4', '5' and others"],
        ),
        (
            {  # compound names are not looked up in guides
                "tables": "feature_id,forbid\n1,indole\nknown,indole\n",
                "analogues": "smiles,feature_id\nCCO,2\nCCN,9\nCCC,\n",
            },
            ["2 ids of --guide or --analogues match no feature of the input: 'known', '9'"],
        ),
    ],
)
def test_ids_that_nothing_has_are_said_at_the_end(tmp_path, caplog, tables, said):
    places = {name: tmp_path / f"{name}.csv" for name in tables}
    for name, place in places.items():
        place.write_text(tables[name])
    formulas = places.pop("formulas", None)
    guide = GuideFiles(**{name: (str(place),) for name, place in places.items()})

    predicted(tmp_path, *BLOCKS, formulas=formulas, guide=guide if places else None)

    end = "; check the ids"
    messages = [record.getMessage() for record in caplog.records]
    assert [text.removesuffix(end) for text in messages if text.endswith(end)] == said
