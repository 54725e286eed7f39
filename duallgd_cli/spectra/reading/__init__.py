"""Reading spectra: any supported format, lazily, in order, one outcome for every record."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from duallgd_cli.errors import Failure, UnreadableError, counted
from duallgd_cli.files import DAMAGED, describe_damage
from duallgd_cli.spectra.reading import (
    mgf,
    msp,
    mzspeclib,
    sirius,
    spectrum_json,
    table,
    usi,
)
from duallgd_cli.spectra.reading.opening import FORMATS, Opened, open_input
from duallgd_cli.spectra.reading.record import Record, Unreadable, build, name_of
from duallgd_cli.spectra.types import Source, Spectrum

__all__ = ["FORMATS", "Unreadable", "read"]

_MOST_WAITING = 1000
_TEXT = {
    "mgf": mgf.records,
    "msp": msp.records,
    "ms": sirius.records,
    "tsv": table.records,
    "mzspeclib": mzspeclib.records,
}


def read(
    path: str, *, keep_structures: bool = False, raw: BinaryIO | None = None
) -> Iterator[Spectrum | Unreadable]:
    """Spectra of a file or of standard input (``-``), in the file's order.

    The format follows from the content: MGF, mzML, mzXML, MSP, SIRIUS ``.ms``, mzSpecLib, JSON of
    matchms or GNPS, or a table in the MassSpecGym layout, plain or packed by gzip, xz or bzip2.
    Every record gives exactly one item, MS1 blocks (``ms_level`` 1) included, those of mzXML before
    the MS2 scans that they enclose; a file that breaks off ends with one `Unreadable` that says
    where.

    Args:
        path: File, or ``-``.
        keep_structures: Keep SMILES, InChI and the like in ``metadata``. Only evaluation wants
            that; without it nothing about the answer can reach a prediction.
        raw: Seekable bytes to read in place of opening `path`, which then is a mere name; closed
            when they were read.

    Raises:
        MissingInputError: There is no such file. Raised by the call.
        UnreadableError: A folder, an empty or binary file or an unknown format, raised by the call;
            a file without a single record, raised on the first step.
    """
    opened = open_input(path, raw)
    spectra = _spectra(opened, keep_structures)
    return parents_first(spectra) if opened.format == "mzxml" else spectra


def _spectra(opened: Opened, keep_structures: bool) -> Iterator[Spectrum | Unreadable]:
    index = 0
    try:
        for record in _records(opened):
            yield build(record, Source(opened.file, index), keep_structures)
            index += 1
    finally:
        opened.close()
    if opened.damage:
        source = Source(opened.file, index)
        read_so_far = counted(index, "spectrum", "spectra")
        reason = f"the file ends early after {read_so_far}: {opened.damage}; restore the file"
        yield Unreadable(source, name_of(source), Failure("unreadable", reason, "read"))
    elif index == 0:
        name = "standard input" if opened.file == "-" else opened.file
        raise UnreadableError(f"{name} holds no spectrum, though it looks like {opened.format}")


def _records(opened: Opened) -> Iterator[Record]:
    if opened.format in _TEXT:
        yield from _TEXT[opened.format](opened.lines())
        return
    if opened.format == "json":
        yield from spectrum_json.records(opened.blocks())
        return
    if opened.format == "usi":
        yield from usi.records(opened.lines(), Path(opened.file).parent, _records_of)
        return
    from duallgd_cli.spectra.reading import xml  # lxml and pyteomics load only where needed

    reader = xml.mzml_records if opened.format == "mzml" else xml.mzxml_records
    try:
        yield from reader(opened.stream)
    except DAMAGED as error:
        opened.damage = describe_damage(error)
    except xml.BROKEN as error:
        opened.damage = f"its XML is broken ({' '.join(str(error).split())})"


def _records_of(path: Path) -> Iterator[Record]:
    """Records of a file that a list of identifiers names."""
    opened = open_input(str(path))
    try:
        if opened.format == "usi":
            raise UnreadableError(f"{path.name} is itself a list of identifiers")
        yield from _records(opened)
    finally:
        opened.close()


def parents_first(items: Iterable[Spectrum | Unreadable]) -> Iterator[Spectrum | Unreadable]:
    """The items of one file, each MS1 scan before the MS2 scans that name it as theirs.

    In mzXML an MS1 scan may enclose its MS2 scans and is read after them. Other items keep their
    order.
    """
    waiting: list[Spectrum | Unreadable] = []
    latest, is_patient = "", True
    for item in items:
        fields = item.metadata if isinstance(item, Spectrum) else {}
        parent = fields.get("precursor_scan", latest)
        if isinstance(item, Spectrum) and item.ms_level == 1:
            latest = item.scans
            yield item
            yield from waiting
            waiting = []
        elif waiting or (is_patient and parent != latest):
            waiting.append(item)
            if len(waiting) == _MOST_WAITING:  # the MS1 scans were filtered out of the file
                is_patient = False
                yield from waiting
                waiting = []
        else:
            yield item
    yield from waiting
