"""How much work a prediction is, in counts that no machine changes: `make bench-check`.

    python examples/benchmarks/counts.py            # compares with counts.json; fails above a tenth
    python examples/benchmarks/counts.py --record   # after a change that is meant to cost more

The example spectra are predicted with few samples, one thread and a fixed seed, and it is counted
how often what costs time was done. Seconds would say more about the machine than about the program.
"""

import cProfile
import json
import pstats
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict import api
from duallgd_cli.predict.journal import read
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.runtime import Runtime

HERE: Final = Path(__file__).resolve().parent
RECORD: Final = HERE / "counts.json"
MOST_GROWTH: Final = 0.1
# What is counted, and the functions of the package whose calls it is.
CALLS: Final = {
    "fingerprints": "fingerprint",
    "canonical SMILES": "canonical_smiles",
    "building blocks joined": "joined",
    "known molecules changed": "edited",
    "hydrogens set": "complete",
    "isomers cut into fragments together": "fragments_of_isomers",
    "layers of the network": "linear",
}
TALLIES: Final = ("sampled", "assembled", "repaired", "distinct")


def counted() -> dict[str, int]:
    """The counts of a prediction of the example spectra."""
    torch.set_num_threads(1)
    model = api.load(None, runtime=Runtime.resolve("cpu", "float32", threads=1))
    examples = HERE.parent
    with TemporaryDirectory(prefix="duallgd-") as folder:
        request = PredictRequest(
            inputs=(str(examples / "spectra.mgf"),),
            output=str(Path(folder) / "out.csv"),
            formulas=examples / "formulas.csv",
            settings=PredictSettings(sampling=SamplingSettings(samples=20, steps=4)),
        )
        profile = cProfile.Profile()
        profile.enable()
        predict(request, model)
        profile.disable()
        journal = request.journal_path()
        assert journal is not None
        results = [one for feature in read([journal]).features() for one in feature.hypotheses]
    calls = Counter[str]()
    for (file, _, name), (_, times, *_) in pstats.Stats(profile).stats.items():
        calls[name] += times if "duallgd_cli" in file else 0
    return {
        **{what: calls[name] for what, name in CALLS.items()},
        **{tally: sum(getattr(result, tally) for result in results) for tally in TALLIES},
        "candidates": sum(len(result.structures) for result in results),
    }


def faults(now: Mapping[str, int], recorded: Mapping[str, int]) -> list[str]:
    """A sentence for each count that grew by more than a tenth, or is counted no more."""
    said = []
    for what, before in recorded.items():
        after = now.get(what, 0)
        if not after and before:
            said.append(f"{what}: {before} before, and nothing is counted now; mend counts.py")
        elif after > (1 + MOST_GROWTH) * before:
            growth = f"{after / before - 1:.0%} more" if before else "none before"
            said.append(f"{what}: {after} instead of {before}, {growth}")
    return said


def main(*arguments: str) -> int:
    """Compare or record; returns the exit code."""
    now = counted()
    if "--record" in arguments:
        RECORD.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    for what, count in now.items():
        sys.stdout.write(f"{what:36} {count:10,} {recorded.get(what, 0):10,} recorded\n")
    said = faults(now, recorded)
    sys.stdout.write("".join(f"error: {sentence}\n" for sentence in said))
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
