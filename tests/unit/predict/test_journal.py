import json
import resource
from dataclasses import replace

import pytest

from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from duallgd_cli.predict.journal import FORMAT, Journal, journals_of, read, scan
from duallgd_cli.results import (
    ExplainedPeak,
    FeatureResult,
    Header,
    HypothesisResult,
    MeasuredPeaks,
    SpectrumReference,
    Structure,
)
from duallgd_cli.spectra.types import IsotopePattern, Source
from tests.made_runs import rewrite

INPUT = {"name": "a.mgf", "bytes": 10, "sha256": "0"}
HEADER = Header(
    version="1",
    settings={"seed": 1, "top_k": 10, "sampling": {"steps": 10}, "cleaning": {}},
    model={"name": "a", "sha256": "f" * 64, "ranking": {}},
    inputs=(INPUT,),
)


def feature(number, n_hypotheses=1, text="ok"):
    """A feature of two spectra, every field of its results set."""
    spectra = (
        SpectrumReference(Source("a.mgf", 2 * number), f"id {number}", precursor_mz=47.05),
        SpectrumReference(Source("a.mgf", 2 * number + 1), "", status="no_peaks", message="none"),
    )
    structure = Structure(
        *("CCO", "InChI=1S/x", "K" * 27, 3, 1, -1 / 3, ("noise",), "CCO", "acyclic"),
        scores={"familiarity": -0.1},
    )
    result = HypothesisResult(
        text, "änd \ud800 \n", "C2H6O", "[M+H]+", n_heavy=3, structures=(structure,), sampled=5,
        assembled=3, repaired=1, rejected={"valence": 1}, n_peaks=2,
        peaks=(ExplainedPeak(1 / 3, 1.0, "CH3", -0.5),), notes=("halved",), seconds=0.25,
        known={"library_match": {"name": "x"}},
    )  # fmt: skip
    hypotheses = tuple(replace(result, log_prior=-0.1 * n) for n in range(n_hypotheses))
    peaks = (MeasuredPeaks("20 eV", (1 / 3, 46.5), (1.0, 0.25)),)
    isotopes = IsotopePattern((2.0, 0.5), 0.1)
    return FeatureResult(number, spectra, peaks, 1e6 / 3, isotopes, hypotheses)


def fill(journal, *features):
    for result in features:
        if result.number not in journal.finished:
            journal.append(result)


def finished(path, *features, header=HEADER, total=None):
    with Journal.opened(path, header) as journal:
        fill(journal, *features)
        journal.finish({"cases": len(features) if total is None else total, "ms1": 0})
    return path


@pytest.fixture
def path(tmp_path):
    return finished(tmp_path / "j.journal.jsonl", *map(feature, range(3)))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("settings", {**HEADER.settings, "seed": 2}, "settings.seed 1 -> 2"),
        (
            "settings",
            {"seed": 2, "top_k": 3, "sampling": {"steps": 20}, "core": "C"},
            "settings.seed 1 -> 2, settings.top_k 10 -> 3, settings.sampling.steps 10 -> 20 and 1 "
            "more",
        ),
        ("settings", {**HEADER.settings, "core": "C"}, "settings.core absent -> C"),
        ("model", {**HEADER.model, "sha256": "e"}, f"weights.sha256 {'f' * 64} -> e"),
        ("model", {**HEADER.model, "name": "b"}, ""),  # the same weights at another place
        ("version", "2", "version 1 -> 2"),
        ("shard", "1/2", "shard 1/1 -> 1/2"),
        ("inputs", ({**INPUT, "bytes": 11},), "input.a.mgf.bytes 10 -> 11"),
    ],
)
def test_a_different_run_is_refused_with_what_changed(path, name, value, said):
    other, before = replace(HEADER, **{name: value}), path.read_bytes()

    assert HEADER.differences(other) == said
    if said:
        with pytest.raises(UsageError) as refused:
            Journal.opened(path, other, resume=True)
        assert f"because of other settings or inputs: {said}; use those" in str(refused.value)
    else:
        with Journal.opened(path, other, resume=True) as journal:
            assert journal.end == {"cases": 3, "ms1": 0}
    assert path.read_bytes() == before


def test_a_journal_that_is_started_again_is_empty_but_no_other_file_is_touched(path):
    rewrite(path, lambda lines: [lines[0] | {"duallgd_journal": FORMAT - 1}, *lines[1:]])
    other = path.with_name("precious.csv")
    other.write_text("spectrum_id,file\n")

    with Journal.opened(path, HEADER), pytest.raises(UsageError, match="another run"):
        Journal.opened(path, HEADER, resume=True)
    assert not scan(path).finished
    for resume in (False, True):
        with pytest.raises(UsageError, match="not a duallgd journal"):
            Journal.opened(other, HEADER, resume=resume)
    with pytest.raises(UsageError, match="cannot write the journal"):
        Journal.opened(path.with_name("absent") / "j", HEADER)
    path.write_text('{"duallgd_')  # torn in its first bytes: it is ours, though nothing is in it
    with Journal.opened(path, HEADER) as journal:
        assert not journal.finished
    assert other.read_text() == "spectrum_id,file\n"


def lines(place, change):
    """A change of the text of one line of a journal."""

    def changed(path):
        every = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*every[:place], change(every[place]), *every[place + 1 :]]))

    return changed


def values(place, change):
    """A change of one line as plain values, its checksum right."""

    def changed(path):
        rewrite(path, lambda every: [*every[:place], change(every[place]), *every[place + 1 :]])

    return changed


