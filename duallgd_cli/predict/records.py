"""Cases as lines of JSON and back."""

import json
from collections.abc import Mapping
from dataclasses import asdict, astuple
from typing import Any

from duallgd_cli.predict.prediction import ExplainedPeak, Member, Outcome, Structure, Tallies
from duallgd_cli.spectra.types import Source


def encode(values: Mapping[str, Any]) -> bytes:
    """One line of JSON in ASCII, line break included; equal values give equal bytes.

    Raises:
        ValueError: A number is not finite.
    """
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """The object of a line, or None where the line is torn or damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        values = json.loads(line)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


def member_values(member: Member) -> dict[str, Any]:
    """Plain values of a member, its source as a pair."""
    return {**asdict(member), "source": [member.source.file, member.source.index]}


def member_of(values: Mapping[str, Any]) -> Member:
    """The member that `member_values` wrote."""
    return Member(**{**values, "source": Source(*values["source"])})


def outcome_values(outcome: Outcome) -> dict[str, Any]:
    """Plain values of an outcome.

    The two long lists go without field names, which would be most of the file.
    """
    return {
        **asdict(outcome),
        "structures": [astuple(structure) for structure in outcome.structures],
        "peaks": [astuple(peak) for peak in outcome.peaks],
    }


def outcome_of(values: Mapping[str, Any]) -> Outcome:
    """The outcome that `outcome_values` wrote."""
    nested = {
        "structures": tuple(Structure(*row) for row in values["structures"]),
        "peaks": tuple(ExplainedPeak(*row) for row in values["peaks"]),
        "tallies": Tallies(**values["tallies"]),
        "notes": tuple(values["notes"]),
    }
    return Outcome(**{**values, **nested})
