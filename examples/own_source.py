"""A source of your own: molecules that you have in mind stand among the candidates.

    python examples/own_source.py examples/spectra.mgf

It stands for any generator of structures: a model of yours, a rule of biosynthesis, a notebook. A
package that names such a class in the entry points ``duallgd.sources`` has it asked by the command
line, too; ``--set sampling.sources="notebook=50 enumerated=30 noise=20"`` says how often.
"""

import sys
from collections.abc import Iterator

from duallgd_cli import load
from duallgd_cli.sources import Query

MINE = ("CC(=O)Oc1ccccc1C(=O)O", "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "NC(Cc1ccccc1)C(=O)O")


class Notebook:
    """Gives SMILES; those of another formula are left out by whoever asks."""

    name = "notebook"

    def propose(self, query: Query, n: int, seed: int) -> Iterator[str]:
        """Up to n molecules for a spectrum."""
        return iter(MINE[:n])


def main(path: str) -> None:
    """Predict a file and print where the first candidates come from."""
    for prediction in load(sources=[Notebook()]).predict(path, samples=20):
        for candidate in prediction.candidates[:3]:
            print(candidate.smiles, *candidate.sources, sep="\t")  # noqa: T201  the result of a script


if __name__ == "__main__":
    main(sys.argv[1])
