"""The elements that duallgd knows, their masses, valences and order.

`SYMBOLS` is the order of every count vector in the project: the twelve heavy elements first, which
is also the order of a formula's atom list and of the network's atom classes, then hydrogen.
"""

from typing import Final

HEAVY: Final = ("C", "N", "O", "P", "S", "F", "Cl", "Br", "I", "B", "Si", "Se")
SYMBOLS: Final = (*HEAVY, "H")
N_HEAVY: Final = len(HEAVY)
N_ELEMENTS: Final = len(SYMBOLS)
HYDROGEN: Final = N_ELEMENTS - 1
INDEX: Final = {symbol: index for index, symbol in enumerate(SYMBOLS)}
MAX_HEAVY_ATOMS: Final = 100  # of a molecule that the network draws

ELECTRON_MASS_DA: Final = 0.000548579909065

# Monoisotopic masses of the most abundant isotope, Da (AME2020 / CIAAW).
MASSES_DA: Final = (
    12.0, 14.00307400443, 15.99491461957, 30.97376199842, 31.9720711744, 18.99840316273,
    34.968852682, 78.9183376, 126.9044719, 11.00930536, 27.97692653465, 79.9165218, 1.00782503223,
)  # fmt: skip
# Metals that ions hold but molecules do not: monoisotopic mass, Da, and charge.
METALS: Final = {
    "Li": (7.0160034366, 1), "Na": (22.989769282, 1), "K": (38.9637064864, 1),
    "Rb": (84.9117897379, 1), "Cs": (132.905451961, 1), "Ag": (106.9050916, 1),
    "Mg": (23.985041697, 2), "Ca": (39.962590863, 2),
}  # fmt: skip

ATOMIC_NUMBERS: Final = (6, 7, 8, 15, 16, 9, 17, 35, 53, 5, 14, 34, 1)
INDEX_OF_NUMBER: Final = {number: index for index, number in enumerate(ATOMIC_NUMBERS)}

# Valences a neutral atom may have in a closed-shell molecule, smallest first.
VALENCES: Final = (
    (4,), (3,), (2,), (3, 5), (2, 4, 6), (1,), (1, 3, 5, 7), (1, 3, 5, 7), (1, 3, 5, 7), (3,), (4,),
    (2, 4, 6), (1,),
)  # fmt: skip

LOWEST_VALENCES: Final = tuple(valences[0] for valences in VALENCES)

# Bits of the Morgan fingerprint that networks predict, and by which molecules are compared.
FINGERPRINT_BITS: Final = 4096

BOND_NONE: Final = 0
BOND_SINGLE: Final = 1
BOND_DOUBLE: Final = 2
BOND_TRIPLE: Final = 3
BOND_AROMATIC: Final = 4
N_BOND_CLASSES: Final = 5
