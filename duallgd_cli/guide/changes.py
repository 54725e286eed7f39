"""What a molecule differs by from another: a formula difference, and what chemists call it."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement
from typing import Final, TypeAlias

from duallgd_cli.chem.elements import INDEX, SYMBOLS
from duallgd_cli.chem.formula import Formula

_Counts: TypeAlias = tuple[int, ...]

# Name of the gain, name of the loss, atoms gained, atoms lost. The first name of a difference is
# the one that is used.
_STEPS: Final = (
    ("oxidation", "deoxygenation", "O", ""),
    ("methylation", "demethylation", "CH2", ""),
    ("reduction", "dehydrogenation", "H2", ""),
    ("hydration", "dehydration", "H2O", ""),
    ("acetylation", "deacetylation", "C2H2O", ""),
    ("hexosylation", "loss of a hexose", "C6H10O5", ""),
    ("glucuronidation", "loss of a glucuronic acid", "C6H8O6", ""),
    ("sulfation", "desulfation", "O3S", ""),
    ("phosphorylation", "dephosphorylation", "HO3P", ""),
    ("deoxyhexosylation", "loss of a deoxyhexose", "C6H10O4", ""),
    ("pentosylation", "loss of a pentose", "C5H8O4", ""),
    ("malonylation", "loss of a malonyl", "C3H2O3", ""),
    ("galloylation", "loss of a galloyl", "C7H4O4", ""),
    ("coumaroylation", "loss of a coumaroyl", "C9H6O2", ""),
    ("caffeoylation", "loss of a caffeoyl", "C9H6O3", ""),
    ("feruloylation", "loss of a feruloyl", "C10H8O3", ""),
    ("prenylation", "loss of a prenyl", "C5H8", ""),
    ("formylation", "decarbonylation", "CO", ""),
    ("carboxylation", "decarboxylation", "CO2", ""),
    ("methoxylation", "loss of a methoxy", "CH2O", ""),
    ("ethylation", "deethylation", "C2H4", ""),
    ("propylation", "depropylation", "C3H6", ""),
    ("glutathione conjugation", "loss of a glutathione", "C10H15N3O6S", ""),
    ("glycine conjugation", "loss of a glycine", "C2H3NO", ""),
    ("taurine conjugation", "loss of a taurine", "C2H5NO2S", ""),
    ("glutamine conjugation", "loss of a glutamine", "C5H8N2O2", ""),
    ("cysteine conjugation", "loss of a cysteine", "C3H5NOS", ""),
    ("amination", "deamination", "HN", ""),
    ("carbamoylation", "loss of a carbamoyl", "CHNO", ""),
    ("nitration", "loss of a nitro group", "NO2", "H"),
    ("fluorination", "defluorination", "F", "H"),
    ("chlorination", "dechlorination", "Cl", "H"),
    ("bromination", "debromination", "Br", "H"),
    ("iodination", "deiodination", "I", "H"),
    ("oxidative deamination", "reductive amination", "O", "H3N"),
    ("oxidative dechlorination", "chlorination of an alcohol", "HO", "Cl"),
    ("oxidation to an acid", "reduction of an acid", "O2", "H2"),
    ("ammonium exchange for oxygen", "oxygen exchange for NH", "O", "HN"),
    ("sulfur exchange for oxygen", "oxygen exchange for sulfur", "O", "S"),
)


def difference(known: Formula, found: Formula) -> str:
    """What the second has more than the first, such as ``+C6H10O5`` or ``+O -NH``; "" if equal."""
    parts = []
    for sign in (1, -1):
        counts = tuple(
            max(0, sign * (b - a)) for a, b in zip(known.counts, found.counts, strict=True)
        )
        if any(counts):
            parts.append(f"{'+' if sign > 0 else '-'}{Formula(counts)}")
    return " ".join(parts)


def named(known: Formula, found: Formula) -> str:
    """The reaction or two that make the second of the first, "" where no usual ones do."""
    return _names().get(_minus(found.counts, known.counts), "")


@cache
def _names() -> dict[_Counts, str]:
    """Names of differences, of one step before those of two."""
    single = list(_single())
    names: dict[_Counts, str] = {(0,) * len(SYMBOLS): "isomer"}
    for change, name in single:
        names.setdefault(change, name)
    for (one, first), (other, second) in combinations_with_replacement(single, 2):
        both = tuple(a + b for a, b in zip(one, other, strict=True))
        names.setdefault(both, f"2 x {first}" if first == second else f"{first} and {second}")
    return names


def _single() -> Iterator[tuple[_Counts, str]]:
    for gain, loss, more, less in _STEPS:
        change = _minus(_counts(more), _counts(less))
        yield change, gain
        yield tuple(-count for count in change), loss


def _counts(text: str) -> _Counts:
    return Formula.parse(text).counts if text else (0,) * len(INDEX)


def _minus(more: _Counts, less: _Counts) -> _Counts:
    return tuple(a - b for a, b in zip(more, less, strict=True))
