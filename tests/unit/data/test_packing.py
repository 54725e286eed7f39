"""Packed data: the same bytes back, a part where one is asked for, and broken files refused."""

import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.data.packing import pack, unpack
from duallgd_cli.data.prepared import (
    load_molecules,
    load_spectra,
    read_manifest,
    verify,
    write,
)
from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from tests.made_graphs import made_molecules
from tests.made_prepared import spectra_folder, structures_folder


def made_folder(folder, molecules):
    """Made molecules as a prepared folder."""
    write(folder, molecules.arrays(), {"kind": "structures", "molecules": len(molecules)})
    return folder


def files(folder):
    """Contents of the arrays of a prepared folder and its manifest."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".tsv"}


@pytest.mark.parametrize("make", [structures_folder, spectra_folder])
def test_unpacking_gives_the_very_files_back(tmp_path, make):
    folder = make(tmp_path / "prepared")

    pack(folder, tmp_path / "data.pack")
    unpack(tmp_path / "data.pack", tmp_path / "again")

    verify(tmp_path / "again")
    assert files(tmp_path / "again") == files(folder)


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(0, 9), st.integers(2, 60))
def test_any_molecules_come_back(tmp_path_factory, count, seed, largest):
    folder = tmp_path_factory.mktemp("any")
    molecules = made_molecules(count, seed=seed, smallest=2, largest=largest)

    pack(made_folder(folder / "prepared", molecules), folder / "data.pack")
    unpack(folder / "data.pack", folder / "again")

    assert files(folder / "again") == files(folder / "prepared")


def test_bonds_in_another_order_come_back_in_that_order(tmp_path):
    molecules = made_molecules(20, smallest=5)
    molecules.bond_pair[:] = molecules.bond_pair[::-1].copy()

    pack(made_folder(tmp_path / "prepared", molecules), tmp_path / "data.pack")
    unpack(tmp_path / "data.pack", tmp_path / "again")

    assert files(tmp_path / "again") == files(tmp_path / "prepared")


def test_a_part_holds_whole_molecules_and_says_what_it_is(tmp_path):
    fold = [0] * 40 + [3] * 10
    molecules = made_molecules(50, fold=fold)
    folder = made_folder(tmp_path / "prepared", molecules)

    pack(folder, tmp_path / "data.pack", max_atoms=7, limit=12, keys=False)
    manifest = unpack(tmp_path / "data.pack", tmp_path / "part")

    part = load_molecules(tmp_path / "part")
    small = molecules.n_heavy <= 7
    assert manifest["packed"] == {"max_atoms": 7, "limit": 12, "keys": False}
    assert manifest["molecules"] == len(part)
    assert (part.fold == 0).sum() == 12
    assert (part.fold == 3).sum() == small[40:].sum()
    assert not part.inchikey.astype(bool).any()
    graphs = {graph_of(molecules, row) for row in np.flatnonzero(small)}
    assert {graph_of(part, row) for row in range(len(part))} <= graphs


def graph_of(molecules, row):
    """All about one molecule but its key."""
    pair, kind = molecules.bonds(row)
    known = (molecules.atom_counts[row], pair, kind, molecules.fingerprint_bits(row))
    return tuple(tuple(values.tolist()) for values in known)


def test_a_smaller_part_is_a_part_of_a_larger_one(tmp_path):
    folder = made_folder(tmp_path / "prepared", made_molecules(30))
    kept = {}

    for limit in (5, 15, 99):
        pack(folder, tmp_path / "data.pack", limit=limit)
        unpack(tmp_path / "data.pack", tmp_path / str(limit))
        kept[limit] = set(load_molecules(tmp_path / str(limit)).inchikey.tolist())

    assert [len(keys) for keys in kept.values()] == [5, 15, 30]
    assert kept[5] < kept[15] < kept[99]


def test_spectra_are_packed_whole_or_not_at_all(tmp_path):
    folder = spectra_folder(tmp_path / "spectra")

    with pytest.raises(UsageError, match="holds spectra, of which no part can be packed"):
        pack(folder, tmp_path / "data.pack", limit=2)

    pack(folder, tmp_path / "data.pack", keys=False)
    unpack(tmp_path / "data.pack", tmp_path / "again")
    one, two = load_spectra(folder), load_spectra(tmp_path / "again")
    for field in fields(one):
        if field.name != "molecules":
            np.testing.assert_array_equal(getattr(one, field.name), getattr(two, field.name))


def test_a_packed_file_is_small(tmp_path):
    folder = made_folder(tmp_path / "prepared", made_molecules(4000, smallest=10, largest=30))

    pack(folder, tmp_path / "data.pack", keys=False)

    raw = sum(len(content) for content in files(folder).values())
    assert (tmp_path / "data.pack").stat().st_size < raw / 3


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingInputError, match=r"none\.pack does not exist; make it with"):
        unpack(tmp_path / "none.pack", tmp_path / "again")


@pytest.mark.parametrize("content", [b"", b"\x00\x01\n", b"[1]\n", b'{"pack_version": 9}\nabc'])
def test_another_file_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "other").write_bytes(content)

    with pytest.raises(UnreadableError, match=r"other holds no packed data .*; pack it again"):
        unpack(tmp_path / "other", tmp_path / "again")


@pytest.mark.parametrize("place", [0.3, 0.6, 0.99])
def test_a_broken_file_leaves_no_prepared_data(tmp_path, place):
    path = tmp_path / "data.pack"
    pack(structures_folder(tmp_path / "prepared"), path)
    content = bytearray(path.read_bytes())
    start = content.index(b"\n")
    content[start + int(place * (len(content) - start))] ^= 0xFF
    path.write_bytes(content)

    with pytest.raises(UnreadableError, match="pack the data again"):
        unpack(path, tmp_path / "again")

    assert not (tmp_path / "again" / "manifest.json").exists()


def test_other_contents_than_the_checksums_say_are_found(tmp_path):
    path = tmp_path / "data.pack"
    pack(structures_folder(tmp_path / "prepared"), path)
    header, _, content = path.read_bytes().partition(b"\n")
    about = json.loads(header)
    about["sha256"]["charge"] = "0" * 64
    path.write_bytes(json.dumps(about).encode() + b"\n" + content)

    with pytest.raises(UnreadableError, match=r"does not match its checksums \(\['charge'\]\)"):
        unpack(path, tmp_path / "again")

    with pytest.raises(MissingInputError):
        read_manifest(tmp_path / "again")
