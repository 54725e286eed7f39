#!/usr/bin/env bash
# How release 26 was made from release 25: the ranking asks which surroundings of atoms known structures have; no network was trained.
#
# As it was: the draws are release 25's, which base.safetensors gives again to the byte; each candidate's environments were counted afterwards, and the
# headers of the journals given the digest of base.safetensors by hand. The order of candidates was fitted to 40 runs of 300 samples, 200 of 30 in 10 steps and
# 150 of 10, and those of the other lines below; confidence was fitted once more, with --keep-ranking, to all. The runs of 300 samples, and of 30 in 10 steps,
# were drawn in two parts: those, and 110 and 322 of the other molecules.
#
#   weights/logs/26/commands.sh DATA RUNS      with weights/duallgd.safetensors of release 25
set -euo pipefail
data=$1 runs=$2
UNTIL=structures weights/train.sh "$data" "$runs"
python3 - "$runs" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.chem.environments import known_environments
from duallgd_cli.data.prepared import load_molecules
from duallgd_cli.generator.templates import mols_of

runs, before = Path(sys.argv[1]), load(Path("weights/duallgd.safetensors"))
known = load_molecules(runs / "structures")
seen = known_environments(mols_of(known, np.flatnonzero(known.in_folds("train")), lambda _: None))
note = "release 26: release 25 with environments of known structures; ranking and confidence are fitted anew"
made = replace(
    before,
    reranker=before.reranker | {"environments": torch.from_numpy(seen)},
    record=before.record | {"note": note},
)
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
300 10 150
100 1 200
60 10 100
60 3 160
60 5 110
30 10 522
30 20 30
30 50 20
10 10 250
5 10 80
1 10 150
DRAWS
duallgd calibrate "$runs/base.safetensors" "${from[@]}" --truth "$runs/draw-100-10/truth.tsv" -o "$runs/duallgd.safetensors"
python3 weights/recipe/parts.py "$data" --run "$runs/draw-100-10/predictions.csv" --run "$runs/draw-300-10/predictions.csv" \
  --truth "$runs/draw-100-10/truth.tsv" --weights "$runs/duallgd.safetensors" --keep-prior
python3 weights/recipe/recorded_draws.py "$runs/duallgd.safetensors" "${from[@]}" --truth "$runs/draw-100-10/truth.tsv" \
  -o tests/unit/evaluate/recorded_draws.npz