DAMAGED, ANOTHER = "damaged after byte", r"another version.*predict again"
NOW = b":%d," % FORMAT


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lines(0, lambda _: b'{"duallgd_journal":99,"later":[]}\n'), "of format 99, and this"),
        (lines(0, lambda line: line.replace(NOW, b":1,", 1)), "of format 1, and this"),
        (lines(0, lambda line: line.replace(b'"1"', b'{"a":1}', 1)), f"{DAMAGED} 0;"),
        (lines(1, lambda _: b"[" * 9999 + b"\n"), DAMAGED),
        (lines(0, lambda _: b""), "not a duallgd journal"),
        (
            values(0, lambda line: {"duallgd_journal": FORMAT, "version": "9", "seeds": [1]}),
            ANOTHER,
        ),
        (values(0, lambda line: line | {"colour": "blue"}), ANOTHER),
        (values(0, lambda line: line | {"inputs": [5]}), ANOTHER),
        (values(0, lambda line: line | {"inputs": [{"path": "a"}]}), ANOTHER),
        (values(1, lambda line: {"colour": "blue"}), ANOTHER),
        (values(1, lambda line: line | {"number": 10**30}), ANOTHER),
        (values(1, lambda line: line | {"spectra": []}), ANOTHER),
        # an input that the header lacks
        (values(1, lambda line: line | {"spectra": [{"source": ["b", 0]}]}), ANOTHER),
        (values(1, lambda line: {"end": {"ms1": 0}}), ANOTHER),
        (values(1, lambda line: {"end": {"cases": 1e999}}), ANOTHER),
    ],
)
def test_a_journal_that_is_damaged_or_of_another_version_is_refused(path, change, said):
    change(path)
    before = path.read_bytes()

    for opened in (lambda: read([path]), lambda: Journal.opened(path, HEADER, resume=True)):
        with pytest.raises((UsageError, UnreadableError), match=said):
            opened()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "own", [{"structures": [["CCO", *[0] * 40]]}, {"peaks": [[1]]}, {"colour": "blue"}]
)
def test_fields_of_another_version_are_refused_where_they_are_read(path, own):
    values(1, lambda line: line | {"hypotheses": [line["hypotheses"][0] | own]})(path)

    with pytest.raises(UnreadableError, match=f"j.journal.jsonl was written by {ANOTHER}"):
        list(read([path]).features())


def test_a_full_disk_is_said_and_what_was_finished_is_kept(tmp_path):
    path, limits = tmp_path / "j", resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        with pytest.raises(UsageError, match=r"cannot write the journal .*too large; make room"):
            finished(path, *map(feature, range(20)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert path.stat().st_size == 3000
    with Journal.opened(path, HEADER, resume=True) as journal:
        assert 0 < len(journal.finished) < 20
        fill(journal, *map(feature, range(20)))
    assert scan(path).finished == {*range(20)}


def test_every_line_is_plain_json_of_finite_numbers(path):
    head, *lines = ({*json.loads(line)} for line in path.read_text("ascii").splitlines())

    assert "duallgd_journal" in head
    assert lines == [{*FeatureResult._fields, "crc32"}] * 3 + [{"end", "crc32"}]
    broken = feature(0)._replace(intensity=float("nan"))
    with Journal.opened(path, HEADER) as journal, pytest.raises(ValueError, match="JSON"):
        journal.append(broken)


def shard(folder, number, count, *features, header=HEADER, name="out.csv"):
    path = folder / f"{name}.shard-{number}-of-{count}.journal.jsonl"
    return finished(path, *features, header=replace(header, shard=f"{number}/{count}"), total=3)


@pytest.mark.parametrize(
    ("numbers", "said"), [([1], "shard 2/2 is absent"), ([1, 1, 2], "shard 1/2 is given twice")]
)
def test_a_shard_that_is_absent_or_there_twice_is_named(tmp_path, numbers, said):
    paths = [
        shard(tmp_path, number, 2, feature(number, text=f"run {place}"), name=str(place))
        for place, number in enumerate(numbers)
    ]

    with pytest.raises(UsageError, match=said):
        read(paths)
    last = {number: f"run {place}" for place, number in enumerate(numbers)}
    partly = read(paths, partial=True)  # each once, as it was written last
    told = [(one.number, one.hypotheses[0].status) for one in partly.features()]
    assert told == sorted(last.items())


def test_shards_that_are_unfinished_or_of_different_runs_are_not_mixed(tmp_path):
    first = shard(tmp_path, 1, 2, feature(0), feature(2))
    unfinished = tmp_path / "out.csv.shard-2-of-2.journal.jsonl"
    Journal.opened(unfinished, replace(HEADER, shard="2/2")).__exit__()

    with pytest.raises(UsageError, match=r"shard 2/2\) is not finished"):
        read([first, unfinished])
    other = replace(HEADER, settings={**HEADER.settings, "seed": 9})
    second = shard(tmp_path, 2, 2, feature(1), header=other)
    with pytest.raises(UsageError, match=r"different runs: settings\.seed 1 -> 9"):
        read([first, second])


def test_journals_are_found_by_the_name_of_the_output(tmp_path):
    shards = [shard(tmp_path, number, 2) for number in (1, 2)]
    shard(tmp_path, 1, 2, name="out.csv2")

    assert journals_of([tmp_path / "out.csv"]) == shards
    assert journals_of([shards[0], tmp_path / "out.csv"]) == shards
    with pytest.raises(MissingInputError, match="nor a journal of it"):
        journals_of([tmp_path / "other.csv"])
    with pytest.raises(UsageError, match="there is no journal"):
        read([tmp_path / "x.journal.jsonl"])
