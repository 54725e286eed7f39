"""Structures as text (SMILES files, tables, SDF) to a prepared folder; needs rdkit, once.

Hold-out lists name molecules, by InChIKey first block, that never reach training.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from pathlib import Path
from typing import IO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import (
    BLOCK_LENGTH,
    fingerprint,
    inchikey_block,
    parent,
    parse_smiles,
    salts,
    smiles_of_inchi,
)
from duallgd_cli.chem.molecule import disassemble, formula_of, usable
from duallgd_cli.chem.valence import MolecularGraph
from duallgd_cli.data.prepared import FOLDS, Screen, in_blocks, offsets, write_blocks
from duallgd_cli.errors import MoleculeError, UnreadableError, bare, clip, quote
from duallgd_cli.files import DAMAGED, damaged, open_text, sha256, unpacked_name
from duallgd_cli.runtime import available_cores, in_order
from duallgd_cli.spectra.reading.record import canonical, is_missing
from duallgd_cli.tables import Line, column, plain, table_lines

_LONGEST_BLOCK: Final = 100_000  # characters of an SDF's atoms and bonds: some 1,000 of each
ON_HOLDOUT: Final = "on the hold-out list"
_TABLES: Final = frozenset({".tsv", ".csv", ".tab"})
_LISTS: Final = frozenset({".smi", ".smiles", ".txt"})
_MOL_BLOCKS: Final = frozenset({".sdf", ".sd", ".mol"})
# What else a table says, by names as `tables.plain` gives them: the first that is there counts.
_ABOUT: Final = (
    (
        *("name", "compoundname", "compoundnames", "cmpdname", "preferredname", "commonname"),
        *("structurenametraditional", "traditionalname", "title", "iupacname", "identifier"),
        *("chemblid", "coconutid", "lotusid", "npaid", "accession", "id", "cid", "compoundcid"),
    ),
    ("featureid", "feature"),
    ("fold",),
)
logger = logging.getLogger(__name__)
_FEATURE_OF_SDF: Final = re.compile(r"^> .*<feature_id>.*\n(.*)", re.MULTILINE | re.IGNORECASE)


# How tables call a column of structures, as `tables.plain` gives names. Sure are these, as PubChem,
# ChEMBL, COCONUT, LOTUS, HMDB, the NP Atlas, NORMAN and CompTox write them: the first that is there
# counts. Any other name may be one that holds the first of them, unless it holds what names a key,
# a scaffold or a form made for models.
_SMILES: Final = (
    *("smiles", "canonicalsmiles", "isomericsmiles", "connectivitysmiles", "isosmiles"),
    *("structuresmiles", "compoundsmiles", "moldbsmiles", "cansmiles", "cleansmiles"),
    *("uniquesmiles", "absolutesmiles", "openeyesmiles", "rdkitsmiles"),
)
_INCHI: Final = (
    *("inchi", "standardinchi", "stdinchi", "inchistring", "inchicode", "structureinchi"),
    *("compoundinchi", "inchiidentifier", "moldbinchi"),
)
_UNLIKELY: Final = {
    "smiles": "murcko|scaffold|sugar|fragment|deepsmiles|selfies|parent|product|reactant",
    "inchi": "key|aux|source|id$|hash",
}


@dataclass(frozen=True, slots=True)
class StructureRow:
    """One line of a structure file."""

    smiles: str
    fold: str
    line: int
    name: str = ""
    feature_id: str = ""  # the feature that it is an analogue of, where a file says so
    fault: str = ""  # why the row cannot be read, where it cannot
    salt: str = ""  # SMILES as it was given where `smiles` is that of the parent

    def without_salt(self) -> "StructureRow":
        """The row with the parent of a salt."""
        smiles = parent(self.smiles)
        return self if smiles == self.smiles else replace(self, smiles=smiles, salt=self.smiles)


class PreparedMolecule(NamedTuple):
    """One molecule of the arrays of `data.prepared`, still apart from the others."""

    formula: Formula  # of all its atoms, with its charge
    graph: MolecularGraph
    bits: NDArray[np.uint16]
    inchikey: str  # first block


def prepare_structures(
    sources: Sequence[Path],
    out: Path,
    holdout: frozenset[str] = frozenset(),
    advance: Callable[[int], None] = lambda rows: None,
) -> dict[str, object]:
    """Prepare structure files for the decoder, one molecule a first block; return the manifest.

    First blocks of the hold-out are left out and counted; ``report.tsv`` lists rejected rows.
    """
    rows, named = chain.from_iterable(map(read_rows, sources)), ", ".join(map(str, sources))
    done, screen, n_salts = set[str](), Screen(), 0

    def kept() -> Iterator[tuple[PreparedMolecule, int]]:
        nonlocal n_salts
        for row, result in in_order(_prepare_row, rows, available_cores()):
            if isinstance(result, PreparedMolecule) and result.inchikey in holdout:
                result = ON_HOLDOUT
            elif isinstance(result, PreparedMolecule) and result.inchikey in done:
                result = "InChIKey block seen above"
            if isinstance(result, str):
                screen.refuse(result, row.line, row.smiles, result)
            else:
                done.add(result.inchikey)
                n_salts += bool(row.salt)
                yield result, FOLDS.index(row.fold)
            advance(1)
        if not done:
            raise UnreadableError(f"{named} holds no structure that can be used; see its columns")

    def blocks() -> Iterator[Mapping[str, NDArray[np.generic]]]:
        for block in in_blocks(kept()):
            molecules, folds = zip(*block, strict=True)
            yield pack(molecules) | {"fold": np.asarray(folds, np.uint8)}

    def record() -> dict[str, object]:
        return {
            "kind": "structures",
            "source": {
                "file": ", ".join(path.name for path in sources),
                "sha256": ", ".join(map(sha256, sources)),
            },
            "molecules": len(done),
            "salts": n_salts,
            "rejected": screen.counts(),
            "holdout_keys": len(holdout),
            "holdout_removed": screen.reasons[ON_HOLDOUT],
        }

    manifest = write_blocks(out, blocks(), record)
    screen.write(out / "report.tsv", "line", "smiles", "reason")
    if n_salts:
        logger.warning("%s: %s", named, salts(n_salts))
    return manifest


def read_holdout(paths: Sequence[Path]) -> frozenset[str]:
    """Read lists of molecules: InChIKeys or their first blocks, or structures.

    A text has a key a line, and ``#`` starts a comment; tables, SMILES lists and SDF have
    structures. A line that names no molecule is refused.
    """
    keys: set[str] = set()
    for path in paths:
        for number, key in _held_out(path):
            block = key[:BLOCK_LENGTH]
            if not (len(block) == BLOCK_LENGTH and block.isalpha() and block.isupper()):
                raise UnreadableError(
                    f"{path}:{number} is neither an InChIKey nor a molecule: {quote(key)}; correct "
                    "or remove the line, and name a list of SMILES .smi"
                )
            keys.add(block)
    return frozenset(keys)


def _held_out(path: Path) -> Iterator[tuple[int, str]]:
    """Number of each line of a hold-out list, and its InChIKey; what is no molecule as it is.

    Of a mixture all molecules are held out.
    """
    if _ending(path) in _TABLES | _MOL_BLOCKS | (_LISTS - {".txt"}):
        for row in read_rows(path):
            try:
                mol = parse_smiles(row.without_salt().smiles)
                for piece in Chem.GetMolFrags(mol, asMols=True):
                    yield row.line, row.fault or inchikey_block(piece)
            except MoleculeError:
                yield row.line, row.smiles
        return
    with open_text(path) as stream:
        for number, text in enumerate(stream, 1):
            key = text.partition("#")[0].strip()
            if key and not (number == 1 and plain(key) == "inchikey"):
                yield number, key


def _ending(path: Path) -> str:
    """How the name of a file ends once it is unpacked."""
    return Path(unpacked_name(path)).suffix.lower()


def prepare_molecule(mol: Chem.Mol) -> PreparedMolecule:
    """Atoms, bonds and fingerprint of one sanitised molecule without stereo; see `_prepare_row`."""
    graph, _ = disassemble(mol)
    return PreparedMolecule(formula_of(mol), graph, fingerprint(mol), inchikey_block(mol))


def pack(molecules: Sequence[PreparedMolecule]) -> dict[str, NDArray[np.generic]]:
    """Join molecules into the arrays of `data.prepared.Molecules`, but for their folds."""
    graphs = [m.graph for m in molecules]
    return {
        "atom_counts": np.stack([m.formula.array for m in molecules]).astype(np.uint8),
        "charge": np.asarray([m.formula.charge for m in molecules], np.int8),
        "bond_offset": offsets(len(graph.pair) for graph in graphs),
        "bond_pair": np.concatenate([graph.pair for graph in graphs]).astype(np.uint8),
        "bond_type": np.concatenate([graph.bond_class for graph in graphs]).astype(np.uint8),
        "bit_offset": offsets(len(m.bits) for m in molecules),
        "bits": np.concatenate([m.bits for m in molecules]),
        "inchikey": np.asarray([m.inchikey.encode("ascii") for m in molecules], "S14"),
    }


def structure_of(metadata: Mapping[str, str]) -> str:
    """SMILES of a spectrum's structure, or of its InChI; "" where it has none."""
    fields = canonical(metadata)
    texts = (fields.get(name, "").strip().strip('"') for name in ("smiles", "inchi"))
    smiles, inchi = ("" if is_missing(text) else text for text in texts)
    return smiles or smiles_of_inchi(inchi)


