#!/usr/bin/env bash
# How release 17 was made from release 16: two joint stages with parts of molecules given, and their mean.
#
#   weights/logs/17/commands.sh DATA RUNS      at commit c4d37d8, one core of a CPU
#
# Data as weights/train.sh makes them (its stages up to simulated-joint; `simulated` is not needed: touch
# RUNS/done/simulated).
set -euo pipefail
data=$1 runs=$2
START=weights/duallgd.safetensors UNTIL=simulated-joint weights/train.sh "$data" "$runs"
joint=(--stage joint --data "$runs/measured" --simulated "$runs/simulated-joint" --structures "$runs/alike" --device cpu
  --precision bfloat16 --set training.freeze_encoder=true --set training.optimiser.weight_decay=0.05
  --set training.optimiser.ema=0.997 --set training.data.max_atoms=66 --set training.data.clean_share=0.1
  --set training.data.peak_dropout=0.15 --set training.data.pairs_per_batch=8000 --set training.log_every=50)
duallgd train "${joint[@]}" --structures "$runs/large" --structures "$runs/cations" -o "$runs/joint17" \
  --init-denoiser weights/duallgd.safetensors --init-encoder weights/duallgd.safetensors --set training.seed=71 \
  --set training.steps=7400 --set training.optimiser.learning_rate=5.0e-4 --set training.data.core_share=0.35 \
  --set training.validate_every=1850
duallgd train "${joint[@]}" -o "$runs/joint17b" --init-denoiser "$runs/joint17" --init-encoder "$runs/joint17" \
  --set training.seed=72 --set training.steps=3000 --set training.optimiser.learning_rate=4.0e-4 \
  --set training.data.core_share=0.25 --set training.validate_every=1000
# Re-ranker, templates, ranking and confidence are those of release 16.
python3 - "$runs" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import torch
from duallgd_cli.checkpoint.derived import average
from duallgd_cli.checkpoint.format import load, save

runs, old = Path(sys.argv[1]), load(Path("weights/duallgd.safetensors"))
paths = [runs / name / "model.safetensors" for name in ("joint17", "joint17b")]
mean = average({path: load(path) for path in paths})
note = (
    "release 17: two joint stages from release 16, parts of molecules given; re-ranker, templates, ranking, confidence "
    "and their validation are release 16's"
)
record = mean.record | {"note": note, "core_hours": 29.4}
record |= {name: old.record[name] for name in ("evidence", "ranking_validation")}
kept = {"reranker": old.reranker, "templates": old.templates, "ranking": old.ranking, "record": record}
made = replace(mean, **kept)
save(runs / "duallgd.safetensors", made, torch.float16, short_codes=True)
PYTHON
duallgd weights hashes "$runs/measured" "$runs/alike" "$runs/large" "$runs/cations" \
  --also weights/duallgd.train.hashes -o "$runs/duallgd.train.hashes"
