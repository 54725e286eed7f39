"""Ways to break files, and one loop for all kinds of broken input: what came of each."""

import bz2
import contextlib
import gzip
import io
import lzma
import random
import re
import sys
import zipfile
from collections import Counter
from functools import partial

from duallgd_cli import __main__
from duallgd_cli.errors import DuallgdError

_NUMBERS = (b"nan", b"-1", b"0", b"inf", b"1e308", b"-1e-300", b"1e6", b"2147483648", b"", b"1,5")
_WORDS = (
    b"END IONS", b"BEGIN IONS", b"PEPMASS=", b"PEPMASS=abc", b"CHARGE=2+", b"ADDUCT=[2M+H]+",
    b"ADDUCT=[M+H]+", b"FORMULA=", b"FORMULA=C999H999", b"FORMULA=PtCl2", b"FORMULA=((C6H6)",
    b"MSLEVEL=x", b"Num Peaks: 99999999", b"</spectrum>", b"<binary>", b"=", b"\t\t", b"\x00\x00",
    "TITLE=Пример µ 例 \u202e".encode(), b"\xff\xfe\xfa", b"\xef\xbb\xbf", b'"', b">compound",
    b"100.0", b"COLLISION_ENERGY=NaN eV", b"SMILES=CCO",
)  # fmt: skip
_PACKERS = {
    "gz": partial(gzip.compress, compresslevel=1, mtime=0),
    "xz": partial(lzma.compress, preset=0),
    "bz2": partial(bz2.compress, compresslevel=1),
}
_BOMB_BYTES = 1 << 25


def packed_as(ending, content, rng):
    """An archive of the content, whole or broken in ways that archives get broken.

    Once in a while it is one that unfolds to hundreds of megabytes.
    """
    if ending == "zip":
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("spectra", content)
        return _flip(stream.getvalue(), rng)
    pack, chance = _PACKERS[ending], rng.random()
    if chance < 0.01:
        return pack(content) + pack(bytes([rng.choice(b"0 \n\t1a")]) * _BOMB_BYTES) * 20
    if chance < 0.3:
        half = rng.randrange(len(content) + 1)
        between = rng.choice((b"", b"\0" * 99, b"\n", rng.randbytes(9)))
        return pack(content[:half]) + between + pack(content[half:])
    if chance < 0.4:  # packed again, by mistake, as the same or otherwise
        return _PACKERS[rng.choice(sorted(_PACKERS))](pack(content))
    return rng.choice((_flip, _cut, _cut, _splice, _splice, _splice))(pack(content), rng)


def mutate(content, rng):
    """Break a file's bytes in one to four ways; packed files also before packing."""
    if content[:2] == b"\x1f\x8b" and rng.random() < 0.7:
        return gzip.compress(mutate(gzip.decompress(content), rng), mtime=0)
    for _ in range(rng.randint(1, 4)):
        content = rng.choice(_WAYS)(content, rng)
    return content


def _flip(content, rng):
    broken = bytearray(content)
    for _ in range(rng.randint(1, 8) if broken else 0):
        broken[rng.randrange(len(broken))] = rng.randrange(256)
    return bytes(broken)


def _cut(content, rng):
    return content[: rng.randrange(len(content) + 1)]


def _splice(content, rng):
    """Some bytes are gone, or noise or a copy of what stood there comes between."""
    start = rng.randrange(len(content) + 1)
    gone, copied = rng.randint(1, 400), content[start : start + rng.randint(1, 600)]
    other, gone = rng.choice(((b"", gone), (rng.randbytes(rng.randint(1, 40)), 0), (copied, 0)))
    return content[:start] + other + content[start + gone :]


def _line(content, rng):
    """A line that means something stands where it does not belong, or in place of one."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at : at + rng.randint(0, 1)] = [rng.choice(_WORDS)]
    return b"\n".join(lines)


def _swap(content, rng):
    lines = content.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def _number(content, rng):
    """A number that nobody expects stands in place of another."""
    numbers = list(re.finditer(rb"[\d.]*\d[\d.]*", content))
    if not numbers:
        return content
    start, end = rng.choice(numbers).span()
    return content[:start] + rng.choice(_NUMBERS) + content[end:]


_WAYS = (
    _flip, _cut, _splice, _splice, _splice, _line, _line, _swap, _number, _number, _number,
)  # fmt: skip


def fuzz(count, seed, try_one):
    """Try `count` broken inputs; how often each outcome or error in a sentence came.

    Args:
        count: Of inputs.
        seed: A text; the same inputs for the same one.
        try_one: From a generator of random numbers to outcomes.

    Raises:
        Exception: A bug; a note tells with which input it can be had again.
    """
    seen = Counter()
    for number in range(count):
        try:
            seen.update(try_one(random.Random(f"{seed}:{number}")))
        except DuallgdError as error:
            assert_sentence(str(error))
            seen[type(error).__name__] += 1
        except BaseException as error:
            error.add_note(f"broken input {number} of seed {seed!r}")
            raise
    return seen


def assert_sentence(text):
    """A message is there, on one line, and of a length that somebody reads."""
    assert text.strip(), "an empty message"
    assert "\n" not in text, f"more than one line: {text!r}"
    assert len(text) < 600, f"too long: {text!r}"


def run(*arguments, codes):
    """`duallgd` in this process: its exit code, one of `codes`, with a sentence if it is not 0."""
    said = io.StringIO()
    argv, sys.argv = sys.argv, ["duallgd", *map(str, arguments)]
    try:
        with contextlib.redirect_stderr(said):
            __main__.main()
    except SystemExit as stopped:
        code = stopped.code or 0
    finally:
        sys.argv = argv
    assert code in codes, f"exit code {code}: {said.getvalue()}"
    if code:
        assert_sentence(said.getvalue().splitlines()[-1])
    return code
