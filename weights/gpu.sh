#!/usr/bin/env bash
# An unattended GPU run in three commands, each within a stated number of minutes, in this order:
#
#   weights/gpu.sh bench   OUT [MINUTES]    tests, benches, training throughput                   (8)
#   weights/gpu.sh encoder OUT [MINUTES]    a wide encoder, spectra simulated as it learns        (9)
#   weights/gpu.sh joint   OUT [MINUTES]    the denoiser beside that encoder                      (9)
#
# Where the encoder is not what is wanted: decoder, the denoiser given true fingerprints, for bench or
# encoder. Needs torch, numpy, typer, rich, pyyaml and safetensors, no network, and no rdkit but for bench predict. Before,
# on a machine with rdkit, prepare and pack the data, once; packs/ is ignored by git:
#
#   UNTIL=cations weights/train.sh DATA prepared
#   duallgd data structures structures.tsv.xz -o prepared/sample --limit 20000
#   for name in alike measured large cations sample; do tar -cJf packs/$name.tar.xz -C prepared $name; done
#   python weights/recipe/encoder_at_scale.py prepared/measured prepared/sample -o runs/none --minutes 0.1 --device cpu \
#     --simulator packs/simulator.safetensors     # fits the fragment model, which takes ten minutes
#
# 400,000 structures take about 31 MB, the spectra 7 MB; large and cations may be left out.
#
# Carry packs/ (or, for bench alone, packs/sample.tar.xz and wheels of rdkit in .wheels/, so that
# molecules are assembled too). OUT receives logs, figures and weights, eight files or fewer of at most
# 15.5 MiB: larger weights come in parts, NAME.safetensors.0, .1, to be joined by cat. Keep what bench
# writes in examples/benchmarks/<date>-<machine>/.
#
# Whatever a command leaves in RUNS (runs/gpu) the next one on the same machine goes on with: run
# joint twice and the second goes on where the first stopped, TOTAL minutes being planned for in
# all; encoder begins anew each time. On a fresh machine the weights alone carry over: START=weights/encoder.safetensors.
#
#   START   weights for the decoder to start from; empty trains it from scratch   (weights/duallgd.safetensors)
#   TOTAL   minutes that the learning-rate schedule of a stage is made for   (those of the command)
#   SIMULATED, WORKERS   structures that get a simulated spectrum for joint, and processes   (300000, 16)
#   PAIRS, COMPILE   batch size in atom pairs, and on or off  (as bench found best)
#   TRIED   batches that bench tries, compiled or not : atom pairs   (off:100000 off:200000 off:400000 on:200000)
#   PREDICT, SCALING   options of duallgd bench predict and of duallgd bench   (as below)
#   EXTRA   further options of duallgd train for decoder and joint, such as "--set training.seed=2"
#   SCALE   further options of weights/recipe/encoder_at_scale.py, such as "--layers 6"
set -uo pipefail
command=${1:?bench, encoder, decoder or joint} out=${2:?a folder for results} minutes=${3:-}
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out" && out=$(cd "$out" && pwd)
cd "$here" || exit 2
runs=${RUNS:-runs/gpu} packs=${PACKS:-packs} start=${START-weights/duallgd.safetensors} device=${DEVICE:-cuda}
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OPENBLAS_NUM_THREADS=1
[ -n "$minutes" ] || { [ "$command" = bench ] && minutes=8 || minutes=9; }
until_s=$(($(date +%s) + minutes * 60))
mkdir -p "$runs"
duallgd() { python3 -m duallgd_cli "$@"; }
left() { echo $((until_s - $(date +%s))); }
within() { # SECONDS NAME COMMAND...: what it prints goes to NAME.log, its end to the screen
  local limit=$1 name=$2
  shift 2
  [ "$limit" -lt "$(left)" ] || limit=$(($(left) - 5))
  [ "$limit" -gt 5 ] || { echo "$name: no time left"; return; }
  timeout -k 10 "$limit" "$@" > "$out/$name.log" 2>&1
  echo "$name: exit $?, $(tail -n 1 "$out/$name.log" | cut -c -150)"
}
unpacked() { # NAME: prepared data, unpacked once
  [ -f "$runs/$1/manifest.json" ] || tar -xJf "$packs/$1.tar.xz" -C "$runs"
}
simulated() { # spectra of structures that have none, drawn once
  [ -f "$runs/simulated/manifest.json" ] || duallgd data simulate "$runs/alike" --like "$runs/measured" -o "$runs/simulated" \
    --limit "${SIMULATED:-300000}" --max-atoms 40 --workers "${WORKERS:-16}" ${SIMULATE:-} 2>&1 | tee "$out/simulate.log"
}
chosen() { # KEY DEFAULT: what bench found best on this machine
  sed -n "s/^$1=//p" "$runs/choice" 2> /dev/null | grep . || echo "$2"
}
rate() { # RUN: graphs or spectra a second, and seconds a step, over its last logged steps
  python3 - "$1/metrics.jsonl" << 'PYTHON'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
first, last = [row for row in rows if "s" in row][-2:]
print(f"{last['samples_per_s']:.0f} {(last['s'] - first['s']) / (last['step'] - first['step']):.5f}")
PYTHON
}
steps_in() { # SECONDS RUN: how many steps of the tried run fit, a tenth kept for looks and saves
  python3 -c "import sys; print(max(50, int(0.9 * float(sys.argv[1]) / float(sys.argv[3]))))" "$1" $(rate "$2") 2> /dev/null
}
shared=(--device "$device" --precision bfloat16 --quiet --set training.data.bucket=8
  --set training.data.max_atoms=66
  ${EXTRA:-})
