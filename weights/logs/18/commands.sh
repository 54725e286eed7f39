#!/usr/bin/env bash
# How release 18 was made from release 17: the spectra of its training molecules beside the encoder; nothing is trained.
#
#   weights/logs/18/commands.sh DATA RUNS      with weights/duallgd.safetensors of release 17
set -euo pipefail
data=$1 runs=$2
START=weights/duallgd.safetensors UNTIL=measured weights/train.sh "$data" "$runs"
duallgd weights analogues weights/duallgd.safetensors --molecules "$runs/measured" -o "$runs/known.safetensors"
# Ranking and confidence are those of release 16, which did as well on fold val as new ones.
python3 - "$runs" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import torch
from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.files import sha256

runs, old = Path(sys.argv[1]), load(Path("weights/duallgd.safetensors"))
known = load(runs / "known.safetensors")
note = (
    "release 18: release 17 with the spectra of known molecules beside its encoder, and 273 more molecules as templates; "
    "re-ranker, ranking, confidence and their validation are release 16's"
)
record = old.record | {"note": note, "known_spectra": {"table_sha256": sha256(runs / "measured.tsv")}}
made = replace(known, ranking=old.ranking, record=record)
save(runs / "duallgd.safetensors", made, torch.float16, short_codes=True)
PYTHON
