"""Adducts: how a molecule became the measured ion."""

from dataclasses import dataclass

from duallgd_cli.chem.elements import ELECTRON_MASS_DA, MASSES_DA


@dataclass(frozen=True)
class Adduct:
    """A supported ionisation.

    Attributes:
        name: Canonical spelling, such as ``[M+H]+``.
        change: Counts added to the molecule, in `elements.SYMBOLS` order; negative where lost.
        charge: Signed charge of the ion (always 1 or -1).
        metal_mass_da: Mass of a sodium or potassium atom held by the ion, 0 otherwise.
        carrier: 0 none, 1 sodium, 2 potassium.
        index: Row of the adduct in every model's embedding.
    """

    name: str
    change: tuple[int, ...]
    charge: int
    metal_mass_da: float
    carrier: int
    index: int

    @property
    def polarity(self) -> int:
        """1 for positive, -1 for negative mode."""
        return 1 if self.charge > 0 else -1

    @property
    def mass_shift(self) -> float:
        """Precursor m/z minus the mass of the molecule's atoms, Da."""
        atoms = sum(n * m for n, m in zip(self.change, MASSES_DA, strict=True))
        return atoms + self.metal_mass_da - self.charge * ELECTRON_MASS_DA