try() { # RUN OPTIONS...: sixty steps to be thrown away
  rm -rf "$1"
  timeout -k 10 120 python3 -m duallgd_cli train -o "$@" --set training.log_every=20 --stop-after 60 \
    --set training.checkpoint_every=100000 --set training.validate_every=100000 "${shared[@]}"
}
handed() { # FILE NAME: weights to OUT, in parts if they are large
  if [ "$(stat -c %s "$1")" -lt 16000000 ]; then
    cp "$1" "$out/$2.safetensors"
  else
    split -b 15500000 -d -a 1 "$1" "$out/$2.safetensors."
  fi
}
stage() { # NAME SECONDS OPTIONS...: as many steps as fit the schedule's minutes, stopped in time
  local name=$1 seconds=$2 total=${TOTAL:-$minutes}
  shift 2
  if [ ! -f "$runs/$name.steps" ]; then
    try "$runs/try" --stage "$name" "$@" > "$out/$name.try.log" 2>&1
    steps_in $((seconds * total / minutes - 30)) "$runs/try" > "$runs/$name.steps" || echo 4000 > "$runs/$name.steps"
    echo "$name: $(rate "$runs/try" | cut -d ' ' -f 1) samples/s, $(cat "$runs/$name.steps") steps planned"
  fi
  local until=$(($(date +%s) + seconds))
  [ "$seconds" -lt "$(left)" ] || until=$((until_s - 15))
  duallgd train --stage "$name" -o "$runs/$name" "$@" --set training.steps="$(cat "$runs/$name.steps")" \
    --minutes "$(python3 -c "import time; print(max(0.1, ($until - 20 - time.time()) / 60))")" --set training.log_every=20 \
    --set training.checkpoint_every=500 --set training.validate_every=1000 "${shared[@]}" 2>&1 | tail -n 5
  [ -f "$runs/$name/model.safetensors" ] || { echo "$name: no weights; see above"; exit 1; }
  cp "$runs/$name/metrics.jsonl" "$out/$name.metrics.jsonl"
  handed "$runs/$name/model.safetensors" "$name"
  tail -n 2 "$out/$name.metrics.jsonl"
}

from=(${start:+--init-denoiser "$start"})
spectra=(--data "$runs/measured" --simulated "$runs/simulated" --compile off --set model.encoder.dropout=0.05
  --set training.data.peak_dropout=0.15)
