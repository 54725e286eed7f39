"""Molecules drawn for a page: small SVG in the page's own colours, alike ones turned alike.

RDKit lays out and draws. What it writes is reduced to paths with classes, so that a style sheet
decides the colours (light, dark, print), and comes with the places of the atoms, so that a page can
mark some of them.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdDepictor
from rdkit.Chem.Draw import rdMolDraw2D

from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import Mol
from duallgd_cli.chem.parts import ring_atoms
from duallgd_cli.errors import MoleculeError

_PATH: Final = re.compile(
    r"<path\b[^>]*?\bd='(?P<shape>[^']*)'\s*"
    r"(?:style='[^'>]*stroke:#(?P<stroke>\w{6})|fill='#(?P<fill>\w{6})')"
)
_BOX: Final = re.compile(r"viewBox='0 0 (\d+) (\d+)'")
_MOST_CORES: Final = 12


def depictions(smiles: Sequence[str]) -> list[dict[str, Any] | None]:
    """Drawings of molecules, each turned like the first one wherever they share a ring system.

    Args:
        smiles: Best first.

    Returns:
        For each: ``box`` (width, height), ``paths`` (class, shape), ``atoms`` (x, y) in
        RDKit's order and ``bonds`` (two atoms each) in theirs; None for what is no molecule.
    """
    molecules = [_read(text) for text in smiles]
    first = next((mol for mol in molecules if mol is not None), None)
    cores = [] if first is None else _cores(first)
    return [None if mol is None else _drawn(_laid_out(mol, first, cores)) for mol in molecules]


def _read(smiles: str) -> Mol | None:
    try:
        return parse_smiles(smiles)
    except MoleculeError:
        return None


def _cores(first: Mol) -> list[Mol]:
    """Pieces of a molecule that others may share, largest first: elements and bond types alone."""
    rdDepictor.Compute2DCoords(first)
    rings = sorted((tuple(sorted(ring)) for ring in first.GetRingInfo().AtomRings()), key=len)
    joined = (tuple(sorted(atoms)) for atoms in ring_atoms(first))
    systems = sorted(joined, key=lambda atoms: (-len(atoms), atoms))
    atom_sets = list(dict.fromkeys([_framework(first), *systems, *reversed(rings)]))
    symbols = [f"[#{atom.GetAtomicNum()}]" for atom in first.GetAtoms()]
    pieces = (
        Chem.MolFragmentToSmiles(first, atoms, atomSymbols=symbols, allBondsExplicit=True)
        for atoms in atom_sets[:_MOST_CORES]
        if atoms
    )
    return [Chem.MolFromSmarts(piece) for piece in pieces]


def _framework(mol: Mol) -> tuple[int, ...]:
    """Atoms of the rings and of what joins them: what is left when ends are cut off (Murcko)."""
    bonded = {a.GetIdx(): {n.GetIdx() for n in a.GetNeighbors()} for a in mol.GetAtoms()}
    while ends := [atom for atom, others in bonded.items() if len(others) < 2]:
        for end in ends:
            for other in bonded.pop(end):
                bonded[other].discard(end)
    return tuple(sorted(bonded))


def _laid_out(mol: Mol, first: Mol | None, cores: Sequence[Mol]) -> Mol:
    """The molecule with places: those of the first molecule for the largest core they share."""
    if mol is first:
        return mol
    for core in cores:
        match = mol.GetSubstructMatch(core)
        if match and first is not None:
            pairs = list(zip(first.GetSubstructMatch(core), match, strict=True))
            try:
                rdDepictor.GenerateDepictionMatching2DStructure(mol, first, pairs)
            except (RuntimeError, ValueError):  # a core that RDKit cannot lay the rest around
                continue
            return mol
    rdDepictor.Compute2DCoords(mol)
    return mol


def _drawn(mol: Mol) -> dict[str, Any]:
    canvas = rdMolDraw2D.MolDraw2DSVG(-1, -1)
    options: Any = canvas.drawOptions()  # its types deny that fields can be set
    options.clearBackground = False
    options.padding = 0.06
    options.bondLineWidth = 2
    options.multipleBondOffset = 0.16
    options.baseFontSize = 0.72
    options.minFontSize = 13
    options.prepareMolsBeforeDrawing = False
    prepared = rdMolDraw2D.PrepareMolForDrawing(mol, kekulize=True, addChiralHs=False)
    canvas.DrawMolecule(prepared)
    canvas.FinishDrawing()
    text = canvas.GetDrawingText()
    box = _BOX.search(text)
    places = [canvas.GetDrawCoords(atom) for atom in range(mol.GetNumAtoms())]
    return {
        "box": [int(box[1]), int(box[2])] if box else [100, 100],
        "paths": [_path(match) for match in _PATH.finditer(text)],
        "atoms": np.round([[at.x, at.y] for at in places], 1).tolist(),
        "bonds": sorted(sorted((b.GetBeginAtomIdx(), b.GetEndAtomIdx())) for b in mol.GetBonds()),
    }


def _path(match: re.Match[str]) -> list[str]:
    """Class and shape: ``s`` is a line, ``f`` is filled, and the colour names the element."""
    colour = (match["fill"] or match["stroke"]).upper()
    return [f"{'f' if match['fill'] else 's'} c{colour}", match["shape"]]
