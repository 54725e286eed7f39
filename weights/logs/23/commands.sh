#!/usr/bin/env bash
# How release 23 was made from release 22: a second encoder learns to tell molecules of fold train from rivals of their formula, and the fragment
# model learns it anew from twice as many rivals. Then ranking and confidence are fitted. Prior and network stay as they are.
#
# So it would be made in one go. As it was: the second set of rivals had up to 32 a molecule instead of 24, the fragment model had seed 2, and of
# the draws those with 100 samples in 10 steps, and with 300 of 175 molecules, are of this release; the others are release 22's, scored anew.
#
#   weights/logs/23/commands.sh DATA RUNS      with weights/duallgd.safetensors of release 22
set -euo pipefail
data=$1 runs=$2
START=weights/duallgd.safetensors UNTIL=structures weights/train.sh "$data" "$runs"
duallgd weights evidence weights/duallgd.safetensors --structures "$runs/structures" --spectra "$runs/measured" -o "$runs/long.safetensors"
python3 - "$runs" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import torch
from duallgd_cli.checkpoint.format import load, save

runs = Path(sys.argv[1])
made = load(runs / "long.safetensors")
note = (
    "release 23: release 22 with a second encoder that tells molecules from rivals, and twice as many rivals for the fragment model; "
    "ranking and confidence are fitted anew"
)
save(runs / "base.safetensors", replace(made, record=made.record | {"note": note}), torch.float16, short_codes=True)
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
300 10 260
100 1 200
60 3 160
60 5 110
30 20 50
30 50 40
DRAWS
duallgd calibrate "$runs/base.safetensors" "${from[@]}" --truth "$runs/draw-100-10/truth.tsv" -o "$runs/duallgd.safetensors"
