"""What the presets of `duallgd predict` are worth: accuracy, confidence and time of each.

    python examples/studies/presets.py massbank.tsv --fold val --limit 100 -o presets

Predicts one spectrum of each molecule of a labelled table (the MassSpecGym layout, as `duallgd
evaluate --benchmark` takes it) with every preset, on one thread, and scores it as that command
does. Molecules that the weights were trained on are left out. Each preset has a folder in the
output, where finished spectra and their processor time are kept: the same command goes on. The
table is Markdown; confidence is that of first candidates, beside the share of them that is right.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Final, TextIO

import command
import numpy as np
import typer

from duallgd_cli.config import SamplingSettings
from duallgd_cli.evaluate.run import evaluate
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.predict.settings import PRESETS, PredictSettings
from duallgd_cli.results import HypothesisResult

SECONDS: Final = "cpu_s.txt"


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


def measured(name: str, settings: EvaluateSettings) -> dict[str, Any]:
    """Results of a preset, as results.json holds them, and ``cpu_s`` a spectrum."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    path = settings.folder / SECONDS
    with ExitStack() as stack:
        found = evaluate(settings, Clock(name, stack.enter_context(path.open("a"))))
    assert found is not None  # no shard
    seconds = [float(line) for line in path.read_text().split()]
    return {**found, "cpu_s": fmean(seconds) if seconds else 0.0}


def lines(results: Mapping[str, Mapping[str, Any]], any_k: int) -> Iterator[str]:
    """The table, a row a preset.

    Args:
        results: As `measured` gives them.
        any_k: The rank that stands for all candidates.
    """
    yield (
        "| preset | samples | steps | molecules | top-1 | top-10 | any sample | stated | right "
        "| CPU-s a spectrum |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, found in results.items():
        shares = []
        for k in (1, 10, any_k):
            estimate = found["metrics"][f"accuracy@{k}"]
            mean, low, high = (100 * estimate[end] for end in ("mean", "low", "high"))
            shares.append(f"{mean:.1f} % ({low:.1f} to {high:.1f})")
        bins = found["calibration"]["confidence"]["bins"]
        counts = [one["count"] for one in bins]
        stated = np.average([one["stated"] for one in bins], weights=counts)
        right = np.average([one["observed"]["mean"] for one in bins], weights=counts)
        cells = (
            *(name, PRESETS[name].samples, PRESETS[name].steps, found["molecules"], *shares),
            *(f"{100 * stated:.1f} %", f"{100 * right:.1f} %", f"{found['cpu_s']:.2f}"),
        )
        yield f"| {' | '.join(map(str, cells))} |"


def main(
    benchmark: Annotated[Path, typer.Argument(help="Table of labelled spectra.")],
    output: command.Output = Path("presets"),
    fold: Annotated[str, typer.Option(help="Fold of the table.")] = "val",
    limit: Annotated[int | None, typer.Option(min=1, help="Number of molecules.")] = None,
    presets: Annotated[str, typer.Option(help="Which, with commas.")] = ",".join(PRESETS),
    weights: Annotated[str | None, typer.Option(help="Weights file; default: shipped.")] = None,
    train_hashes: Annotated[
        Path | None, typer.Option(help="Training molecules; default: beside the weights.")
    ] = None,
    precision: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "bfloat16",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
) -> None:
    """Predict with every preset; print accuracy, confidence and time."""
    names = command.names_in(presets, "preset", PRESETS)
    everything = 2 * max(PRESETS[name].samples for name in names)  # a sample may be read twice
    results = {}
    for name in names:
        sampling = SamplingSettings(samples=PRESETS[name].samples, steps=PRESETS[name].steps)
        results[name] = measured(
            name,
            EvaluateSettings(
                benchmark=str(benchmark),
                fold=fold,
                spectra_per_molecule="1",
                limit=limit,
                out=output / name,
                top_k=(1, 10, everything),
                mces=False,
                prediction=PredictSettings(seed=seed, sampling=sampling),
                train_hashes=train_hashes,
                drop_leaked=True,
                weights=weights,
                device="cpu",
                precision=precision,
                threads=1,
                workers=1,
                resume=True,
            ),
        )
        (output / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    for line in lines(results, everything):
        typer.echo(line)


if __name__ == "__main__":
    command.run(main)
