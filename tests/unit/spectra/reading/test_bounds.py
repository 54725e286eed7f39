"""A file that would fill the memory costs a record or its own end, and says so."""

import base64
import bz2
import gzip
import json
import lzma
import subprocess
import sys
import zlib

import pytest

from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.reading import read

MOST_MIB = 512
BLOCK = 1 << 24
HEAD = b"BEGIN IONS\nTITLE=bomb\nPEPMASS=181.05\n"
TAIL = b"41 3\nEND IONS\nBEGIN IONS\nTITLE=sound\nPEPMASS=181.05\n121.03 5\nEND IONS\n"
LONG = "longer than 32 million characters or has more than 1,000,000 peaks"
# Reads files in a process of its own, so that its peak of memory is that of the reading.
READ = """
import json, sys
from pathlib import Path
import duallgd_cli.spectra.reading.xml
from duallgd_cli.spectra.reading import read
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024
found, before = {}, peak()
for path in map(Path, sys.argv[1:]):
    Path("/proc/self/clear_refs").write_text("5")  # peaks are counted anew
    items = [
        f"{item.spectrum_id}: {item.failure.message if item.failure else 'ok'}"
        for item in read(str(path))
    ]
    found[path.name] = peak() - before, items
print(json.dumps(found))
"""


def mzml(*parts):
    """Spectra with `parts` in them, and a sound one."""
    start = b'<?xml version="1.0"?><mzML xmlns="http://psi.hupo.org/ms/mzml"><run><spectrumList>'
    spectra = [b'<spectrum id="scan=%d" ' % n + part for n, part in enumerate(parts)]
    sound = b'<spectrum id="scan=9"></spectrum>'
    return start + b"".join(spectra) + sound + b"</spectrumList></run></mzML>"


def array(content, compression):
    return (
        b"><binaryDataArrayList><binaryDataArray>"
        b'<cvParam accession="MS:1000523" name="64-bit float"/><cvParam accession="MS:1000514" '
        b'name="m/z array"/><cvParam accession="%b"/><binary>%b</binary></binaryDataArray>'
        b"</binaryDataArrayList></spectrum>" % (compression, content)
    )


def zeros():
    pack = zlib.compressobj(9)
    packed = b"".join(pack.compress(bytes(BLOCK)) for _ in range(16)) + pack.flush()
    return array(base64.b64encode(packed), b'MS:1000574" name="zlib compression')


BOMBS = {
    "line.mgf": lambda: HEAD + b"1" * (4 * BLOCK) + b"\n" + TAIL,
    "field.mgf": lambda: HEAD + b"NOTE=" + b"a" * (4 * BLOCK) + b"\n" + TAIL,
    "fields.mgf": lambda: HEAD + b"".join(b"K%d=v\n" % n for n in range(400_000)) + TAIL,
    "peaks.mgf": lambda: HEAD + b"100.5 1\n" * 1_000_001 + TAIL,
    "packed.mgf.gz": lambda: gzip.compress(HEAD) + gzip.compress(b"1" * BLOCK) * 32,
    "packed.mgf.xz": lambda: lzma.compress(HEAD) + lzma.compress(b"1" * BLOCK) * 32,
    "packed.mgf.bz2": lambda: bz2.compress(HEAD) + bz2.compress(b"1" * BLOCK) * 32,
    "peaks.msp": lambda: b"Name: bomb\nNum Peaks: 9\n" + b"41 3; " * BLOCK + b"\n",
    "blocks.ms": lambda: b">compound bomb\n>ms2\n" + b"41 3\n" * 1_000_001 + b">ms2\n41 3\n",
    "row.tsv": lambda: b"identifier\tmzs\tintensities\nbomb\t" + b"1," * BLOCK + b"\t1\ns\t9\t9\n",
    "peaks.json": lambda: b'[{"peaks": [' + b"[50.5, 1.5]," * (5 * BLOCK // 12),
    "text.json": lambda: b'{"title": "' + b"a" * (5 * BLOCK) + b'"}\n{"peaks": [[41, 3]]}\n',
    "deep.json": lambda: b'[{"a": ' + b"[" * BLOCK,
    "rows.massbank.txt": lambda: (
        b"ACCESSION: a\nPK$PEAK: m/z int. rel.int.\n" + b"  100.5 1 9\n" * 1_000_001
    ),
    "zeros.mzML": lambda: mzml(zeros()),
    "text.mzML": lambda: mzml(array(b"A" * (4 * BLOCK), b'MS:1000576" name="no compression')),
    "attribute.mzML": lambda: mzml(b'x="' + b"1" * (6 * BLOCK) + b'"></spectrum>'),
    "many.mzML": lambda: mzml(b">" + b'<cvParam name="a"/>' * 900_000 + b"</spectrum>"),
    "deep.mzML": lambda: mzml(b">" + b"<a>" * 50_000 + b"</a>" * 50_000 + b"</spectrum>"),
}
SAID = dict.fromkeys(
    ("packed.mgf.gz", "packed.mgf.xz", "packed.mgf.bz2"),
    "unpack to more than 200 times their size",
) | {
    "zeros.mzML": "an array of more than 32 MiB",
    **dict.fromkeys(("text.mzML", "many.mzML"), "a spectrum of more than 64 MiB"),
    "attribute.mzML": "its XML is broken",
    "deep.mzML": "Excessive depth",
    "deep.json": "nested too deeply",
    **dict.fromkeys(("peaks.json", "text.json"), "longer than 16 million characters"),
}
SOUND_AFTER = ("mgf", "tsv", "text.json", "zeros.mzML")
# Whose reading would take hours if its time were not in proportion to the text.
SOUND = {
    "blank.mgf": b"\n" * 65_000 + HEAD + b"41 3\nEND IONS\n",
    "comment.msp": b"Name: a\nComments: =" + b"a" * (1 << 21) + b"\nNum Peaks: 1\n41 3\n",
    "spaces.msp": b"Name: a" + b" " * (1 << 21) + b"x\nNum Peaks: 1\n41 3\n",
    "spaces.ms": b">compound a" + b" " * (1 << 21) + b"x\n>ms2\n41 3\n",
}


def read_in_a_process(folder, contents):
    """Memory that reading each file took, MiB, and its spectra; by name."""
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    command = [sys.executable, "-c", READ, *(str(folder / name) for name in contents)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_files_that_would_fill_the_memory_say_so(tmp_path):
    found = read_in_a_process(tmp_path, {name: make() for name, make in BOMBS.items()})

    assert {name: mib for name, (mib, _) in found.items() if mib >= MOST_MIB} == {}
    for name, (_, items) in found.items():
        assert any(SAID.get(name, LONG) in item for item in items), name
        if name.endswith(SOUND_AFTER):
            assert [item.endswith(": ok") for item in items] == [False, True], name


@pytest.mark.slow
def test_no_text_takes_more_than_time_in_proportion(tmp_path):
    found = read_in_a_process(tmp_path, SOUND)

    assert found.keys() == SOUND.keys()
    assert all(len(items) == 1 and items[0].endswith(": ok") for _, items in found.values())


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused(device):

    with pytest.raises(UnreadableError, match="is a device; name a file"):
        read(device)


def test_two_columns_of_one_name_are_refused(tmp_path):

    path = tmp_path / "a.tsv"
    path.write_text("mzs\tintensities\tformula\tFormula\n1\t1\tC\tN\n")

    with pytest.raises(UnreadableError, match="two columns 'formula'"):
        list(read(str(path)))
