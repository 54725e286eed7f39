"""Which m/z of an isolation window is that of a precursor.

Where instruments isolate many m/z at once (SWATH, MSe, SONAR, diaPASEF, all-ion fragmentation),
files give the middle of the window, and converters write it as the selected ion too. It is nobody's
precursor. A selected ion counts in a wide window only where it is not that middle.
"""

from dataclasses import dataclass
from typing import Final

from duallgd_cli.errors import Failure
from duallgd_cli.spectra.reading.quantities import finite

WIDEST: Final = 4.0  # m/z, of a window that is meant for one ion and its isotopes
_SAME: Final = 1e-3  # m/z, of one number that was written twice


@dataclass(frozen=True, slots=True)
class Isolated:
    """The precursor of a spectrum as its window gives it.

    Attributes:
        precursor_mz: As written, "" where there is none.
        warnings: What else may be among the peaks.
        assumptions: What was taken for the precursor.
        refusal: Why there is no precursor, or None.
    """

    precursor_mz: str
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    refusal: Failure | None = None


def isolated(ion: str, target: str, width: float | None, middle: float | None = None) -> Isolated:
    """Which precursor is known.

    Args:
        ion: m/z of the selected ion, "" where the file gives none.
        target: m/z that the window is about, "" where the file gives none.
        width: Of the window, m/z; None where the file does not give it.
        middle: Of the window, m/z, where that is another one than the target.
    """
    selected = finite(ion)
    centres = [centre for centre in (finite(target), middle) if centre is not None]
    if width is not None and width > WIDEST:
        if selected is None or not centres or min(abs(selected - at) for at in centres) <= _SAME:
            message = (
                f"the isolation window is {width:g} m/z wide and no ion of it is named, so no "
                "precursor is known; give spectra that a program such as MS-DIAL assigned to ions"
            )
            return Isolated("", refusal=Failure("no_precursor", message, "read"))
        warning = (
            f"the isolation window is {width:g} m/z wide, so fragments of other ions may be among "
            "the peaks"
        )
        return Isolated(ion, (warning,))
    if ion or not target:
        return Isolated(ion)
    unknown = "" if width is not None else ", whose width is not given,"
    note = f"the middle of the isolation window{unknown} is taken for the precursor: m/z {target}"
    return Isolated(target, assumptions=(note,))
