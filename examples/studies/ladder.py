"""How far the probabilities of structure, family and scaffold hold, on a run of known truth.

    duallgd evaluate --benchmark TABLE --fold val --no-mces -o RUN
    python examples/studies/ladder.py RUN

For the most probable structure, family and scaffold of each molecule: the mean of what is stated,
the share that is right, and both by fifths of what is stated.
"""

import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
from one_list import generated_of

from duallgd_cli.chem.identity import family, parse_smiles, scaffold
from duallgd_cli.evaluate.calibrate import truths_of
from duallgd_cli.predict.journal import read
from duallgd_cli.ranking.one_list import Ranking


@cache
def coarser(smiles: str) -> tuple[str, str]:
    """Family and scaffold of a molecule."""
    mol = parse_smiles(smiles)
    return family(mol), scaffold(mol)


def main(folder: Path) -> None:
    """Print the table."""
    run = read([folder / "predictions.csv"], partial=True)
    truths = truths_of(folder / "truth.tsv")
    header = run.header
    ranking = Ranking(Ranking.recorded(header.model, header.settings, folder).generated)
    stated, right = defaultdict[str, list[float]](list), defaultdict[str, list[bool]](list)
    for feature in run.features():
        truth = truths[feature.spectra[0].spectrum_id]
        candidates, _ = ranking.rank(generated_of(feature.hypotheses))
        answers = (truth["inchikey"][:14], *coarser(truth["smiles"]))
        for level, answer in zip(("structure", "family", "scaffold"), answers, strict=True):
            sums = defaultdict[str, float](float)
            for one in candidates:
                named = dict(zip(("family", "scaffold"), coarser(one.smiles), strict=True))
                sums[named.get(level, one.inchikey14)] += one.confidence
            best = max(sums, key=lambda name: sums[name], default="")
            stated[level].append(sums[best] if best else 0.0)
            right[level].append(best == answer)
    print("level\tstated\tright\tby fifths of what is stated: stated/right")
    for level, values in stated.items():
        order = np.argsort(values)
        told, hits = np.array(values)[order], np.array(right[level])[order]
        fifths = " ".join(
            f"{a.mean():.2f}/{b.mean():.2f}"
            for a, b in zip(np.array_split(told, 5), np.array_split(hits, 5), strict=True)
        )
        print(f"{level}\t{told.mean():.3f}\t{hits.mean():.3f}\t{fifths}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
