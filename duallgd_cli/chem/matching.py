"""Finding what a user described in molecules, in steps that are counted.

RDKit compares for ever where a pattern has many parts or wildcards, and no clock ends that. So each
atom that it tries is counted, which depends on pattern and molecule alone and not on the machine.
"""

from collections import Counter
from itertools import count
from typing import Any, Final

from rdkit import Chem

from duallgd_cli.errors import Failure, RefusedError, quote

_MOST_STEPS: Final = 100_000  # a tenth of a second; patterns of chemists take some thousands


class Pattern:
    """A substructure to be found in molecules.

    Attributes:
        query: Its atoms and bonds.
    """

    def __init__(self, query: Chem.Mol, text: str) -> None:
        """Take a pattern.

        Args:
            query: Its atoms and bonds, in any number of pieces.
            text: How the user wrote it, for messages.
        """
        self.query, self._text = query, text
        pieces = Chem.GetMolFrags(query, asMols=True, sanitizeFrags=False)
        by_text = {Chem.MolToSmarts(piece): piece for piece in pieces}
        times = Counter(map(Chem.MolToSmarts, pieces))
        self._repeated = [(by_text[one], n) for one, n in times.items() if n > 1]

    def is_in(self, mol: Chem.Mol, *, is_lenient: bool = False) -> bool:
        """Whether a molecule has the pattern.

        Args:
            mol: The molecule.
            is_lenient: Whether conjugated bonds match aromatic ones: what is a quinone alone may
                be part of an aromatic ring.

        Raises:
            RefusedError: Looking for them takes too many steps.
        """
        limits = self._limits()
        limits.aromaticMatchesConjugated = is_lenient
        # Where a piece is asked for more often than it is there, no order of trying is of use.
        for piece, limits.maxMatches in self._repeated:
            if len(mol.GetSubstructMatches(piece, limits)) < limits.maxMatches:
                return False
        limits.maxMatches = 1
        return bool(mol.GetSubstructMatch(self.query, limits))

    def _limits(self) -> Any:  # noqa: ANN401 # the types of RDKit's settings are wrong
        steps = count(1)

        def allow(*_: Chem.Atom) -> bool:
            if next(steps) > _MOST_STEPS:
                message = (
                    f"looking for {quote(self._text)} in one molecule takes more than "
                    f"{_MOST_STEPS:,} steps; write it with fewer wildcards and fewer parts apart"
                )
                raise RefusedError(Failure("no_candidate", message, "sample"))
            return True

        limits = Chem.SubstructMatchParameters()
        limits.setExtraAtomCheckFunc(allow)
        return limits
