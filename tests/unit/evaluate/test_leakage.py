import hashlib
import io

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
    expected = sorted(int.from_bytes(digest, "big") % 2**34 for digest in digests)
    with np.load(path) as archive:
        assert list(archive) == ["hashes"]
        assert archive["hashes"].dtype == np.uint64
        assert archive["hashes"].tolist() == expected


def test_the_same_molecules_give_the_same_bytes(tmp_path):
    for name, blocks in (("one", ["A" * 14, "B" * 14]), ("two", ["B" * 14, "A" * 14])):
        TrainingHashes.of(blocks).write(tmp_path / name)

    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_whole_key_counts_as_its_first_block():
    hashes = TrainingHashes.of(["LFQSCWFLJHTTHZ-UHFFFAOYSA-N"])

    assert hashes.contains(
        ["LFQSCWFLJHTTHZ", "LFQSCWFLJHTTHZ-XXXXXXXXXX-N", "AAAAAAAAAAAAAA"]
    ).tolist() == [
        True,
        True,
        False,
    ]


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