case $command in
bench)
  { date -u +%F; nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; nproc
    python3 -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)'
    git rev-parse HEAD; } > "$out/machine.txt" 2> /dev/null
  compgen -G ".wheels/*.whl" > /dev/null && python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
    --target "$runs/site" .wheels/*.whl && export PYTHONPATH="$PYTHONPATH:$here/$runs/site"
  within 120 gpu-tests python3 -m pytest -q -m gpu tests/gpu -p no:cacheprovider
  if unpacked sample; then # the smallest batch within a tenth of the best
    for tried in ${TRIED:-off:100000 off:200000 off:400000 on:200000}; do
      [ "$(left)" -gt 240 ] || break
      try "$runs/try" --stage decoder --data "$runs/sample" --compile "${tried%:*}" \
        --set training.data.pairs_per_batch="${tried#*:}" > "$out/training.log" 2>&1 &&
        echo "$tried $(rate "$runs/try")"
    done | tee "$out/training.txt" # compiled or not : pairs in a batch, graphs/s, seconds a step
    sort -k 2 -n -r "$out/training.txt" | awk 'NR == 1 { best = $2 } $2 >= 0.9 * best { print $1 }' | sort -t : -k 2 -n |
      head -n 1 | sed 's/\(.*\):\(.*\)/compile=\1\npairs=\2/' > "$runs/choice"
  fi
  # shellcheck disable=SC2086
  within 150 bench-predict python3 -m duallgd_cli bench predict ${PREDICT:---atoms 30 --made 20 --steps 10 --samples 100} \
    --device "$device" -o "$out/predict" --profile
  # shellcheck disable=SC2086
  within 150 bench python3 -m duallgd_cli bench ${SCALING:---atoms 10..100:30 --steps 500 --seconds 5} \
    --device "$device" -o "$out/bench" --force
  (cd "$out" && tar -czf results.tar.gz --exclude results.tar.gz -- * && find . -mindepth 1 ! -name results.tar.gz ! -name '*.txt' -delete)
  ;;
decoder)
  unpacked alike || exit 1
  stage decoder $((minutes * 60 - 20)) --data "$runs/alike" --compile "${COMPILE:-$(chosen compile off)}" \
    --set training.data.pairs_per_batch="${PAIRS:-$(chosen pairs 200000)}" \
    --set training.optimiser.learning_rate="$([ -n "$start" ] && echo 5.0e-4 || echo 1.0e-3)" "${from[@]}"
  ;;
encoder)
  unpacked alike && unpacked measured || exit 1
  # shellcheck disable=SC2086
  python3 weights/recipe/encoder_at_scale.py "$runs/measured" "$runs/alike" -o "$runs/encoder" --device "$device" \
    --simulator "$packs/simulator.safetensors" --minutes "$(python3 -c "print(max(0.05, 0.7 * ($(left) - 90) / 60))")" \
    --ending "$(python3 -c "print(max(0.05, 0.3 * ($(left) - 90) / 60))")" ${SCALE:-} || exit 1
  cp "$runs/encoder/metrics.jsonl" "$out/encoder.metrics.jsonl"
  handed "$runs/encoder/encoder.safetensors" encoder
  ;;
joint)
  unpacked alike && unpacked measured && simulated || exit 1
  denoiser=$runs/decoder encoder=$runs/encoder/encoder.safetensors
  [ -d "$denoiser" ] || denoiser=${start:-weights/duallgd.safetensors}
  [ -f "$encoder" ] || encoder=${start:-weights/duallgd.safetensors}
  spectra+=(--structures "$runs/alike") # the first is validated on
  for more in large cations; do
    [ -f "$packs/$more.tar.xz" ] && unpacked $more && spectra+=(--structures "$runs/$more")
  done
  stage joint $(($(left) - 20)) "${spectra[@]}" --init-denoiser "$denoiser" --init-encoder "$encoder" \
    --set training.freeze_encoder=true --set training.data.pairs_per_batch="${PAIRS:-100000}" --set training.optimiser.learning_rate=3.0e-4
  ;;
*) echo "bench, encoder, decoder or joint, not $command" >&2; exit 2 ;;
esac
ls -l "$out"