def warn_of_feature_ids(path: str | Path) -> None:
    """Say that rows count for every feature, although some name one: that is for analogues."""
    logger.warning(
        "%s: its feature_id is not looked at, every structure counts for every feature; it counts "
        "with --analogues alone",
        path,
    )


def read_rows(source: Path) -> Iterator[StructureRow]:
    """Yield the rows of a structure file in order, by its ending; a table by its column names too.

    Of no known format, without a column of structures, or broken, it is an UnreadableError.
    """
    ending = _ending(source)
    header = next(table_lines(source), None) if ending in _LISTS else None
    # A list too may have names of columns, which tabs, semicolons or commas divide.
    names = set(map(plain, header.cells)) if header is not None else set()
    if ending in _TABLES or (len(names) > 1 and names & {*_SMILES, *_INCHI}):
        yield from _table_rows(source)
        return
    with open_text(source) as stream:
        try:
            if ending in _MOL_BLOCKS:
                yield from _sdf_rows(stream)
            elif ending not in _LISTS:
                message = f"{source} is not .tsv, .csv, .smi or .sdf; convert it first"
                raise UnreadableError(message)
            for line, text in enumerate(stream, 1):  # what follows the first blank is the name
                smiles, *name = text.split(maxsplit=1) or [""]
                if smiles and not (line == 1 and plain(smiles) in _SMILES):
                    yield StructureRow(smiles, "train", line, "".join(name).strip())
        except DAMAGED as error:
            raise UnreadableError(damaged(source, error)) from None


