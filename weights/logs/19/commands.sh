#!/usr/bin/env bash
# How release 19 was made from release 18: groups of known molecules, then ranking and confidence fitted to what is drawn with them.
# No network is trained.
#
#   weights/logs/19/commands.sh DATA RUNS      with weights/duallgd.safetensors of release 18
set -euo pipefail
data=$1 runs=$2
START=weights/duallgd.safetensors UNTIL=measured weights/train.sh "$data" "$runs"
duallgd weights analogues weights/duallgd.safetensors --molecules "$runs/measured" -o "$runs/known.safetensors"
python3 - "$runs" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import torch
from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.files import sha256

runs, old = Path(sys.argv[1]), load(Path("weights/duallgd.safetensors"))
note = "release 19: release 18 with the groups of known molecules; ranking and confidence are fitted to what is drawn with them"
record = old.record | {"note": note, "known_spectra": {"table_sha256": sha256(runs / "measured.tsv")}}
made = replace(load(runs / "known.safetensors"), record=record)
save(runs / "asked.safetensors", made, torch.float16, short_codes=True)
PYTHON
cp weights/duallgd.train.hashes "$runs/asked.train.hashes"
from=()
while read -r samples steps limit; do
  drawn="$runs/draw-$samples-$steps"
  duallgd evaluate --benchmark "$data/massbank/massbank.tsv.xz" --fold val --spectra-per-molecule 1 --drop-leaked --no-mces --device cpu \
    --precision bfloat16 --weights "$runs/asked.safetensors" -o "$drawn" --samples "$samples" --steps "$steps" --limit "$limit" < /dev/null
  from+=(--run "$drawn/predictions.csv")
done << 'DRAWS'
100 10 478
100 1 260
60 3 200
60 5 110
30 20 60
30 50 60
300 10 110
DRAWS
duallgd calibrate "$runs/asked.safetensors" "${from[@]}" --truth "$runs/draw-100-10/truth.tsv" -o "$runs/duallgd.safetensors"
