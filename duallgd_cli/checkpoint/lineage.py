"""What weights stem from: the records of all runs before, each kept once."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from duallgd_cli.errors import WeightsError

_DIGITS = 12
# The stage, besides joint, that trains a part.
_TRAINED_BY = {"encoder": "encoder", "denoiser": "decoder"}
# How well confidence held on a fold says nothing of what later weights stem from, and is long.
_OF_THE_FIT = ("ranking_validation", "database_validation")


def lineage(starts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Entries ``init`` and ``ancestors`` of a run's record.

    Two parts that start from one file share its record, so a chain of runs grows by one record
    each and not twofold.

    Args:
        starts: Record of the weights that each part starts from.

    Returns:
        The key of each part's start, and the records of all ancestors by key.
    """
    keys: dict[str, str] = {}
    ancestors: dict[str, dict[str, Any]] = {}
    for part, start in starts.items():
        own = _without_fit(start)
        ancestors |= {key: _without_fit(one) for key, one in own.pop("ancestors", {}).items()}
        text = json.dumps(own, sort_keys=True)
        keys[part] = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
        ancestors[keys[part]] = own
    return {"init": keys, "ancestors": ancestors}


def require_trained(record: Mapping[str, Any], source: object) -> None:
    """Refuse weights for prediction whose encoder or denoiser was never trained.

    Args:
        record: How the weights were trained, as they state it.
        source: What to call them in the message.

    Raises:
        WeightsError: The stages that they went through left one of the two as it was drawn.
    """
    for part, stage in _TRAINED_BY.items():
        if not _trained(record, part):
            raise WeightsError(
                f"the {part} of weights {source} was never trained, so they cannot predict from "
                f"spectra; train it with 'duallgd train --stage {stage}', or both parts with "
                "'--stage joint --init-denoiser ... --init-encoder ...'"
            )


def _trained(record: Mapping[str, Any], part: str) -> bool:
    """Whether a run, or one before it, trained a part; a record that does not say is believed."""
    ancestors, waiting, followed = _mapping(record.get("ancestors")), [record], set()
    while waiting:
        one = waiting.pop()
        training, starts = _mapping(one.get("training")), _mapping(one.get("init"))
        frozen = part == "encoder" and training.get("freeze_encoder")
        if training.get("stage") in (_TRAINED_BY[part], "joint") and not frozen:
            return True
        # A mean has several parents, narrowed weights one, and neither has a stage of its own.
        before = [starts[part]] if part in starts else [] if training else [*starts.values()]
        before += [one["from"]] if "from" in one else []
        if not training and not before:
            return True
        for parent in before:
            if not isinstance(parent, str):
                waiting.append(_mapping(parent))
            elif parent not in followed:
                followed.add(parent)
                waiting.append(_mapping(ancestors.get(parent)))
    return False


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _without_fit(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _OF_THE_FIT}
