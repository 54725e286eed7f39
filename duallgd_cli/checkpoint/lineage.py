"""What weights stem from: the records of all runs before, each kept once."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

Records = dict[str, dict[str, Any]]

_DIGITS = 12
# How well confidence held on a fold says nothing of what later weights stem from, and is long.
_OF_THE_FIT = "ranking_validation"


def lineage(starts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Entries ``init`` and ``ancestors`` of a run's record.

    Two parts that start from one file share its record, so a chain of runs grows by one record
    each and not twofold.

    Args:
        starts: Record of the weights that each part starts from.

    Returns:
        The key of each part's start, and the records of all ancestors by key.
    """
    keys, ancestors = _flat(starts)
    return {"init": keys, "ancestors": ancestors}


def _flat(starts: Mapping[str, Any]) -> tuple[dict[str, str], Records]:
    keys: dict[str, str] = {}
    ancestors: Records = {}
    for part, start in starts.items():
        if isinstance(start, str):  # a key: its record is among the ancestors already
            keys[part] = start
            continue
        own = _without_fit(start)
        ancestors |= {key: _without_fit(one) for key, one in own.pop("ancestors", {}).items()}
        own["init"], older = _flat(own.get("init", {}))  # whole records, in older files
        key = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:_DIGITS]
        keys[part] = key
        ancestors |= older | {key: own}
    return keys, ancestors


def _without_fit(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != _OF_THE_FIT}
