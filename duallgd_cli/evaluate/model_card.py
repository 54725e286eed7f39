"""The model card that a MassSpecGym submission consists of: 18 numbers and what stands behind them.

Fields are those of the benchmark's submission template. What only the submitter can say is left
empty, with a comment.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from duallgd_cli.files import write_atomically

NAME: Final = "model_card.yaml"
_METRICS: Final = {"accuracy": "Accuracy", "mces": "MCES", "tanimoto": "Tanimoto"}
_TOP_K: Final = (1, 10)
_TRACKS: Final = {
    "formula known": "The formula is the true one.",
    "formula predicted": "Formulas are predicted.",
}
_HEAD: Final = """\
# Written by duallgd evaluate. The intervals are 95 % bootstrap over spectra, as the benchmark asks;
# results.json beside this file has those clustered by molecule, which are wider.
# Fill in: paper_url, code_url, parquet_url.
"""


def write_model_card(directory: Path, found: Mapping[str, Any]) -> Path:
    """Write the card; numbers that were not computed are null.

    Args:
        directory: Exists.
        found: Contents of results.json.

    Raises:
        UsageError: The file cannot be written.
    """
    path = directory / NAME
    text = yaml.safe_dump(model_card(found), sort_keys=False, allow_unicode=True, width=100)
    write_atomically(path, [_HEAD, text])
    return path


def model_card(found: Mapping[str, Any]) -> dict[str, Any]:
    """The card's fields from the contents of results.json."""
    prediction = found["prediction"]
    return {
        "method_name": "duallgd",
        "paper_url": "",
        "code_url": "",
        "random_seed": prediction.get("settings", {}).get("seed"),
        "results": [
            {
                "task": "de_novo",
                # A predictor of formulas also makes a method one of the bonus track.
                "challenge": "bonus",
                "uses_formula_at_inference": True,
                "comment": f"{found['track']}; duallgd {found['duallgd']}",
                "metrics": _numbers(found["metrics"]),
            }
        ],
        "uses_mist_encoder": False,
        "uses_mist_cf": False,
        "uses_iceberg": False,
        "mist_cf_version": "",
        "iceberg_version": "",
        "pretraining": {
            "used": True,
            "description": _text(prediction.get("weights", {}).get("record")),
            "filtering_criterion": "exact_match",
            "inchikey_layer_used": "14char",
            "parquet_url": "",
        },
        "uses_official_split": _is_whole(found["data"]),
        "custom_split_path": "",
        "notes": " ".join(
            [
                _TRACKS.get(found["track"], "Whether the formula was the true one is not stated."),
                "Metrics follow the benchmark's definitions (InChIKey first block, Morgan radius 2 "
                "2048 bits, myopic-mces threshold 15 always_stronger_bound, capped at 100).",
                "Spectra without candidates count as 0, 0 and 100.",
                "The encoder is a formula transformer in the manner of MIST, written anew, with "
                "padding masked by -inf.",
                *found["remarks"],
            ]
        ),
    }


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    numbers: dict[str, float | None] = {}
    for k in _TOP_K:
        for kind, title in _METRICS.items():
            estimate = metrics.get(f"{kind}@{k}", {}).get("independent", {})
            for suffix, part in (("", "mean"), (" CI Low", "low"), (" CI High", "high")):
                value = estimate.get(part)
                name = f"Top-{k} {title}{suffix}"
                numbers[name] = None if value is None else round(value, 4)
    return numbers


def _is_whole(data: Mapping[str, Any]) -> bool:
    return (
        data["fold"] == "test" and data["spectra_per_molecule"] == "all" and data["limit"] is None
    )


def _text(record: object) -> str:
    if not isinstance(record, Mapping):
        return ""
    return "; ".join(f"{key}: {value}" for key, value in record.items())
