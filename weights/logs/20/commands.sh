#!/usr/bin/env bash
# How release 20 was made from release 19: ranking and confidence without the score `likeness`, fitted to the same draws of fold val.
# No network is trained. The code writes no likeness into journals, so this draws anew; release 20 itself took the draws of 19 and left
# that score out of them.
#
#   weights/logs/20/commands.sh DATA RUNS      with weights/duallgd.safetensors of release 19 or 20
set -euo pipefail
data=$1 runs=$2
mkdir -p "$runs"
python3 - "$runs" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import torch
from duallgd_cli.checkpoint.format import load, save

old = load(Path("weights/duallgd.safetensors"))
note = "release 20: release 19 with a ranking that does not know which molecules are known; ranking and confidence are fitted anew"
ranking = {name: value for name, value in old.ranking.items() if name != "likeness"}
made = replace(old, ranking=ranking, record=old.record | {"note": note})
save(Path(sys.argv[1]) / "base.safetensors", made, torch.float16, short_codes=True)
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
300 10 330
DRAWS
duallgd calibrate "$runs/base.safetensors" "${from[@]}" --truth "$runs/draw-100-10/truth.tsv" -o "$runs/duallgd.safetensors"
