"""Large inputs for `load.py`, made from building blocks: nothing in them was measured.

A molecule is a scaffold with five places and a substituent at each. The same substituents in
another order, or on an isomeric scaffold, give isomers: what a run proposes for one feature. A
number stands for the same molecule in every file. Nothing here needs a network.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path

import numpy as np

from duallgd_cli import __version__, config
from duallgd_cli.chem.adduct import parse_adduct, precursor_mz
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import (
    canonical_smiles,
    family,
    inchi,
    inchikey_of,
    parse_smiles,
    scaffold,
)
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.config import SamplingSettings
from duallgd_cli.data.fragmentation import pieces
from duallgd_cli.data.molecular_graph import graph_of_bonds
from duallgd_cli.predict.journal import ENDING, Journal
from duallgd_cli.predict.settings import Header, PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.results import (
    ExplainedPeak,
    HypothesisResult,
    SpectrumReference,
    Structure,
)
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.types import Source

# Isomeric scaffolds with five places each.
_SCAFFOLDS = (
    ("c1({})c({})c({})c({})c(CO)c1{}", "c1({})c({})c({})c({})c(OC)c1{}"),
    ("O=c1c({})c({})oc2c({})c({})c({})cc12", "O=c1oc2c({})c({})c({})cc2c({})c1{}"),
    ("c1c({})nc2c({})c({})c({})cc2c1{}", "c1c({})c2cc({})c({})c({})c2c({})n1"),
    ("c1({})c({})c2c({})c({})cc({})c2n1C", "c1({})c2c({})c({})cc({})c2c({})n1C"),
    ("C1C({})C({})C({})N(C({})=O)C1{}", "C1C({})N({})C(=O)C({})C({})C1{}"),
    ("O=C(Nc1c({})cc({})cc1)c1c({})cc({})cc1{}", "O=C(c1c({})cc({})cc1)Nc1c({})cc({})cc1{}"),
    ("NC(C{})C(=O)NC(C{})C(=O)NC(C{})C(=O)NC(C{})C(=O)NC{}",),
    ("OC({})C1OC({})C({})C({})C1{}", "OC({})C1C({})OC({})C({})C1{}"),
    (
        "CC12CCC3C(CCC4CC({})CC({})C34C)C1C({})C({})C2{}",
        "CC12CCC3C(CC({})C4CC({})CCC34C)C1C({})C({})C2{}",
    ),
    ("CCC({})CC({})CCC({})CCCC({})CCC{}", "CC(C)C({})CC({})CC({})CCCC({})CCC{}"),
    (
        "O=c1cc(-c2cc({})c({})cc2)oc2c({})c({})cc({})c12",
        "O=c1c(-c2cc({})c({})cc2)coc2c({})c({})cc({})c12",
    ),
)
_SUBSTITUENTS = (
    *("O", "OC", "C", "CC", "N", "NC", "F", "Cl", "C(=O)O", "C(=O)OC", "C(N)=O", "OCC", "C(C)C"),
    *("CO", "SC", "C#N", "OC(C)=O", "NC(C)=O", "c9ccccc9", "C9CCCCC9", "c9ccc(O)cc9", "CCN", "CCO"),
    *("C(F)(F)F", "CCC(=O)O", "c9ccncc9", "CCCC", "OCc9ccccc9", "N(C)C", "C=C", "CC=C(C)C"),
)
_PLACES = 5
_BROKEN = ("C1CC", "c1ccccc", "CC(C", "N(C)(C)(C)C", "no molecule", "C[Xx]C", "[U]", "C")
_PROTON = np.eye(N_ELEMENTS, dtype=np.int64)[-1]
_PEAKS = (25, 15)  # of a spectrum: fragments of its molecule, and others
_ADDUCT = parse_adduct("[M+H]+")


def isomers(number: int) -> Iterator[str]:
    """SMILES of one formula without end, some of them of the same molecule."""
    draw = np.random.default_rng(number)
    scaffolds = _SCAFFOLDS[draw.integers(len(_SCAFFOLDS))]
    chosen = [_SUBSTITUENTS[place] for place in draw.permutation(len(_SUBSTITUENTS))[:_PLACES]]
    orders = list(permutations(chosen))
    for place, order in enumerate(draw.permutation(len(orders)).tolist()):
        yield scaffolds[place % len(scaffolds)].format(*orders[order])


def structures(number: int, most: int) -> list[Structure]:
    """What a run may have proposed for a feature: different molecules of one formula."""
    draw = np.random.default_rng(number)
    found: dict[str, Structure] = {}
    for smiles in isomers(number):
        mol = parse_smiles(smiles)
        names = canonical_smiles(mol), (name := inchi(mol)), inchikey_of(name)
        found.setdefault(
            names[2],
            Structure(
                *names,
                samples=1,
                repaired=0,
                log_likelihood=float(draw.normal(-20, 3)),
                scores={
                    "fingerprint_log_likelihood": float(draw.normal(-60, 9)),
                    "fingerprint_tanimoto": float(draw.beta(4, 6)),
                },
                sources=("enumerated",),
                family=family(mol),
                scaffold=scaffold(mol),
            ),
        )
        if len(found) == most:
            break
    return list(found.values())


def peaks(number: int, smiles: str) -> tuple[float, list[tuple[float, float, str]]]:
    """m/z of the protonated molecule; m/z, intensity and formula, "" if none, of its peaks."""
    draw = np.random.default_rng(number)
    whole = disassemble(parse_smiles(smiles))
    assert not isinstance(_ADDUCT, Exception)
    precursor = precursor_mz(whole.formula, _ADDUCT)
    counts = pieces(graph_of_bonds(whole.formula, whole.bond_class), draw, 40, 0).counts
    ions = dict.fromkeys(Formula(tuple(row)) for row in (counts.astype(int) + _PROTON).tolist())
    own = [ion for ion in ions if ion.atoms_mass > 40][: _PEAKS[0]]
    heights = np.round(draw.exponential(20, len(own) + _PEAKS[1]) + 0.5, 3).tolist()
    places = [round(ion.atoms_mass - ELECTRON_MASS_DA, 5) for ion in own]
    places += np.round(draw.uniform(40, precursor, _PEAKS[1]), 5).tolist()
    names = [*map(str, own), *[""] * _PEAKS[1]]
    return round(precursor, 5), sorted(zip(places, heights, names, strict=True))


def spectra(path: Path, count: int, *, named: bool = False) -> None:
    """Write an MGF file of the first molecules.

    Args:
        path: Of the file.
        count: Spectra.
        named: Whether each says its structure, as a library does.
    """
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(_block(number, next(isomers(number)), named))


def _block(number: int, smiles: str, named: bool = False) -> str:
    precursor, own = peaks(number, smiles)
    about = f"SMILES={smiles}\nNAME=made {number}\n" if named else f"FEATURE_ID={number}\n"
    lines = "".join(f"{mz:.5f} {height:.3f}\n" for mz, height, _ in own)
    return (
        f"BEGIN IONS\nPEPMASS={precursor:.5f}\nCHARGE=1+\nADDUCT=[M+H]+\nMSLEVEL=2\n"
        f"INSTRUMENT_TYPE=Orbitrap\n{about}{lines}END IONS\n\n"
    )


def molecules(path: Path, count: int, broken: float = 0.01) -> None:
    """Write a SMILES file of the first molecules.

    Args:
        path: Of the file.
        count: Rows.
        broken: Share of them that are no molecules, or none that can be used.
    """
    every = round(1 / broken) if broken else count + 1
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            is_broken = number % every == every - 1
            smiles = _BROKEN[number // every % len(_BROKEN)] if is_broken else next(isomers(number))
            file.write(f"{smiles} made-{number}\n")


def run(folder: Path, features: int, candidates: int, shards: int = 1) -> Path:
    """Write spectra and the journals of a finished run over them.

    Args:
        folder: Empty; ``made.mgf`` and the journals of ``out.csv`` are written there.
        features: How many.
        candidates: Structures of each.
        shards: Journals.

    Returns:
        The output that the journals are of, which is not written.
    """
    source, output = folder / "made.mgf", folder / "out.csv"
    spectra(source, features)
    settings = PredictSettings(sampling=SamplingSettings(samples=candidates))
    model = {"name": "made", "sha256": "0" * 64, "engine": "torch"}
    ranking = config.dump(RankingModel())
    with Inputs((str(source),)) as inputs, ExitStack() as stack:
        about = (__version__, config.dump(settings), {**model, "ranking": ranking})
        journals = []
        for shard in range(1, shards + 1):
            part = f".shard-{shard}-of-{shards}" if shards > 1 else ""
            header = Header(*about, inputs.identity(), f"{shard}/{shards}")
            path = folder / f"{output.name}{part}{ENDING}"
            journals.append(stack.enter_context(Journal.create(path, header)))
        for number in range(features):
            journals[number % shards].append([_result(number, candidates, source)])
        for journal in journals:
            journal.finish({"cases": features, "ms1": 0})
    return output


def _result(number: int, candidates: int, source: Path) -> HypothesisResult:
    found = structures(number, candidates)
    precursor, own = peaks(number, next(isomers(number)))
    highest = max(height for _, height, _ in own)
    explained = tuple(
        ExplainedPeak(*np.array([mz, height / highest], np.float32).tolist(), ion, 0.5)
        for mz, height, ion in own
        if ion
    )
    formula = disassemble(parse_smiles(found[0].smiles)).formula
    return HypothesisResult(
        status="ok",
        formula=str(formula),
        adduct="[M+H]+",
        n_heavy=formula.n_heavy,
        structures=tuple(found),
        sampled=len(found),
        assembled=len(found),
        distinct=len(found),
        n_peaks=len(own),
        n_explained=len(explained),
        explained_intensity=0.75,
        peaks=explained,
        feature=number,
        spectra=(
            SpectrumReference(
                Source(str(source), number),
                spectrum_id=str(number),
                feature_id=str(number),
                precursor_mz=precursor,
                adduct_text="[M+H]+",
            ),
        ),
    )
