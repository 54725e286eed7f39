#!/usr/bin/env bash
# From the two data tables to weights/duallgd.safetensors: the commands that made the shipped file.
# Every stage resumes if it is interrupted: run the script again.
#
#   weights/make.sh DATA RUNS
#
# DATA holds massbank/massbank.tsv.xz and structures/structures.tsv.xz; RUNS gets prepared data and runs.
# On one core of the machine in the model card: about 15 minutes to prepare, 65 for the decoder,
# 50 for the encoder, 25 for the joint stage, 30 to fit ranking and confidence.
set -euo pipefail
data=$1 runs=$2
export OMP_WAIT_POLICY=PASSIVE
one_core=(--device cpu --precision bfloat16 --threads 1)

[ -f "$runs/structures/manifest.json" ] || duallgd data structures "$data/structures/structures.tsv.xz" -o "$runs/structures"
[ -f "$runs/massbank/manifest.json" ] || duallgd data spectra "$data/massbank/massbank.tsv.xz" -o "$runs/massbank"

# Stopped at step 8,000 of its schedule for want of time; the joint stage anneals both parts.
duallgd train --stage decoder --data "$runs/structures" -o "$runs/decoder" "${one_core[@]}" --stop-after 8000 \
  --set training.steps=12500 --set training.data.max_atoms=40 --set training.data.pairs_per_batch=8000 \
  --set training.log_every=50 --set training.validate_every=1500

duallgd train --stage encoder --data "$runs/massbank" --structures "$runs/structures" -o "$runs/encoder" "${one_core[@]}" \
  --set training.steps=4000 --set training.data.max_atoms=50 --set training.data.simulated_share=0.33 \
  --set training.log_every=50 --set training.validate_every=500

duallgd train --stage joint --data "$runs/massbank" --structures "$runs/structures" -o "$runs/joint" "${one_core[@]}" \
  --init-denoiser "$runs/decoder" --init-encoder "$runs/encoder" \
  --set training.steps=2600 --set training.data.max_atoms=40 --set training.data.pairs_per_batch=8000 \
  --set training.data.false_bits=160 --set training.data.clean_share=0.1 \
  --set training.optimiser.learning_rate=3.0e-4 --set training.log_every=50 --set training.validate_every=1300

# Ranking and confidence are fitted on 200 molecules of fold val, one spectrum each.
duallgd evaluate --benchmark "$data/massbank/massbank.tsv.xz" --fold val --spectra-per-molecule 1 --limit 200 \
  --no-mces --no-rivals --weights "$runs/joint/model.safetensors" -o "$runs/val"
duallgd calibrate "$runs/joint/model.safetensors" --run "$runs/val/predictions.csv" --truth "$runs/val/truth.tsv" \
  -o weights/duallgd.safetensors

# The list of what was trained on, which evaluate looks test molecules up in.
duallgd weights hashes "$runs/structures" "$runs/massbank" --max-atoms 50 -o weights/duallgd.train.hashes
