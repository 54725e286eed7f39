"""NPLIB1 (Duehrkop et al., CANOPUS) in the layout of its release: labels, split, SIRIUS files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.evaluate.suites.published import NPLIB1
from duallgd_cli.evaluate.suites.suite import Row, Suite
from duallgd_cli.evaluate.tables import read_rows
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.types import Spectrum

LABELS: Final = "labels.tsv"
SPLIT: Final = Path("splits") / "canopus_hplus_100_0.tsv"
SPECTRA: Final = "spec_files"
_ADDUCT: Final = "[M+H]+"


def suite(data_dir: Path | None) -> Suite:
    """Find the benchmark in a folder with ``labels.tsv``, ``splits`` and ``spec_files``.

    Raises:
        MissingInputError: No folder is given, or a part of it is not there.
    """
    if data_dir is None:
        raise MissingInputError(
            "NPLIB1 is not downloaded automatically; unpack its release (labels.tsv, splits, "
            "spec_files) and give --data-dir"
        )
    for part in (LABELS, SPLIT, SPECTRA):
        if not (data_dir / part).exists():
            raise MissingInputError(
                f"{data_dir} has no {part}; NPLIB1 has {LABELS}, {SPLIT} and {SPECTRA}"
            )
    return Suite(
        title="NPLIB1",
        files=(data_dir / LABELS, data_dir / SPLIT),
        rows=lambda: _rows(data_dir),
        fold="test",
        published=NPLIB1,
    )


def _rows(folder: Path) -> Iterator[Row]:
    split = read_rows(folder / SPLIT, required=("name", "split"))
    fold = {row["name"]: row["split"] for row in split}
    for label in read_rows(folder / LABELS, required=("spec", "smiles", "formula")):
        name = label["spec"]
        if name in fold:
            yield _row(label, fold[name], _peaks(folder / SPECTRA / f"{name}.ms"))


def _row(label: Row, fold: str, spectrum: Spectrum) -> Row:
    return {
        "identifier": label["spec"],
        "mzs": ",".join(repr(float(value)) for value in spectrum.mz),
        "intensities": ",".join(repr(float(value)) for value in spectrum.intensity),
        "smiles": label["smiles"],
        "formula": label["formula"],
        "precursor_mz": "" if spectrum.precursor_mz is None else repr(spectrum.precursor_mz),
        "adduct": label.get("ionization") or spectrum.adduct_text or _ADDUCT,
        "instrument_type": label.get("instrument", ""),
        "collision_energy": "",
        "fold": fold,
    }


def _peaks(path: Path) -> Spectrum:
    """One spectrum with the peaks of every MS2 block, each block relative to its base peak.

    The release counts a file as one spectrum, however many collision energies it holds.
    """
    if not path.is_file():
        raise MissingInputError(f"{path} does not exist, though {LABELS} lists it")
    blocks = [
        block
        for block in read(str(path))
        if isinstance(block, Spectrum) and block.ms_level > 1 and block.mz.size
    ]
    if not blocks:
        raise UnreadableError(f"{path} holds no MS2 peaks")
    mz = np.concatenate([block.mz for block in blocks])
    intensity = np.concatenate([block.intensity / block.intensity.max() for block in blocks])
    order = np.argsort(mz, kind="stable")
    return Spectrum(
        source=blocks[0].source,
        spectrum_id=blocks[0].spectrum_id,
        mz=mz[order],
        intensity=intensity[order],
        precursor_mz=blocks[0].precursor_mz,
        adduct_text=blocks[0].adduct_text,
    )
