import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.evaluate.leakage import TrainingHashes, nearest_training

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
    first, second = sorted(int.from_bytes(digest, "big") % 2**34 for digest in digests)
    steps = [first, second - first]
    low = "".join(f"{step % 2**14:014b}" for step in steps)
    high = "".join("0" * (step >> 14) + "1" for step in steps)
    rest = b"".join(
        int(bits[i : i + 8].ljust(8, "0"), 2).to_bytes(1, "big")
        for bits in (low, high)
        for i in range(0, len(bits), 8)
    )
    counted = (2).to_bytes(8, "little")
    digest = hashlib.blake2b(counted + rest, digest_size=8).digest()
    assert path.read_bytes() == b"DLGDHSH4" + counted + digest + rest


def test_a_whole_key_counts_as_its_first_block():
    hashes = TrainingHashes.of(["LFQSCWFLJHTTHZ-UHFFFAOYSA-N"])

    assert hashes.contains(
        ["LFQSCWFLJHTTHZ", "LFQSCWFLJHTTHZ-XXXXXXXXXX-N", "AAAAAAAAAAAAAA"]
    ).tolist() == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"DLGDHSH4", b"DLGDHSH4" + (3).to_bytes(8, "little") + b"1" * 17, b"x" * 40, b"DLGDHSH3"],
)
def test_a_damaged_list_is_refused(tmp_path, content):
    path = tmp_path / "w.train.hashes"
    path.write_bytes(content)

    with pytest.raises(UnreadableError, match="no list of training molecules"):
        TrainingHashes.read(path)


@pytest.mark.parametrize("place", range(8, 30))
def test_a_list_with_one_byte_changed_or_lost_is_refused(tmp_path, place):
    path = tmp_path / "w.train.hashes"
    TrainingHashes.of(["LFQSCWFLJHTTHZ", "QTBSBXVTEAMEQO", "RYYVLZVUVIJVGH"]).write(path)
    data = path.read_bytes()

    for damaged in (data[:place] + data[place + 1 :], _changed(data, place)):
        path.write_bytes(damaged)
        with pytest.raises(UnreadableError, match="no list of training molecules"):
            TrainingHashes.read(path)


def _changed(data, place):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_an_absent_list_is_refused(tmp_path):
    with pytest.raises(MissingInputError):
        TrainingHashes.read(tmp_path / "none")


def test_the_nearest_molecule_is_found_by_hand():
    training = [np.array(b, dtype=np.uint16) for b in ([1, 2, 3], [7, 8], [1, 2, 3, 4, 5])]
    queries = [np.array(b, dtype=np.uint16) for b in ([1, 2, 3, 4], [8], [100])]

    similarity, place = nearest_training(queries, training, 128)

    assert similarity.tolist() == [0.8, 0.5, 0.0]
    assert place.tolist()[:2] == [2, 1]


def test_molecules_beyond_the_first_chunk_are_seen():
    generator = np.random.default_rng(0)
    training = [
        np.sort(generator.choice(64, 5, replace=False)).astype(np.uint16) for _ in range(5000)
    ]

    similarity, place = nearest_training([training[4999]], training, 64)

    assert similarity.tolist() == [1.0]
    assert (training[place[0]] == training[4999]).all()
