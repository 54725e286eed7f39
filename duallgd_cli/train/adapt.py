"""`duallgd train --adapt`: weights that know a laboratory's own standards.

The standards become templates with their building blocks and spectra, as those of fold train are.
Of enough of them, drawn with the weights that do not know them yet, the confidence is fitted anew,
of more the ranking too. The network stays as it is.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.chem.building_blocks import OPEN, BuildingBlocks
from duallgd_cli.data.prepared import join, load_spectra
from duallgd_cli.data.spectra import gather_spectra, prepare_spectra
from duallgd_cli.errors import UnreadableError, WeightsError, counted
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.files import sha256
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.runtime import Runtime, available_cores
from duallgd_cli.sources.collection import Collection, known_molecules
from duallgd_cli.train.encoder import known_spectra
from duallgd_cli.train.recipe import HASHES_ENDING, LARGEST_TEMPLATE
from duallgd_cli.train.run import Displays, fit_known, predict_known
from duallgd_cli.train.settings import DrawSettings

FEWEST_SPECTRA: Final = 20
# Molecules from which the confidence is fitted anew, and from which the order of candidates is.
ENOUGH_FOR_CONFIDENCE: Final = 100
ENOUGH_FOR_RANKING: Final = 300


def adapt(
    standards: Path,
    weights: Path,
    out: Path,
    runtime: Runtime,
    shows: Displays,
    seed: int = 1,
    draw: DrawSettings | None = None,
) -> None:
    """Write weights that know the standards; the same call goes on with an interrupted one.

    Standards are a file of labelled spectra, or a folder of such. A folder of the name of the new
    weights beside them keeps what was drawn, to fit the confidence.

    Raises:
        UnreadableError: There are too few labelled spectra.
        WeightsError: The weights hold no templates.
    """
    work, checkpoint = out.with_suffix(".adapt"), load(weights)
    if not checkpoint.templates or not checkpoint.kernel:
        raise WeightsError(
            f"weights {weights} hold no templates with spectra that others could be added "
            "to; use some that 'duallgd train' made by a recipe, or those that come with duallgd"
        )
    work.mkdir(parents=True, exist_ok=True)
    table = work / "standards.tsv"
    counts = gather_spectra([standards], table, work / "held-out.keys")
    shows.say(", ".join(f"{count} {what}" for what, count in counts.items()))
    with shows.counting("spectra") as advance:
        prepare_spectra(table, work / "standards", advance=advance)
    spectra = load_spectra(work / "standards")
    if len(spectra) < FEWEST_SPECTRA:
        usable = counted(len(spectra), "usable spectrum", "usable spectra")
        raise UnreadableError(
            f"{standards} has {usable}; give "
            f"{FEWEST_SPECTRA} or more, {work / 'report.tsv'} says why others were left out"
        )
    earlier = Collection.of(checkpoint.templates)
    is_new = ~np.isin(spectra.molecules.inchikey, earlier.molecules.inchikey)
    fresh = spectra.molecules.take(np.flatnonzero(is_new & spectra.molecules.in_folds("train")))
    if len(fresh) < ENOUGH_FOR_CONFIDENCE:
        shows.say(
            f"ranking and confidence stay: {counted(len(fresh), 'molecule')} that the weights do "
            f"not know, {ENOUGH_FOR_CONFIDENCE} are enough for the confidence and "
            f"{ENOUGH_FOR_RANKING} for the ranking"
        )
    else:  # the standards are drawn as if they were unknown
        keep = len(fresh) < ENOUGH_FOR_RANKING
        predict_known(
            table, "train", weights, work / "drawn", draw or DrawSettings(),
            PredictSettings(seed=seed), runtime, shows,
        )  # fmt: skip
        checkpoint, held = fit_known(checkpoint, [work / "drawn"], keep_ranking=keep)
        shows.say(
            f"{'confidence' if keep else 'ranking and confidence'} fitted to {len(fresh)} "
            f"molecules, {held}"
        )
    if len(fresh):
        with shows.counting("molecules cut into building blocks") as advance:
            added = known_molecules(fresh, LARGEST_TEMPLATE, None, advance, available_cores())
        kernel = known_spectra(spectra, added.molecules)
        names = ("n_places", "place", "weight")
        joined = {name: torch.cat([checkpoint.kernel[name], kernel[name]]) for name in names}
        both = join(earlier.molecules, added.molecules)
        collection = Collection(both, merged(earlier.blocks, added.blocks))
        checkpoint = replace(
            checkpoint, templates=collection.tensors(), kernel={**checkpoint.kernel, **joined}
        )
    described = {
        "spectra": len(spectra),
        "molecules": len(spectra.molecules),
        "new_molecules": len(fresh),
        "sha256": sha256(table),
        "from": sha256(weights),
    }
    record = {**checkpoint.record, "adapted": described}
    before, after = (path.with_suffix(HASHES_ENDING) for path in (weights, out))
    if before.is_file():
        own = TrainingHashes.of([key.decode() for key in spectra.molecules.inchikey.tolist()])
        TrainingHashes.read(before).joined(own).write(after)
    else:  # a list of the standards alone would call all other training molecules new
        after.unlink(missing_ok=True)
        shows.say(
            f"there is no list of training molecules {before}, so none is written of {out} and "
            "evaluations will not check overlap; copy it there and adapt again to have one"
        )
    save(out, replace(checkpoint, record=record), torch.float16, short_codes=True)
    shows.say(f"{counted(len(fresh), 'molecule')} more in {out}")


def merged(first: BuildingBlocks, second: BuildingBlocks) -> BuildingBlocks:
    """Blocks of two collections, ends before linkers, the most frequent first."""
    seen = Counter[str]()
    described: dict[str, tuple[NDArray[np.uint8], NDArray[np.uint16]]] = {}
    for blocks in (first, second):
        bits = np.split(blocks.bits, np.cumsum(blocks.n_bits, dtype=np.int64))[:-1]
        seen.update(dict(zip(blocks.smiles, blocks.seen.tolist(), strict=True)))
        described |= dict(zip(blocks.smiles, zip(blocks.counts, bits, strict=True), strict=True))
    order = sorted(seen, key=lambda smiles: (smiles.count(OPEN), -seen[smiles], smiles))
    counts, of_bits = zip(*(described[smiles] for smiles in order), strict=True)
    return BuildingBlocks(
        tuple(order),
        np.stack(counts),
        np.array([seen[smiles] for smiles in order], np.int32),
        np.array(list(map(len, of_bits)), np.uint16),
        np.concatenate(of_bits),
    )