def _table_rows(source: Path) -> Iterator[StructureRow]:
    lines = table_lines(source, {*_SMILES, *_INCHI})
    written = next(lines, Line(1, ())).cells
    smiles, inchi = (_structures(source, written, usual) for usual in (_SMILES, _INCHI))
    if smiles is None and inchi is None:
        shown = clip(", ".join(written)) or "no columns"
        raise UnreadableError(f"{source} has no column smiles or inchi; it has {shown}")
    used = [column(source, written, which) for which in _ABOUT]
    for line in lines:
        name, feature_id, fold = ("" if at is None else bare(line.cells[at]) for at in used)
        text = "" if smiles is None else line.cells[smiles]
        if not text and inchi is not None and not line.fault:
            text = smiles_of_inchi(line.cells[inchi])
        yield StructureRow(text, fold.lower() or "train", line.number, name, feature_id, line.fault)


def _structures(source: Path, written: Sequence[str], usual: Sequence[str]) -> int | None:
    """Index of a table's column of structures with one of the usual names or a likely one, if any.

    There may be several that are likely, of which none is the usual one: they are refused.
    """
    names, what = [plain(name) for name in written], usual[0]
    if (at := column(source, written, usual)) is not None:
        return at
    is_likely = [what in name and not re.search(_UNLIKELY[what], name) for name in names]
    if sum(is_likely) > 1:
        shown = clip(", ".join(compress(written, is_likely)))
        raise UnreadableError(
            f"{source} has several columns of structures: {shown}; rename the one that is "
            f"meant to {what}"
        )
    return is_likely.index(True) if any(is_likely) else None


def _sdf_rows(stream: IO[str]) -> Iterator[StructureRow]:
    start, lines = 1, list[str]()
    # The last record may lack its delimiter, as a file of one molecule often does.
    for line, text in enumerate(chain(stream, ["$$$$"]), 1):
        if not text.startswith("$$$$"):
            lines.append(text)
            continue
        record = "".join(lines)
        if record.strip() or text != "$$$$":
            end = record.find("M  END")
            is_long = (len(record) if end < 0 else end) > _LONGEST_BLOCK
            with rdBase.BlockLogs():
                mol = None if is_long else Chem.MolFromMolBlock(record)
            feature = _FEATURE_OF_SDF.search(record)
            smiles, name = Chem.MolToSmiles(mol) if mol else "", record.partition("\n")[0].strip()
            yield StructureRow(smiles, "train", start, name, feature[1].strip() if feature else "")
        start, lines = line + 1, []


def _prepare_row(row: StructureRow) -> tuple[StructureRow, PreparedMolecule | str]:
    """A row with its molecule, or with the reason why it is none."""
    if row.fault or row.fold not in FOLDS:
        return row, row.fault or "unknown fold"
    try:
        row = row.without_salt()
        return row, prepare_molecule(usable(row.smiles))
    except MoleculeError as error:
        return row, error.reason
