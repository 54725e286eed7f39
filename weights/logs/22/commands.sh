#!/usr/bin/env bash
# How release 22 was made from release 21: the fragment model of the re-ranker learns to tell molecules of fold train from rivals of their
# formula, then ranking and confidence are fitted to what is drawn with it. The substructure prior and the network stay as they are.
#
#   weights/logs/22/commands.sh DATA RUNS      with weights/duallgd.safetensors of release 21
set -euo pipefail
data=$1 runs=$2
START=weights/duallgd.safetensors UNTIL=measured weights/train.sh "$data" "$runs"
python3 - "$runs" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import torch
from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.data.prepared import load_spectra
from duallgd_cli.generator.rivals import rivals_of
from duallgd_cli.generator.templates import Templates
from duallgd_cli.train.evidence import fit_evidence, one_of_each

runs, old = Path(sys.argv[1]), load(Path("weights/duallgd.safetensors"))
spectra, encoder, known = load_spectra(runs / "measured"), old.build().encoder, Templates.of(old.templates)
rivals = {int(spectra.molecule[s]): rivals_of(spectra, s, encoder, known, seed=1) for s in one_of_each(spectra, seed=1)}
tensors, fitted = fit_evidence(spectra.molecules, spectra, rivals, 4096, steps=2500, seed=1)
tensors["log_prevalence"] = old.reranker["log_prevalence"]  # of 776,574 structures
fitted["structures"] = old.record["evidence"]["structures"]
note = "release 22: release 21 with a fragment model that tells molecules from rivals; ranking and confidence are fitted anew"
record = old.record | {"note": note, "evidence": fitted}
save(runs / "base.safetensors", replace(old, reranker=tensors, record=record, ranking={}), torch.float16, short_codes=True)
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
