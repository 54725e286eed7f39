import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.identity import fingerprint, parse_smiles, tanimoto
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.evaluate.leakage import TrainingHashes, leave_out_trained, similarities
from duallgd_cli.evaluate.tables import EvaluationInputs, Truth

BLOCKS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=14, max_size=14)
ETHANOL, ETHER, AMINE = "LFQSCWFLJHTTHZ", "LCGLNKUTAGEVQW", "QUSNBJAOOMFDIB"
TRUTHS = [Truth("a", "CCO", ETHANOL), Truth("b", "OCC", ETHANOL), Truth("c", "COC", ETHER)]


@given(st.lists(BLOCKS, max_size=50), st.lists(BLOCKS, max_size=10))
def test_exactly_what_went_in_is_found(tmp_path_factory, inside, outside):
    path = tmp_path_factory.mktemp("hashes") / "w.train.hashes"

    TrainingHashes.of(f"{block}-UHFFFAOYSA-N" for block in inside).write(path)
    read = TrainingHashes.read(path)

    assert read.contains(inside).all()  # a whole key counts as its first block
    assert read.contains(outside).tolist() == [block in set(inside) for block in outside]
    assert len(read) == len(set(inside))


def test_the_file_is_what_its_description_says(tmp_path):
    path = tmp_path / "w.train.hashes"

    TrainingHashes.of([ETHANOL, ETHER, ETHANOL]).write(path)

    digests = [hashlib.blake2b(b.encode(), digest_size=5).digest() for b in (ETHANOL, ETHER)]
    expected = sorted(int.from_bytes(digest, "big") % 2**34 for digest in digests)
    with np.load(path) as archive:
        assert list(archive) == ["hashes"]
        assert archive["hashes"].dtype == np.uint64
        assert archive["hashes"].tolist() == expected


def archive(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 40,
        archive(other=np.zeros(2, np.uint64)),
        *(archive(hashes=np.array(values)) for values in ([1.0, 2.0], [None])),
        *(archive(hashes=np.array(n, np.uint64)) for n in ([2, 1], [2, 2], [[1, 2]])),
    ],
)
def test_what_is_no_list_is_refused(tmp_path, content):
    path = tmp_path / "w.train.hashes"
    path.write_bytes(content)

    with pytest.raises(UnreadableError, match="no list of training molecules"):
        TrainingHashes.read(path)


@pytest.mark.parametrize("change", [0, 1, 0x80, None])
def test_a_list_with_one_byte_changed_or_lost_never_reads_as_another(tmp_path, change):
    whole = TrainingHashes.of([ETHANOL, ETHER, AMINE])
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


def left(lists, tables=()):
    inputs = EvaluationInputs(source=Path("t.tsv"), truths=TRUTHS, predictions=Path("p.csv"))
    leave_out_trained(inputs, lists, tables)
    return inputs


def test_what_any_list_holds_is_left_out_and_said_and_a_list_that_is_missing_too():
    ours, theirs = TrainingHashes.of([AMINE]), TrainingHashes.of([ETHER])

    found = left({"the weights": ours, "the rival x": theirs, "the rival y": None})

    assert (found.left_out, [truth.spectrum_id for truth in found.truths]) == ([ETHER], ["a", "b"])
    assert found.remarks == [
        "None of the 2 test molecules is among the weights: 1 first blocks of InChIKeys.",
        "1 of the 2 test molecules are among the rival x.",
        "Overlap with the rival y was not checked: no list of them.",
        f"LEFT OUT: 1 molecules that were trained on or given, with 1 spectra: {ETHER}.",
    ]
    with pytest.raises(UsageError, match="every test molecule was trained on"):
        left({"the weights": TrainingHashes.of([ETHANOL, ETHER])})


def test_the_nearest_of_several_tables_counts_and_the_near_ones_are_counted(tmp_path):
    far, near = tmp_path / "far.tsv", tmp_path / "near.tsv"
    far.write_text("smiles\tfold\nc1ccccc1\ttrain\nCCO\ttest\n")
    near.write_text("smiles\nCOC\nno molecule\n")

    found = left({}, (far, near))

    ethanol, *known = (fingerprint(parse_smiles(s), 2048) for s in ("CCO", "COC", "c1ccccc1"))
    nearest = found.notes["nearest_training"]
    assert nearest["c"] == 1.0
    assert nearest["a"] == nearest["b"] == max(tanimoto(ethanol, one) for one in known) < 0.7
    assert found.remarks[-1].startswith("1 of the 2 test molecules have a training molecule")
    far.write_text("smiles\tfold\nCCO\ttest\n")
    with pytest.raises(UsageError, match="holds no training molecules"):
        similarities({"a": "CCO"}, [far])
