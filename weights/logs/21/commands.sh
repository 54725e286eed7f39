#!/usr/bin/env bash
# How release 21 was made from release 20: building blocks of known molecules, then ranking and confidence fitted to what is drawn with
# them. No network is trained.
#
#   weights/logs/21/commands.sh DATA RUNS      with weights/duallgd.safetensors of release 20
set -euo pipefail
data=$1 runs=$2
START=weights/duallgd.safetensors UNTIL=alike weights/train.sh "$data" "$runs"
duallgd weights analogues weights/duallgd.safetensors --molecules "$runs/measured" --structures "$runs/alike" -o "$runs/known.safetensors"
python3 - "$runs" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import torch
from duallgd_cli.checkpoint.format import load, save

runs, old = Path(sys.argv[1]), load(Path("weights/duallgd.safetensors"))
note = "release 21: release 20 with building blocks of known molecules; ranking and confidence are fitted anew"
made = replace(load(runs / "known.safetensors"), record=old.record | {"note": note})
save(runs / "base.safetensors", made, torch.float16, short_codes=True)
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
100 1 260
60 3 200
60 5 110
30 20 60
30 50 60
300 10 260
DRAWS
duallgd calibrate "$runs/base.safetensors" "${from[@]}" --truth "$runs/draw-100-10/truth.tsv" -o "$runs/duallgd.safetensors"
