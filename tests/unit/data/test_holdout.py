import pytest

from duallgd_cli.data.holdout import read_holdout
from duallgd_cli.errors import MissingInputError, UnreadableError


def listed(tmp_path, text, name="keys.txt"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_keys_are_read_whole_or_as_first_blocks(tmp_path):
    path = listed(
        tmp_path,
        "# our own test set\nBSYNRYMUTXBXSQ-UHFFFAOYSA-N\n\nRYYVLZVUVIJVGH  # caffeine\n"
        "BSYNRYMUTXBXSQ\r\n",
    )

    assert read_holdout([path]) == {"BSYNRYMUTXBXSQ", "RYYVLZVUVIJVGH"}


def test_several_lists_add_up(tmp_path):
    paths = [listed(tmp_path, "A" * 14, "a.txt"), listed(tmp_path, "B" * 14, "b.txt")]

    assert read_holdout(paths) == {"A" * 14, "B" * 14}
    assert read_holdout([]) == frozenset()


def test_a_list_saved_by_a_spreadsheet_is_read(tmp_path):
    assert read_holdout([listed(tmp_path, "\ufeff" + "A" * 14)]) == {"A" * 14}


@pytest.mark.parametrize("line", ["CCO", "bsynrymutxbxsq", "BSYNRYMUTXBXS", "1SYNRYMUTXBXSQ"])
def test_a_line_that_is_no_key_is_refused_with_its_number(tmp_path, line):
    path = listed(tmp_path, f"{'A' * 14}\n{line}\n")

    with pytest.raises(UnreadableError, match=rf"keys\.txt:2 is not an InChIKey: '{line}'"):
        read_holdout([path])


def test_a_missing_list_is_named(tmp_path):
    with pytest.raises(MissingInputError, match=r"hold-out list .*none\.txt does not exist"):
        read_holdout([tmp_path / "none.txt"])
