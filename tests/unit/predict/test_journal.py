import itertools
import json
import resource
from dataclasses import asdict, replace

import pytest

from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.predict.journal import FinishedRun, Journal, journals_of, read, scan
from duallgd_cli.predict.settings import Header
from duallgd_cli.results import (
    ExplainedPeak,
    HypothesisResult,
    SpectrumReference,
    Structure,
)
from duallgd_cli.spectra.types import Source
from tests.made_runs import rewrite

HEADER = Header(
    version="1",
    settings={"seed": 1, "top_k": 10, "sampling": {"steps": 10}, "cleaning": {}},
    model={"name": "a", "sha256": "f" * 64, "ranking": {}},
    inputs=({"name": "a.mgf", "bytes": 10, "sha256": "0"},),
)


def feature(number, n_hypotheses=1, text="ok"):
    spectra = (
        SpectrumReference(Source("a.mgf", 2 * number), f"id {number}", precursor_mz=47.05),
        SpectrumReference(Source("a.mgf", 2 * number + 1), "", status="no_peaks", message="none"),
    )
    return tuple(
        HypothesisResult(
            status=text,
            message="änd \ud800 \n",
            formula="C2H6O",
            adduct="[M+H]+",
            n_heavy=3,
            log_prior=-0.1 * position,
            structures=(
                Structure(
                    *("CCO", "InChI=1S/x", "K" * 27, 3, 1, -1 / 3, ("noise",), "CCO", "acyclic"),
                    scores={"familiarity": -0.1},
                ),
            ),
            sampled=5,
            assembled=3,
            repaired=1,
            rejected={"valence": 1},
            distinct=1,
            n_peaks=2,
            peaks=(ExplainedPeak(1 / 3, 1.0, "CH3", -0.5),),
            notes=("halved",),
            seconds=0.25,
            feature=number,
            spectra=spectra,
            position=position,
            of=n_hypotheses,
        )
        for position in range(n_hypotheses)
    )


def fill(journal, *features):
    for result in itertools.chain(*features):
        if result.feature not in journal.finished:
            journal.append(result)


def finished(path, *features, header=HEADER, total=None):
    with Journal.create(path, header) as journal:
        fill(journal, *features)
        journal.finish({"cases": len(features) if total is None else total, "ms1": 0})
    return path


def test_spectra_come_in_input_order_whatever_the_order_of_the_journal(tmp_path):
    header = replace(HEADER, inputs=({"name": "b.mgf", "bytes": 1}, {"name": "a.mgf", "bytes": 1}))
    spectra = (SpectrumReference(Source("b.mgf", 7), "b"),)
    in_b = [replace(one, spectra=spectra) for one in feature(0)]
    with Journal.create(tmp_path / "j", header) as journal:
        fill(journal, feature(2), feature(1), in_b)
        journal.finish({"cases": 3})

    run = FinishedRun([tmp_path / "j"])

    found = [tried[0].spectra[place].source for tried, place in run.in_input_order()]
    assert found == [Source("b.mgf", 7), *(Source("a.mgf", index) for index in (2, 3, 4, 5))]


def test_a_feature_that_is_not_finished_is_begun_again(tmp_path):
    path = tmp_path / "j"
    with Journal.create(path, HEADER) as journal:
        fill(journal, feature(0), feature(1, n_hypotheses=2)[:1])

    with Journal.resume(path, HEADER) as journal:
        assert (journal.finished, journal.end) == ({0}, None)

    assert len(scan(path).hypotheses) == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"settings": {**HEADER.settings, "seed": 2}}, r"settings\.seed 1 -> 2"),
        (
            {"settings": {**HEADER.settings, "sampling": {"steps": 20}}},
            r"settings\.sampling\.steps 10 -> 20",
        ),
        ({"model": {"name": "a", "sha256": "e" * 64, "ranking": {}}}, r"weights\.sha256 f+ -> e+"),
        ({"version": "2"}, "version 1 -> 2"),
        ({"shard": "1/2"}, "shard 1/1 -> 1/2"),
        (
            {"inputs": ({"name": "a.mgf", "bytes": 11, "sha256": "0"},)},
            r"input\.a\.mgf\.bytes 10 -> 11",
        ),
    ],
)
def test_a_different_run_is_refused_with_what_changed(tmp_path, changed, said):
    path = finished(tmp_path / "j", feature(0))
    before = path.read_bytes()

    with pytest.raises(UsageError, match=said):
        Journal.resume(path, replace(HEADER, **changed))

    assert path.read_bytes() == before


