"""What each source of candidates is worth.

    python examples/studies/sources.py massbank.tsv --fold val --molecules 60 -o sources

Predicts one spectrum of each molecule of a labelled table (the MassSpecGym layout, as `duallgd
evaluate --benchmark` takes it; the formula is given, the structure is not) with all sources at the
quotas of `duallgd predict` and with each of them alone at its own. Of the latter what is left
without a source is put together. Molecules that the weights were trained on are left out. Each run
has a folder in the output, and the same command goes on. (What each score is worth: `scores.py`.)

The tables are Markdown: of all molecules, and of those of like size. "log p" is the mean
log-probability that is stated for the true molecule, at least that of 1 in 10,000, so that one that
was not proposed counts as such. Behind each figure is the mean of the paired differences to all
sources, with its standard error. Seconds are those of the processor.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log, nan
from pathlib import Path
from typing import Annotated, Final, TextIO

import command
import numpy as np
import typer
from numpy.typing import NDArray

from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.config import SamplingSettings, parse_quotas
from duallgd_cli.evaluate.run import PREDICTIONS, inputs_of, predict_inputs
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Truth
from duallgd_cli.predict import api
from duallgd_cli.predict.journal import read
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.ranking.ranking import FIRST, RankingModel, rank
from duallgd_cli.results import FeatureResult, HypothesisResult, Structure
from duallgd_cli.runtime import Runtime

ALL: Final = "all"
SECONDS: Final = "cpu_s.txt"
_LEAST: Final = 1e-4  # probability of a true molecule that was not proposed, or is given less
_HEADER: Final = ("arm", "found", "first", "first 10", "log p", "CPU-s a spectrum")


class Clock:
    """Notes the processor time of every spectrum as it is finished, in a file that may go on."""

    def __init__(self, name: str, file: TextIO) -> None:
        self._name, self._file = name, file
        self._spent = self._done = 0

    def __call__(self, stage: str, n_spectra: int, result: HypothesisResult | None) -> None:
        """Note a spectrum; there is one hypothesis of each, as its formula is given."""
        if not n_spectra:
            self._spent = time.process_time_ns()
            command.say(f"{self._name}: {stage}")
            return
        if result is None:  # a finished spectrum is in the journal, its time in the file
            self._done += n_spectra
            return
        now = time.process_time_ns()
        self._file.write(f"{(now - self._spent) / 1e9:.4f}\n")
        self._file.flush()
        self._spent, self._done = now, self._done + n_spectra
        if self._done % 10 == 0:
            command.say(f"{self._name}: {self._done} spectra")


def joined(parts: Sequence[HypothesisResult]) -> HypothesisResult:
    """What several sources gave for one hypothesis, as if they had been asked together."""
    same = defaultdict[str, list[Structure]](list)
    for part in parts:
        for structure in part.structures:
            same[structure.block].append(structure)
    structures = []
    for block in sorted(same):
        each = sorted(same[block], key=lambda one: (-one.samples, one.smiles))
        drawn = [one for one in each if one.log_likelihood is not None]
        count = sum(one.samples for one in drawn)
        summed = sum(one.samples * one.log_likelihood for one in drawn)
        structures.append(
            each[0]._replace(
                samples=sum(one.samples for one in each),
                repaired=sum(one.repaired for one in each),
                log_likelihood=summed / count if count else None,
                sources=tuple(sorted({name for one in each for name in one.sources})),
            )
        )
    sampled = sum(part.sampled for part in parts)
    return replace(parts[0], structures=tuple(structures), sampled=sampled)


def without(parts: Sequence[FeatureResult]) -> FeatureResult:
    """What the other sources gave for a feature."""
    same = zip(*(part.hypotheses for part in parts), strict=True)
    return parts[0]._replace(hypotheses=tuple(map(joined, same)))


def scored(
    features: Iterable[FeatureResult],
    truths: Sequence[Truth],
    ranking: RankingModel,
    seconds: Sequence[float] = (),
) -> NDArray:
    """What is right: found, first, among ten, log-probability, seconds; float64 (B, 5)."""
    rows = {}
    blocks = {truth.spectrum_id: truth.molecule for truth in truths}
    for number, feature in enumerate(features):
        spectrum = feature.spectra[0].spectrum_id
        candidates, _ = rank(feature.hypotheses, ranking)
        right = next((one for one in candidates if one.inchikey14 == blocks[spectrum]), None)
        place = right.rank if right else len(candidates) + FIRST + 1
        stated = max(right.confidence if right else 0.0, _LEAST)
        spent = seconds[number] if number < len(seconds) else nan
        rows[spectrum] = (right is not None, place == 1, place <= FIRST, log(stated), spent)
    return np.array([rows[truth.spectrum_id] for truth in truths], np.float64)


def groups(truths: Sequence[Truth]) -> Iterator[tuple[str, NDArray]]:
    """Titles, and which of the true molecules are meant, bool (B,)."""
    yield "all molecules", np.ones(len(truths), np.bool_)
    atoms = np.array([parse_smiles(truth.smiles).GetNumHeavyAtoms() for truth in truths])
    yield "at most 20 heavy atoms", atoms <= 20
    yield "21 to 30 heavy atoms", (atoms > 20) & (atoms <= 30)
    yield "more than 30 heavy atoms", atoms > 30


def lines(values: Mapping[str, NDArray], kept: NDArray) -> Iterator[str]:
    """The table of the molecules that are kept, bool (B,), a row an arm.

    Values are as `scored` gives them; seconds are NaN where nothing was predicted anew.
    """
    yield f"| {' | '.join(_HEADER)} |"
    yield "|---" * len(_HEADER) + "|"
    base = values[ALL][kept]
    for arm, rows in values.items():
        own, cells = rows[kept], [arm]
        for column in range(4):
            scale, digits = (1, 2) if column == 3 else (100, 1)
            apart = scale * (own - base)[:, column]
            cell = f"{scale * own[:, column].mean():.{digits}f}"
            if arm != ALL:
                error = apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else np.nan
                cell += f" ({apart.mean():+.{digits}f} ± {error:.{digits}f})"
            cells.append(cell)
        seconds = own[:, 4].mean()
        yield f"| {' | '.join([*cells, '' if np.isnan(seconds) else f'{seconds:.1f}'])} |"


def main(
    data: Annotated[Path, typer.Argument(help="Table of labelled spectra.")],
    out: command.Output = Path("sources"),
    fold: Annotated[str, typer.Option(help="Fold of the table.")] = "val",
    molecules: command.Molecules = 60,
    weights: Annotated[str | None, typer.Option(help="Weights file; default: shipped.")] = None,
    train_hashes: Annotated[
        Path | None, typer.Option(help="Training molecules; default: beside the weights.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
) -> None:
    """Predict with every set of sources; print what each is worth."""
    model = api.load(weights, runtime=Runtime.resolve("cpu", threads=1))
    quotas = parse_quotas(SamplingSettings().sources)
    runs, seconds = {}, {}
    for arm, own in ({ALL: quotas} | {name: {name: n} for name, n in quotas.items()}).items():
        named = " ".join(f"{name}={quota}" for name, quota in own.items())
        sampling = SamplingSettings(samples=sum(own.values()), sources=named)
        settings = EvaluateSettings(
            benchmark=data,
            fold=fold,
            spectra_per_molecule="1",
            limit=molecules,
            out=out / arm,
            mces=False,
            prediction=PredictSettings(seed=seed, sampling=sampling),
            train_hashes=train_hashes,
            weights=weights,
            device="cpu",
            threads=1,
            workers=1,
            resume=True,
        )
        inputs = inputs_of(settings)
        settings.folder.mkdir(parents=True, exist_ok=True)
        times = settings.folder / SECONDS
        with times.open("a") as file:
            predict_inputs(settings, inputs, Clock(arm, file), model)
        runs[arm] = list(read([settings.folder / PREDICTIONS]).features())
        seconds[arm] = [float(line) for line in times.read_text().split()]
    truths, ranking = inputs.truths, model.ranking_for(settings.prediction).generated
    values = {}
    for arm, features in runs.items():
        title = arm if arm == ALL else f"{arm} alone"
        values[title] = scored(features, truths, ranking, seconds[arm])
    for name in quotas:
        others = zip(*(runs[other] for other in quotas if other != name), strict=True)
        left = (without(parts) for parts in others)
        values[f"without {name}"] = scored(left, truths, ranking)
    for title, kept in groups(truths):
        if kept.any():
            typer.echo(f"\n{title}: {kept.sum()}\n")
            typer.echo("\n".join(lines(values, kept)))


if __name__ == "__main__":
    command.run(main)
