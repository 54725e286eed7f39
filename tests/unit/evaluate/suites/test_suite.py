"""Files that several shards of one evaluation write and read at the same time."""

from duallgd_cli.evaluate.suites.suite import write_truth, write_unlabelled
from duallgd_cli.evaluate.tables import Truth

ROW = {"identifier": "a", "mzs": "59.01,73.03", "intensities": "1,2", "precursor_mz": "90.05"}
TRUTH = Truth("a", "CC(N)C(=O)O", "QNAYBMKLOCPYGJ", {"identifier": "a", "smiles": "CC(N)C(=O)O"})


def test_a_reader_of_the_spectra_is_not_disturbed_by_another_shard_writing_them(tmp_path):
    path = tmp_path / "spectra.tsv"
    write_unlabelled([ROW], [TRUTH], path, with_formula=False)
    whole = path.read_bytes()

    with path.open("rb") as reader:
        first = reader.read(10)
        write_unlabelled([ROW], [TRUTH], path, with_formula=False)
        rest = reader.read()

    assert first + rest == whole == path.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["spectra.tsv"]


def test_the_truth_takes_its_place_when_it_is_complete(tmp_path):
    path = tmp_path / "truth.tsv"
    write_truth([TRUTH], path)

    with path.open("rb") as reader:
        write_truth([], path)

        assert b"QNAYBMKLOCPYGJ" in reader.read()
