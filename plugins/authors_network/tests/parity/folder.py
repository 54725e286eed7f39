"""The folder of reference arrays: `$DUALLGD_PARITY`, or `../shared/parity` beside the checkout."""

import json
import os
from pathlib import Path

_DEFAULT = Path(__file__).resolve().parents[4] / ".." / "shared" / "parity"
FOLDER = Path(os.environ.get("DUALLGD_PARITY", _DEFAULT)).resolve()

# Variants whose networks are not rebuilt: M x M bond layers, no atom stream, an atom head.
NOT_REQUIRED = {"dense_linegraph_mask", "dense_full", "no_primal_stream", "node_output_head"}
# What is tried where there is no folder, so that the tests exist and say why they are skipped.
_USUAL = ("performer_positive", "softmax")


def variant_names():
    """Variants of the folder that must be matched."""
    path = FOLDER / "narrow_variants.json"
    if not path.exists():
        return _USUAL
    return [name for name in json.loads(path.read_text("utf-8")) if name not in NOT_REQUIRED]
