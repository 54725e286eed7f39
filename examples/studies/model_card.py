"""The card that a MassSpecGym submission consists of, from a finished evaluation of fold test.

    duallgd evaluate --benchmark massspecgym -o massspecgym
    python examples/studies/model_card.py massspecgym

Fields are those of the benchmark's submission template (``model_card.yaml`` beside this script).
What only the submitter can say is left empty, with a comment.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml
from command import run, say

from duallgd_cli.errors import MissingInputError, UsageError
from duallgd_cli.evaluate.report import RESULTS
from duallgd_cli.evaluate.suites import RELEASES
from duallgd_cli.files import write_atomically

TEMPLATE: Final = Path(__file__).with_name("model_card.yaml")
_METRICS: Final = {"accuracy": "Accuracy", "mces": "MCES", "tanimoto": "Tanimoto"}
_TRACKS: Final = {
    "formula known": "The formula is the true one.",
    "formula predicted": "Formulas are predicted.",
}


def require_submission(found: Mapping[str, Any]) -> None:
    """Check that results may be handed in.

    Raises:
        UsageError: They are not of fold test of the published files.
    """
    data, published = found["data"], {(name, digest) for _, name, digest in RELEASES}
    if data["fold"] != "test" or not set(data["files"].items()) <= published:
        raise UsageError(
            f"the evaluation is of {found['title']}, and the card is for fold test of MassSpecGym "
            "as published"
        )


def card(found: Mapping[str, Any]) -> dict[str, Any]:
    """The card; what was not computed is null.

    Args:
        found: Contents of results.json.
    """
    filled: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))
    prediction, data = found["prediction"], found["data"]
    chosen = (data["fold"], data["spectra_per_molecule"], data["limit"])
    record = prediction.get("weights", {}).get("record") or {}
    track = _TRACKS.get(found["track"], "Whether the formula was the true one is not stated.")
    filled["random_seed"] = prediction.get("settings", {}).get("seed")
    filled["results"][0]["comment"] = f"{found['track']}; duallgd {found['duallgd']}"
    filled["results"][0]["metrics"] = numbers(found["metrics"])
    filled["pretraining"]["description"] = "; ".join(f"{key}: {one}" for key, one in record.items())
    filled["uses_official_split"] = chosen == ("test", "all", None)
    filled["notes"] = " ".join([track, filled["notes"], *found["remarks"]])
    return filled


def numbers(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """The eighteen numbers of the template, with intervals."""
    found: dict[str, float | None] = {}
    for k in (1, 10):
        for kind, title in _METRICS.items():
            estimate = metrics.get(f"{kind}@{k}", {})
            for suffix, part in (("", "mean"), (" CI Low", "low"), (" CI High", "high")):
                value = estimate.get(part)
                found[f"Top-{k} {title}{suffix}"] = None if value is None else round(value, 4)
    return found


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of duallgd evaluate.")],
) -> None:
    """Write model_card.yaml into the folder of an evaluation of MassSpecGym, fold test."""
    path = folder / RESULTS
    if not path.is_file():
        raise MissingInputError(f"{path} does not exist; name a folder of duallgd evaluate")
    found = json.loads(path.read_text(encoding="utf-8"))
    require_submission(found)
    head = TEMPLATE.read_text(encoding="utf-8").partition("method_name:")[0]
    text = yaml.safe_dump(card(found), sort_keys=False, allow_unicode=True, width=100)
    write_atomically(folder / TEMPLATE.name, [head, text])
    say(f"-> {folder / TEMPLATE.name}")


if __name__ == "__main__":
    run(main)
