"""What a weights file holds beside its network: templates, a re-ranker, the list of its molecules.

All are made of fold train. Whatever is added drops the ranking: `duallgd calibrate` fits another.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from duallgd_cli.checkpoint import format as weights_format
from duallgd_cli.data.prepared import load_molecules, load_spectra, read_manifest
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.scores import known_environments
from duallgd_cli.sources.collection import Collection, known_molecules, mols_of
from duallgd_cli.train.fragment_scorer import decoys_of, fit_evidence, one_of_each
from duallgd_cli.train.isomer_encoder import fit_isomer_encoder
from duallgd_cli.train.kernel_fit import fit_kernel

# Shows a count of what it is given the name of, while its block runs.
Counting: TypeAlias = Callable[[str], AbstractContextManager[Callable[[int], None]]]


def add_templates(
    weights: Path,
    molecules: Path,
    output: Path,
    counting: Counting,
    *,
    structures: Path | None = None,
    max_atoms: int = 100,
) -> dict[str, int]:
    """Add known molecules to a weights file: templates, building blocks, spectra to compare with.

    They are those of fold train of a prepared folder, up to a number of heavy atoms; of a folder of
    spectra fragments and losses come too, of structures the building blocks that are frequent.

    Returns:
        Number of templates, of fragments and losses, and of building blocks.
    """
    checkpoint = weights_format.load(weights)
    others = None if structures is None else load_molecules(structures)
    with counting("molecules cut into building blocks") as advance:
        known = known_molecules(load_molecules(molecules), max_atoms, others, advance)
    kernel = {}
    if read_manifest(molecules).get("kind") == "spectra":
        kernel = fit_kernel(checkpoint.build().encoder, load_spectra(molecules), known.molecules)
    added = replace(checkpoint, templates=known.tensors(), kernel=kernel, ranking={})
    weights_format.save(output, added)
    return {
        "templates": len(known.molecules),
        "fragments and losses": len(kernel["place"]) if kernel else 0,
        "building blocks": len(known.blocks.smiles),
    }


def add_reranker(
    weights: Path,
    structures: Path,
    spectra: Path,
    output: Path,
    counting: Counting,
    *,
    steps: int = 2500,
    contrast_steps: int = 450,
    seed: int = 1,
) -> dict[str, Any]:
    """Add substructure priors, and what tells a molecule from others of its formula by its peaks.

    The priors are those of prepared structures. A fragment model is fitted to prepared spectra;
    where the weights hold templates, it and a copy of the encoder learn to tell each molecule from
    decoys that are made of these.

    Returns:
        What is kept on record of the fits.
    """
    checkpoint = weights_format.load(weights)
    known, measured = load_molecules(structures), load_spectra(spectra)
    decoys: dict[int, Any] = {}
    contrast, isomers = dict[str, Any](), dict[str, Any]()
    if checkpoint.templates:
        templates, encoder = Collection.of(checkpoint.templates), checkpoint.build().encoder
        with counting("molecules with their rivals") as advance:
            for number in (seed, seed + 1):  # two spectra of each, doubted in two ways
                for spectrum in one_of_each(measured, number):
                    row = int(measured.molecule[spectrum])
                    made = decoys_of(measured, spectrum, encoder, templates, number)
                    decoys[row] = (*(decoys.get(row) or made[:1]), *made[1:])
                    advance(1)
        with counting("steps of the contrastive encoder") as advance:
            contrast, isomers = fit_isomer_encoder(
                encoder, measured, decoys, seed, advance, steps=contrast_steps
            )
    with counting("structures") as advance:
        rows = np.flatnonzero(known.in_folds("train"))
        seen = known_environments(mols_of(known, rows, advance))
    with counting("steps of the fragment model") as advance:
        tensors, fitted = fit_evidence(known, seen, measured, decoys, steps, seed, advance)
    described = {**fitted, **isomers}
    record = {**checkpoint.record, "evidence": described}
    asking = replace(checkpoint, reranker=tensors, contrast=contrast, record=record, ranking={})
    weights_format.save(output, asking)
    return described


def training_molecules(
    folders: Sequence[Path], max_atoms: int = 100, also: Iterable[Path] = ()
) -> TrainingHashes:
    """Molecules of fold train of prepared folders, as hashes, with those of other lists.

    Larger ones than the heavy atoms say were not trained on.
    """
    before = [TrainingHashes.read(path) for path in also]
    keys: list[str] = []
    for folder in folders:
        molecules = load_molecules(folder)
        trained = molecules.in_folds("train") & (molecules.n_heavy <= max_atoms)
        keys += [key.decode("ascii") for key in molecules.inchikey[trained].tolist()]
    listed = TrainingHashes.of(keys)
    for earlier in before:
        listed = listed.joined(earlier)
    return listed
