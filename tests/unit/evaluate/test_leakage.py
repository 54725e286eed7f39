import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.identity import fingerprint, parse_smiles, tanimoto
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.evaluate.leakage import (
    TrainingHashes,
    check_leakage,
    similarities,
)
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.suites import EvaluationInputs, Suite
from duallgd_cli.evaluate.tables import Truth

BLOCKS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=14, max_size=14)


@given(st.lists(BLOCKS, max_size=50), st.lists(BLOCKS, max_size=10))
def test_exactly_what_went_in_is_found(tmp_path_factory, inside, outside):
    path = tmp_path_factory.mktemp("hashes") / "w.train.hashes"

    TrainingHashes.of(inside).write(path)
    read = TrainingHashes.read(path)

    assert read.contains(inside).all()
    expected = [block in set(inside) for block in outside]
    assert read.contains(outside).tolist() == expected
    assert len(read) == len(set(inside))


def test_the_file_is_what_its_description_says(tmp_path):
    blocks = ["LFQSCWFLJHTTHZ", "QTBSBXVTEAMEQO", "LFQSCWFLJHTTHZ"]
    path = tmp_path / "w.train.hashes"

    TrainingHashes.of(blocks).write(path)

    digests = [hashlib.blake2b(b.encode(), digest_size=5).digest() for b in set(blocks)]
    expected = sorted(int.from_bytes(digest, "big") % 2**34 for digest in digests)
    with np.load(path) as archive:
        assert list(archive) == ["hashes"]
        assert archive["hashes"].dtype == np.uint64
        assert archive["hashes"].tolist() == expected


def test_a_whole_key_counts_as_its_first_block():
    hashes = TrainingHashes.of(["LFQSCWFLJHTTHZ-UHFFFAOYSA-N"])

    asked = ["LFQSCWFLJHTTHZ", "LFQSCWFLJHTTHZ-XXXXXXXXXX-N", "AAAAAAAAAAAAAA"]
    assert hashes.contains(asked).tolist() == [True, True, False]


def archive(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 40,
        b"DLGDHSH4" + bytes(24),
        archive(other=np.zeros(2, np.uint64)),
        archive(hashes=np.array([1.0, 2.0])),
        archive(hashes=np.array([2, 1], np.uint64)),
        archive(hashes=np.array([2, 2], np.uint64)),
        archive(hashes=np.array([[1, 2]], np.uint64)),
        archive(hashes=np.array([None])),
    ],
)
def test_what_is_no_list_is_refused(tmp_path, content):
    path = tmp_path / "w.train.hashes"
    path.write_bytes(content)

    with pytest.raises(UnreadableError, match="no list of training molecules"):
        TrainingHashes.read(path)


@pytest.mark.parametrize("change", [0, 1, 0x80, None])
def test_a_list_with_one_byte_changed_or_lost_never_reads_as_another(tmp_path, change):
    whole = TrainingHashes.of(["LFQSCWFLJHTTHZ", "QTBSBXVTEAMEQO", "RYYVLZVUVIJVGH"])
    path = tmp_path / "w.train.hashes"
    whole.write(path)
    data, refused = path.read_bytes(), 0

    for place in range(len(data)):
        middle = b"" if change is None else bytes([data[place] ^ change])
        path.write_bytes(data[:place] + middle + data[place + 1 :])
        try:
            assert TrainingHashes.read(path).hashes.tolist() == whole.hashes.tolist()
        except UnreadableError:
            refused += 1

    assert refused == 0 if change == 0 else refused > len(data) / 2


ETHANOL, ETHER = "LFQSCWFLJHTTHZ", "LCGLNKUTAGEVQW"
TRUTHS = [Truth("a", "CCO", ETHANOL), Truth("b", "OCC", ETHANOL), Truth("c", "COC", ETHER)]
SEEN = {"the weights": TrainingHashes.of([ETHANOL])}
REFUSING, DROPPING = EvaluateSettings(), EvaluateSettings(drop_leaked=True)


def checked(lists, settings):
    inputs = EvaluationInputs(
        suite=Suite("made", (), lambda: iter(())), truths=TRUTHS, predictions=Path("p.csv")
    )
    check_leakage(inputs, lists, settings)
    return inputs


def test_what_a_rival_has_seen_is_left_out_too():
    lists = {"the weights": TrainingHashes.of([]), "the rival x": TrainingHashes.of([ETHER])}

    assert checked(lists, DROPPING).left_out == [ETHER]


@pytest.mark.parametrize(
    ("lists", "settings", "said"),
    [
        (SEEN, REFUSING, r"1 of the 2 .*--drop-leaked .*--allow-leakage"),
        (SEEN | {"the rival x": None}, DROPPING, r"a list of the rival x; .*as 'duallgd train' d"),
        (
            {"the weights": TrainingHashes.of([ETHANOL, ETHER])},
            DROPPING,
            "every test molecule was trained on",
        ),
    ],
)
def test_what_cannot_be_scored_honestly_is_refused(lists, settings, said):
    with pytest.raises(UsageError, match=said):
        checked(lists, settings)


def test_the_nearest_of_several_tables_counts_and_the_near_ones_are_counted(tmp_path):
    far, near = tmp_path / "far.tsv", tmp_path / "near.tsv"
    far.write_text("smiles\tfold\nc1ccccc1\ttrain\nCCO\ttest\n")
    near.write_text("smiles\nCOC\nno molecule\n")

    found = similarities(TRUTHS, [far, near])
    remarks = checked({}, EvaluateSettings(train_data=(far, near))).remarks

    ethanol, *known = (fingerprint(parse_smiles(s), 2048) for s in ("CCO", "COC", "c1ccccc1"))
    assert found["c"] == 1.0
    assert found["a"] == found["b"] == max(tanimoto(ethanol, one) for one in known) < 0.7
    assert remarks[-1].startswith("1 of the 2 test molecules have a training molecule")


def test_a_table_without_training_molecules_is_refused(tmp_path):
    (tmp_path / "t.tsv").write_text("smiles\tfold\nCCO\ttest\n")

    with pytest.raises(UsageError, match="holds no training molecules"):
        similarities(TRUTHS, [tmp_path / "t.tsv"])
