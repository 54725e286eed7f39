"""Lists of training molecules, and test molecules that are left out because of them."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.identity import fingerprint, parse_smiles, tanimoto
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.evaluate.leakage import TrainingHashes, leave_out_trained, similarities
from duallgd_cli.evaluate.tables import EvaluationInputs, Truth

BLOCKS = st.lists(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=14, max_size=14), max_size=30)
ETHANOL, ETHER, AMINE = "LFQSCWFLJHTTHZ", "LCGLNKUTAGEVQW", "QUSNBJAOOMFDIB"
TRUTHS = [Truth("a", "CCO", ETHANOL), Truth("b", "OCC", ETHANOL), Truth("c", "COC", ETHER)]


@given(BLOCKS, BLOCKS)
def test_a_file_holds_exactly_what_went_in_as_its_description_says(
    tmp_path_factory, inside, outside
):
    path = tmp_path_factory.mktemp("hashes") / "w.train.hashes"

    TrainingHashes.of(f"{block}-UHFFFAOYSA-N" for block in inside).write(path)

    read, archive = TrainingHashes.read(path), dict(np.load(path))
    expected = [block in inside for block in (*inside, *outside)]
    assert read.contains([*inside, *outside]).tolist() == expected
    assert len(read) == len(set(inside))
    digests = {hashlib.blake2b(block.encode(), digest_size=5).digest() for block in inside}
    expected = sorted(int.from_bytes(digest, "big") % 2**34 for digest in digests)
    assert [(k, v.dtype, v.tolist()) for k, v in archive.items()] == [("hashes", "u8", expected)]


def test_a_list_with_one_byte_changed_or_lost_never_reads_as_another(tmp_path):
    whole, path, refused = TrainingHashes.of([ETHANOL, ETHER, AMINE]), tmp_path / "w", 0
    whole.write(path)
    data = path.read_bytes()

    for place in range(len(data)):
        for middle in (b"", *(bytes([data[place] ^ change]) for change in (1, 0x80))):
            path.write_bytes(data[:place] + middle + data[place + 1 :])
            try:
                assert TrainingHashes.read(path).hashes.tolist() == whole.hashes.tolist()
            except UnreadableError:
                refused += 1
    assert refused > 3 * len(data) / 2


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"hashes": np.array([1.0, 2.0])},
        {"hashes": np.array([None])},
        *({"hashes": np.array(n, np.uint64)} for n in ([2, 1], [2, 2], [[1, 2]])),
    ],
)
def test_an_archive_that_is_no_list_is_refused(tmp_path, arrays):
    np.savez_compressed(tmp_path / "list.npz", **arrays)

    with pytest.raises(UnreadableError, match="no list of training molecules"):
        TrainingHashes.read(tmp_path / "list.npz")


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
        f"LEFT OUT: 1 molecule trained on or given, with 1 spectrum: {ETHER}.",
    ]
    with pytest.raises(UsageError, match="every test molecule was trained on"):
        left({"the weights": ours.joined(TrainingHashes.of([ETHANOL, ETHER]))})


def test_the_nearest_of_several_tables_counts_and_the_near_ones_are_counted(tmp_path):
    far, near = tmp_path / "far.tsv", tmp_path / "near.tsv"
    far.write_text("smiles\tfold\nc1ccccc1\ttrain\nCCO\ttest\n")
    near.write_text("smiles\nCOC\nno molecule\n")

    found = left({}, (far, near))

    ethanol, *known = (fingerprint(parse_smiles(s), 2048) for s in ("CCO", "COC", "c1ccccc1"))
    nearest = max(tanimoto(ethanol, bits) for bits in known)
    assert found.notes["nearest_training"] == {"a": nearest, "b": nearest, "c": 1.0}
    assert found.remarks[-1].startswith("1 of the 2 test molecules have a training molecule")
    far.write_text("smiles\tfold\nCCO\ttest\n")
    with pytest.raises(UsageError, match="holds no training molecules"):
        similarities({"a": "CCO"}, [far])