def test_the_same_weights_under_another_name_are_the_same_run(tmp_path):
    path = finished(tmp_path / "j", feature(0))

    with Journal.resume(path, replace(HEADER, model={**HEADER.model, "name": "b"})) as journal:
        assert journal.end


@pytest.mark.parametrize(
    ("part", "is_finished", "is_kept"),
    [("1/1", False, True), ("1/2", True, True), ("1/1", True, False)],
)
def test_starting_again_keeps_work_aside_that_is_in_no_output(tmp_path, part, is_finished, is_kept):
    """A finished shard is in none yet: that comes when all shards are joined."""
    header, path, old = replace(HEADER, shard=part), tmp_path / "j", tmp_path / "j.old"
    with Journal.create(path, header) as journal:
        fill(journal, feature(0))
        if is_finished:
            journal.finish({"cases": 1})
    before = path.read_bytes()

    Journal.create(path, header).close()

    assert old.exists() == is_kept
    assert not is_kept or old.read_bytes() == before
    assert not scan(path).finished


@pytest.mark.parametrize("text", ["spectrum_id,file\n", "x", '{"a": 1}\n'])
def test_a_file_that_is_no_journal_is_never_overwritten(tmp_path, text):
    path = tmp_path / "precious.csv"
    path.write_text(text)

    for open_journal in (Journal.create, Journal.resume):
        with pytest.raises(UsageError, match="not a duallgd journal"):
            open_journal(path, HEADER)

    assert path.read_text() == text


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (lambda whole: [b'{"duallgd_journal":99}\n'], "of format 99, and"),
        (lambda whole: [b'{"duallgd_journal":99,"later":[]}\n', *whole[1:]], "of format 99, and"),
        (lambda whole: [whole[0].replace(b":3,", b":1,", 1), *whole[1:]], "of format 1, and this"),
        (lambda whole: [whole[0].replace(b'"1"', b'{"a":1}', 1), *whole[1:]], "after byte 0;"),
        (lambda whole: [whole[0], b"{oops}\n", *whole[2:]], "damaged after byte"),
        (lambda whole: [whole[0], b"[" * 9999 + b"\n", *whole[2:]], "damaged after byte"),
        (lambda whole: [whole[0], whole[2], whole[1], *whole[3:]], "damaged after byte"),
        (lambda whole: [*whole[1:2], *whole], "not a duallgd journal"),
        (lambda whole: [whole[0], *whole[2:]], "damaged after byte"),
        (lambda whole: [*whole[:2], *whole[1:]], "damaged after byte"),
        (lambda whole: [whole[0], whole[1].replace(b"CCO", b"CCN", 1), *whole[2:]], "damaged"),
        (lambda whole: [whole[0], whole[1].replace(b"{", b'{"new":1,', 1), *whole[2:]], "damaged"),
        (lambda whole: [*whole, *whole], "damaged after byte"),
    ],
)
@pytest.mark.parametrize(
    "opened",
    [lambda path: Journal.resume(path, HEADER).close(), lambda path: FinishedRun([path])],
    ids=["resume", "merge"],
)
def test_a_journal_of_another_format_or_damaged_inside_is_refused(tmp_path, lines, said, opened):
    path = finished(tmp_path / "j", *map(feature, range(3)))
    changed = b"".join(lines(path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(changed)

    with pytest.raises((UsageError, UnreadableError), match=said):
        opened(path)

    assert path.read_bytes() == changed


@pytest.mark.parametrize(
    "values",
    [
        {"duallgd_journal": 2},
        {"duallgd_journal": 2, "version": "9", "seeds": [1]},
        {"duallgd_journal": 2, **asdict(HEADER), "colour": "blue"},
        {"duallgd_journal": 2, **asdict(HEADER), "inputs": 5},
        {"duallgd_journal": 2, **asdict(HEADER), "inputs": [5]},
        {"duallgd_journal": 2, **asdict(HEADER), "inputs": [{"path": "a"}]},
        {"duallgd_journal": 2, **asdict(HEADER), "inputs": []},
        {"duallgd_journal": 2, **asdict(HEADER), "settings": []},
        {"duallgd_journal": 2, **asdict(HEADER), "model": 7},
        {"duallgd_journal": 2, **asdict(HEADER), "shard": "all"},
        {"duallgd_journal": 2, **asdict(HEADER), "shard": 1},
    ],
)
def test_a_header_that_another_version_wrote_is_refused_in_a_sentence(tmp_path, values):
    path = finished(tmp_path / "j")
    rewrite(path, lambda lines: [values, *lines[1:]])

    for opened in (Journal.create, Journal.resume):
        with pytest.raises(UnreadableError, match=r"another version.*predict again"):
            opened(path, HEADER)
    with pytest.raises(UnreadableError, match=r"another version.*predict again"):
        FinishedRun([path])


@pytest.mark.parametrize(
    "values",
    [
        {"colour": "blue"},
        {"case": "one", "hypothesis": 0, "of": 1, "members": [], "outcome": {}},
        {"case": 10**30, "hypothesis": 0, "of": 1, "members": [], "outcome": {}},
        {"case": 1, "hypothesis": 0, "of": 1, "members": None, "outcome": {}},
        {"case": 1, "hypothesis": 0, "of": 1, "members": [{"source": ["b", 0]}], "outcome": {}},
        {"case": 1, "hypothesis": 0, "of": 1, "members": [{"source": 7}], "outcome": {}},
    ],
)
def test_a_line_that_another_version_wrote_is_refused_in_a_sentence(tmp_path, values):
    path = finished(tmp_path / "j", feature(0))
    rewrite(path, lambda lines: [lines[0], values, *lines[1:]])

    for opened in (lambda: Journal.resume(path, HEADER), lambda: FinishedRun([path])):
        with pytest.raises(UnreadableError, match=r"another version.*predict again"):
            opened()


def test_a_journal_that_another_run_writes_is_refused(tmp_path):
    path = tmp_path / "j"

    with Journal.create(path, HEADER), pytest.raises(UsageError, match="another run"):
        Journal.resume(path, HEADER)


def test_a_journal_that_cannot_be_written_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot write the journal"):
        Journal.create(tmp_path / "absent" / "j", HEADER)


def test_a_full_disk_is_said_and_what_was_finished_is_kept(tmp_path):
    path, before = tmp_path / "j", resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:
        with pytest.raises(UsageError, match=r"cannot write the journal .*too large; make room"):
            finished(path, *map(feature, range(20)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert path.stat().st_size == 3000
    with Journal.resume(path, HEADER) as journal:
        assert 0 < len(journal.finished) < 20
        fill(journal, *map(feature, range(20)))
    assert scan(path).finished == {*range(20)}


def test_a_number_that_is_not_finite_never_enters(tmp_path):
    broken = [replace(one, seconds=float("nan")) for one in feature(0)]

    with Journal.create(tmp_path / "j", HEADER) as journal, pytest.raises(ValueError, match="JSON"):
        fill(journal, broken)


def test_every_line_is_plain_json(tmp_path):
    path = finished(tmp_path / "j", feature(0))

    kinds = [set(json.loads(line)) for line in path.read_text("ascii").splitlines()]

    assert "duallgd_journal" in kinds[0]
    assert kinds[1] == {"case", "hypothesis", "of", "members", "outcome", "crc32"}
    assert kinds[2] == {"end", "crc32"}


@pytest.mark.parametrize(
    "changed",
    [
        {"structures": [["CCO", *[0] * 40]]},
        {"structures": 7},
        {"peaks": [[1]]},
        {"colour": "blue"},
        {"tallies": None},
        {"seconds": "0.1"},
        {"status": 3},
        {"formula": None},
        {"log_prior": []},
        {"structures": [["CCO", "InChI=1S/x", "K", "3", 0, 1, -0.3]]},
        {"peaks": [[1.0, 1.0, "CH3", "?"]]},
        {"tallies": {"sampled": "5"}},
        {"tallies": {"rejected": [1]}},
        {"tallies": []},
        {"notes": 5},
    ],
)
def test_a_journal_with_the_fields_of_another_version_is_refused_in_a_sentence(tmp_path, changed):
    path = finished(tmp_path / "j", feature(0))

    def change(lines):
        lines[1]["outcome"] |= changed
        return lines

    rewrite(path, change)

    with pytest.raises(UnreadableError, match=r"j was written by another version.*predict again"):
        FinishedRun([path]).feature(0)


def shard(folder, number, count, *features, header=HEADER, name="out.csv"):
    path = folder / f"{name}.shard-{number}-of-{count}.journal.jsonl"
    return finished(path, *features, header=replace(header, shard=f"{number}/{count}"), total=3)


@pytest.mark.parametrize(
    ("numbers", "said"), [([1], "shard 2/2 is absent"), ([1, 1, 2], "shard 1/2 is given twice")]
)
def test_a_shard_that_is_absent_or_there_twice_is_named(tmp_path, numbers, said):
    paths = [shard(tmp_path, n, 2, feature(n), name=str(i)) for i, n in enumerate(numbers)]

    with pytest.raises(UsageError, match=said):
        read(paths)


def test_of_a_shard_that_is_there_twice_each_spectrum_is_read_once(tmp_path):
    twice = [shard(tmp_path, 1, 2, feature(0), feature(2), name=name) for name in "ab"]

    run = read(twice, partial=True)

    found = [(tried[0].feature, place) for tried, place in run.in_input_order()]
    assert found == [(0, 0), (0, 1), (2, 0), (2, 1)]


def test_an_unfinished_shard_is_named(tmp_path):
    first = shard(tmp_path, 1, 2, feature(0), feature(2))
    path = tmp_path / "out.csv.shard-2-of-2.journal.jsonl"
    Journal.create(path, replace(HEADER, shard="2/2")).close()

    with pytest.raises(UsageError, match=r"shard 2/2\) is not finished"):
        FinishedRun([first, path])


def test_shards_of_different_runs_are_not_mixed(tmp_path):
    first = shard(tmp_path, 1, 2, feature(0), feature(2))
    other = replace(HEADER, settings={**HEADER.settings, "seed": 9})
    second = shard(tmp_path, 2, 2, feature(1), header=other)

    with pytest.raises(UsageError, match=r"different runs: settings\.seed 1 -> 9"):
        FinishedRun([first, second])


def test_journals_are_found_by_the_name_of_the_output(tmp_path):
    shards = [shard(tmp_path, number, 2) for number in (1, 2)]
    shard(tmp_path, 1, 2, name="out.csv2")

    assert journals_of([tmp_path / "out.csv"]) == shards
    assert journals_of([shards[0], tmp_path / "out.csv"]) == shards


def test_an_output_without_journals_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no journal beside it"):
        journals_of([tmp_path / "out.csv"])
    with pytest.raises(UsageError, match="there is no journal"):
        FinishedRun([tmp_path / "x.journal.jsonl"])
    with pytest.raises(UsageError, match="no journals to join"):
        FinishedRun([])
