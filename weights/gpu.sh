#!/usr/bin/env bash
# A whole GPU run, unattended: GPU tests, more training from the shipped weights, new weights out.
#
#   weights/gpu.sh DATA RUNS OUT [MINUTES]
#
# DATA and RUNS as in make.sh (prepared data that already lie in RUNS are used; preparing needs
# rdkit, training does not), OUT receives logs and weights, MINUTES (default 9) bounds the run.
# Weights alone carry over: a longer run is this script again with the weights that it wrote.
set -uo pipefail
data=$1 runs=$2 out=$3 minutes=${4:-9}
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
duallgd() { python3 -m duallgd_cli "$@"; }
until_s=$(($(date +%s) + minutes * 60))
left() { echo $((until_s - $(date +%s))); }
mkdir -p "$out" "$runs"

python3 -m pytest -q -m gpu "$here/tests/gpu" -p no:cacheprovider > "$out/gpu-tests.log" 2>&1
tail -n 1 "$out/gpu-tests.log"

[ -f "$runs/structures/manifest.json" ] || duallgd data structures "$data/structures/structures.tsv.xz" -o "$runs/structures"
[ -f "$runs/massbank/manifest.json" ] || duallgd data spectra "$data/massbank/massbank.tsv.xz" -o "$runs/massbank"

start="$here/weights/duallgd.safetensors"
gpu=(--device cuda --precision bfloat16)
big=(--set training.data.bucket=8 --set training.data.pairs_per_batch=200000 --set training.checkpoint_every=200 --set training.validate_every=1000)

# Two thirds of what is left go to the decoder, the rest to the joint stage. An interrupt saves the
# state, so timeout's signal costs nothing.
timeout -s INT $(($(left) * 2 / 3)) python3 -m duallgd_cli train --stage decoder --data "$runs/structures" \
  -o "$runs/gpu-decoder" "${gpu[@]}" "${big[@]}" --init-denoiser "$start" --init-encoder "$start" \
  --set training.steps=6000 --set training.optimiser.learning_rate=8.0e-4 2>&1 | tail -n 20
timeout -s INT $(($(left) - 30)) python3 -m duallgd_cli train --stage joint --data "$runs/massbank" \
  --structures "$runs/structures" -o "$runs/gpu-joint" "${gpu[@]}" "${big[@]}" \
  --init-denoiser "$runs/gpu-decoder" --init-encoder "$start" \
  --set training.steps=2000 --set training.optimiser.learning_rate=2.0e-4 2>&1 | tail -n 20

for stage in decoder joint; do
  cp "$runs/gpu-$stage/metrics.jsonl" "$out/$stage.metrics.jsonl"
  cp "$runs/gpu-$stage/model.safetensors" "$out/$stage.safetensors"
done
ls -l "$out"
