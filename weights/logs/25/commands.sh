#!/usr/bin/env bash
# How release 25 was made from release 24: another encoder, of eight layers of 256; the denoiser and all else is release 24's.
#
# As it was: the encoder learned on a GPU by a forerunner of `weights/recipe/encoder_at_scale.py` (batches of 4,096, constant rate of 2e-3 for 100 s,
# then 30 s with 35 % measured spectra), then on one core by another script that read the same kind of batches from memory, in two runs of 1,000 steps of
# 256 (from rates of 6e-4 and 3.7e-4, 35 and 30 % measured, 240,000 spectra simulated beforehand); the first run's second state is of its step 600.
# The commands below say the same with today's programs, and will not give the same numbers. Of the draws those of 100 samples in 10 steps, and
# of 300 samples of 47 molecules, are of this release; the others are of releases 22 to 24, their agreement with the fingerprint computed anew.
#
#   weights/logs/25/commands.sh DATA RUNS      with weights/duallgd.safetensors of release 24, on a machine with a GPU
set -euo pipefail
data=$1 runs=$2
START=weights/duallgd.safetensors UNTIL=alike weights/train.sh "$data" "$runs"
python3 weights/recipe/encoder_at_scale.py "$runs/measured" "$runs/structures" -o "$runs/encoder" --device cuda --minutes 3 --batch 4096 \
  --simulator "$runs/simulator.safetensors"
duallgd data simulate "$runs/structures" --like "$runs/measured" -o "$runs/simulated" --limit 240000 --max-atoms 60 --seed 2
before=$runs/encoder/encoder.safetensors
for run in 600 1000 2000; do
  rate=6.0e-4 steps=$run
  [ "$run" != 2000 ] || rate=3.7e-4 steps=1000
  [ "$run" = 2000 ] || before=$runs/encoder/encoder.safetensors
  printf 'model: {encoder: {width: 256, layers: 8, summary: 320, dropout: 0.1}}\ntraining: {seed: 7, steps: %s, optimiser: {learning_rate: %s, weight_decay: 0.05, ema: 0.995}, data: {spectra_per_batch: 256, simulated_share: 0.65, peak_dropout: 0.15}}\n' \
    "$steps" "$rate" > "$runs/encoder-$run.yaml"
  duallgd train --stage encoder --config "$runs/encoder-$run.yaml" -o "$runs/encoder-$run" --device cpu --precision bfloat16 \
    --data "$runs/measured" --simulated "$runs/simulated" --init-encoder "$before"
  before=$runs/encoder-$run
done
# The mean of the three networks, tensor by tensor; the command went after release 26.
duallgd weights average "$runs"/encoder-{600,1000,2000}/model.safetensors -o "$runs/mean.safetensors"
python3 - "$runs" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import torch
from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.data.prepared import load_spectra
from duallgd_cli.generator.network import parts_of
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.train.known_spectra import fit_kernel

runs, path = Path(sys.argv[1]), Path("weights/duallgd.safetensors")
before, mean, spectra = load(path), load(runs / "mean.safetensors"), load_spectra(runs / "measured")
own = {name: value.float() for name, value in mean.tensors.items() if name.startswith("encoder.")}
encoder = FormulaTransformer(mean.settings.encoder).eval()
encoder.load_state_dict({name.removeprefix("encoder."): value for name, value in own.items()})
known = parts_of(before, path).templates.molecules
note = "release 25: release 24 with an encoder of eight layers of 256; ranking and confidence are fitted anew"
made = replace(
    before,
    settings=replace(before.settings, encoder=mean.settings.encoder),
    tensors={name: value for name, value in before.tensors.items() if name not in own and not name.startswith("encoder.")} | own,
    kernel=before.kernel | {"mixing": fit_kernel(encoder, spectra, known)["mixing"]},
    ranking={},
    record=before.record | {"note": note},
)
save(runs / "base.safetensors", made, torch.float16, short_codes=True)
PYTHON
duallgd weights hashes "$runs/measured" "$runs/structures" --also weights/duallgd.train.hashes -o "$runs/base.train.hashes"
draws() { # NAME WEIGHTS: runs on fold val; standard input has samples, steps and molecules of each
  from=()
  while read -r samples steps limit; do
    drawn="$runs/$1-$samples-$steps"
    duallgd evaluate --benchmark "$data/massbank/massbank.tsv.xz" --fold val --spectra-per-molecule 1 --drop-leaked --no-mces --device cpu \
      --precision bfloat16 --weights "$runs/$2.safetensors" -o "$drawn" --samples "$samples" --steps "$steps" --limit "$limit" < /dev/null
    from+=(--run "$drawn/predictions.csv")
  done
}
draws draw base << 'DRAWS'
100 10 522
300 10 375
100 1 200
60 3 160
60 5 110
30 20 50
30 50 40
DRAWS
duallgd calibrate "$runs/base.safetensors" "${from[@]}" --truth "$runs/draw-100-10/truth.tsv" -o "$runs/duallgd.safetensors"
python3 weights/recipe/parts.py "$data" --run "$runs/draw-100-10/predictions.csv" --run "$runs/draw-300-10/predictions.csv" \
  --truth "$runs/draw-100-10/truth.tsv" --weights "$runs/duallgd.safetensors" --keep-prior
# Added later: the ranking of a database's structures, these and all held-out molecules.
{
  echo smiles
  xzcat "$data/structures/structures.tsv.xz" | tail -n +2 | cut -f1
  xzcat "$data/massbank/massbank.tsv.xz" | awk -F'\t' 'NR > 1 && $12 != "train" {print $4}' | sort -u
} > "$runs/database.tsv"
duallgd evaluate --benchmark "$data/massbank/massbank.tsv.xz" --fold val --spectra-per-molecule 1 --drop-leaked --no-mces --device cpu \
  --precision bfloat16 --weights "$runs/duallgd.safetensors" -o "$runs/val-database" --samples 100 --steps 10 --database "$runs/database.tsv" < /dev/null
duallgd calibrate "$runs/duallgd.safetensors" --run "$runs/val-database/predictions.csv" --truth "$runs/val-database/truth.tsv" -o "$runs/with-database.safetensors"
# Added later: confidence fitted anew, without the known molecules and on whole runs of this release alone; the order of candidates stays. The draws of
# 100 and a part of those of 300 samples in 10 steps were the ones above, their headers given the digest of these weights by hand, and of 300 samples there were 101 in all.
draws again with-database << 'DRAWS'
100 10 522
300 10 101
100 1 200
60 10 100
60 3 160
60 5 110
30 10 200
30 20 50
30 50 40
10 10 200
5 10 150
1 10 200
DRAWS
duallgd calibrate "$runs/with-database.safetensors" "${from[@]}" --truth "$runs/again-100-10/truth.tsv" --keep-ranking -o "$runs/confidence.safetensors"
duallgd calibrate "$runs/confidence.safetensors" --run "$runs/val-database/predictions.csv" --truth "$runs/val-database/truth.tsv" --keep-ranking \
  -o "$runs/confidences.safetensors"
