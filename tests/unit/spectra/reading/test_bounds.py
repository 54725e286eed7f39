"""A file that would fill the memory costs a record or its own end, and says so."""

import base64
import bz2
import gzip
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
# Reads a file in a process of its own, so that its peak of memory is that of the reading.
READ = """
import sys
from pathlib import Path
import duallgd_cli.spectra.reading.xml
from duallgd_cli.spectra.reading import Unreadable, read
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024
before = peak()
items = [
    f"{item.spectrum_id}: {item.failure.message if isinstance(item, Unreadable) else 'ok'}"
    for item in read(sys.argv[1])
]
print(peak() - before, *items, sep="\\n")
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
    "text.mzML": "an array of more than 32 MiB",
    "attribute.mzML": "its XML is broken",
    "many.mzML": "a spectrum of more than 100,000 elements",
    "deep.mzML": "Excessive depth",
}
SOUND_AFTER = ("mgf", "tsv", "zeros.mzML", "text.mzML")


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_would_fill_the_memory_says_so(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(BOMBS[name]())

    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
    )

    mib, *items = done.stdout.splitlines()
    assert int(mib) < MOST_MIB
    assert any(SAID.get(name, LONG) in item for item in items)
    if name.endswith(SOUND_AFTER):
        assert items[-1].endswith(": ok")
        assert len(items) == 2


@pytest.mark.parametrize(
    "content",
    [
        b"\n" * 65_000 + HEAD + b"41 3\nEND IONS\n",
        b"Name: a\nComments: =" + b"a" * (1 << 21) + b"\nNum Peaks: 1\n41 3\n",
        b"Name: a" + b" " * (1 << 21) + b"x\nNum Peaks: 1\n41 3\n",
        b">compound a" + b" " * (1 << 21) + b"x\n>ms2\n41 3\n",
    ],
    ids=["blank lines", "comment", "spaces", "spaces of SIRIUS"],
)
def test_no_text_takes_more_than_time_in_proportion(tmp_path, content):
    path = tmp_path / "a"
    path.write_bytes(content)

    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, check=True, timeout=30
    )

    assert done.stdout.strip().endswith(b": ok")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused(device):

    with pytest.raises(UnreadableError, match="is a device; name a file"):
        read(device)


def test_two_columns_of_one_name_are_refused(tmp_path):

    path = tmp_path / "a.tsv"
    path.write_text("mzs\tintensities\tformula\tFormula\n1\t1\tC\tN\n")

    with pytest.raises(UnreadableError, match="two columns 'formula'"):
        list(read(str(path)))
