#!/usr/bin/env bash
# How release 24 was made from release 23: building blocks of all structures like measured molecules instead of 50,000. No network was trained.
#
# As it was: structures were cut in 17 parts, whose counts were added up; of the draws those of 100 samples in 10 steps, and of 300 samples of
# 200 molecules, are of this release; the others are of releases 22 and 23, what they are scored by computed anew.
#
#   weights/logs/24/commands.sh DATA RUNS      with weights/duallgd.safetensors of release 23
set -euo pipefail
data=$1 runs=$2
START=weights/duallgd.safetensors UNTIL=alike weights/train.sh "$data" "$runs"
duallgd weights analogues weights/duallgd.safetensors --molecules "$runs/measured" --structures "$runs/alike" -o "$runs/analogues.safetensors"
python3 - "$runs" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import torch
from duallgd_cli.checkpoint.format import load, save

runs = Path(sys.argv[1])
made, before = load(runs / "analogues.safetensors"), load(Path("weights/duallgd.safetensors"))
note = (
    "release 24: release 23 with building blocks of 399,433 structures instead of 50,000, and another choice among what they make; "
    "ranking and confidence are fitted anew"
)
base = replace(before, templates=made.templates, ranking={}, record=before.record | {"note": note})
save(runs / "base.safetensors", base, torch.float16, short_codes=True)
PYTHON
cp weights/duallgd.train.hashes "$runs/base.train.hashes"
from=()
while read -r samples steps limit; do
  drawn="$runs/draw-$samples-$steps"
  duallgd evaluate --benchmark "$data/massbank/massbank.tsv.xz" --fold val --spectra-per-molecule 1 --drop-leaked --no-mces --device cpu \
    --precision bfloat16 --weights "$runs/base.safetensors" -o "$drawn" --samples "$samples" --steps "$steps" --limit "$limit" < /dev/null
  from+=(--run "$drawn/predictions.csv")
done << 'DRAWS'
100 10 522
300 10 375
100 1 200
60 3 160
60 5 110
30 20 50
30 50 40
DRAWS
duallgd calibrate "$runs/base.safetensors" "${from[@]}" --truth "$runs/draw-100-10/truth.tsv" -o "$runs/duallgd.safetensors"
