"""From ranked candidates and the truth to numbers with intervals, and to a fitted ranking."""

from typing import Final

MASSSPECGYM: Final = "massspecgym"  # the benchmark that is downloaded by its name
