#!/usr/bin/env bash
# From the shared tables to a weights file, stage by stage, with today's code and one seed.
#
#   weights/train.sh DATA RUNS [--tiny]
#
# DATA holds massbank/massbank.tsv.xz, extra/extra.tsv.xz (if there is one) and structures/structures.tsv.xz.
# RUNS gets prepared data, runs and, at the end, duallgd.safetensors with its list of training molecules.
# weights/recipe.yaml says how much of everything; --tiny takes weights/recipe/tiny.yaml, to try the script.
#
# Run it again after an interruption: finished stages are skipped (RUNS/done/), a training stage goes on
# where it was, any other begins again. RUNS/stages.tsv has the processor seconds of the script before (-)
# and after (+) each; a try that was killed with the script has no second line, and does not count.
#
#   START     weights to start the decoder from, instead of nothing           (empty)
#   DEVICE    where to train: cpu, cuda                                       (auto)
#   UNTIL     last stage of this call, such as simulated-joint                (all)
set -euo pipefail
data=${1:?folder of the tables} runs=${2:?folder of the runs} here=$(cd "$(dirname "$0")" && pwd)
recipe=$here/recipe.yaml
[ "${3:-}" != --tiny ] || recipe=$here/recipe/tiny.yaml
export OMP_WAIT_POLICY=PASSIVE PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$runs/done"
[ -f "$runs/recipe.yaml" ] || cp "$recipe" "$runs/recipe.yaml"
cmp -s "$recipe" "$runs/recipe.yaml" || { echo "$runs was begun with another recipe; give another folder" >&2; exit 2; }
[ -f "$runs/start" ] || echo "${START:-}" > "$runs/start"
start=$(cat "$runs/start")

duallgd() { python3 -m duallgd_cli "$@"; }
section() { # NAME OUTPUT: a part of the recipe as a YAML file, the seed in it
  python3 - "$recipe" "$1" > "$2" << 'PYTHON'
import sys, yaml
recipe = yaml.safe_load(open(sys.argv[1]))
part = recipe[sys.argv[2]]
part["training"]["seed"] = recipe["seed"]
print(yaml.safe_dump(part))
PYTHON
}
options() { # NAME [INDEX]: a part of the recipe as options, the seed among them if it has one
  python3 - "$recipe" "$@" << 'PYTHON'
import sys, yaml
path, name, *index = sys.argv[1:]
part = yaml.safe_load(open(path))[name]
print(*(f"--{key} {value}" for key, value in (part[int(index[0])] if index else part).items()))
PYTHON
}
seed=$(sed -n 's/^seed: //p' "$recipe")
spent() { # NAME SIGN: the processor time of all that has ended so far, as a line of RUNS/stages.tsv
  times > "$runs/times" # not of a subshell, which has ended nothing
  awk -v name="$1" -v sign="$2" 'NR == 2 { split($0, t, /[ms ]+/); print name "\t" sign (t[1] * 60 + t[2] + t[3] * 60 + t[4]) }' "$runs/times" >> "$runs/stages.tsv"
}
stage() { # NAME COMMAND...: once
  local name=$1 code
  shift
  if [ ! -f "$runs/done/$name" ]; then
    echo "== $name"
    spent "$name" -
    set +e # or the shell would go on after a failed line of the stage
    (set -e; "$@")
    code=$?
    set -e
    spent "$name" +
    [ "$code" = 0 ] || exit "$code"
    touch "$runs/done/$name"
  fi
  [ "$name" != "${UNTIL:-}" ] || exit 0
}
train() { # STAGE NAME OPTIONS...: resumes by itself
  local kind=$1 name=$2
  shift 2
  section "$name" "$runs/$name.yaml"
  duallgd train --stage "$kind" --config "$runs/$name.yaml" -o "$runs/$name" --force --device "${DEVICE:-auto}" --precision bfloat16 "$@"
}
measured() { # all spectra that may be looked at, and the molecules that must not be trained on
  python3 - "$runs/measured.tsv" "$runs/held-out.keys" "$data/massbank/massbank.tsv.xz" "$data/extra/extra.tsv.xz" << 'PYTHON'
import csv, lzma, pathlib, sys
table, keys, first, *others = sys.argv[1:]
csv.field_size_limit(1 << 30)
held = set()
with open(table, "w", newline="") as stream:
    rows = csv.DictReader(lzma.open(first, "rt"), delimiter="\t")
    writer = csv.DictWriter(stream, rows.fieldnames, delimiter="\t", lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for path in (first, *filter(lambda path: pathlib.Path(path).is_file(), others)):
        for row in csv.DictReader(lzma.open(path, "rt"), delimiter="\t"):
            if row["fold"] != "train":
                held.add(row["inchikey"])
            if row["fold"] != "test":
                writer.writerow(row)
pathlib.Path(keys).write_text("".join(f"{key}\n" for key in sorted(held)))
PYTHON
  duallgd data spectra "$runs/measured.tsv" -o "$runs/measured" --force
}
alike() { # NAME OPTIONS...: structures of RUNS/structures that are like measured ones
  local name=$1
  shift
  # shellcheck disable=SC2046
  python3 "$here/recipe/select_structures.py" "$runs/structures" --reference-spectra "$runs/measured" -o "$runs/$name" --seed "$seed" $(options "$name") "$@"
}
cations() {
  python3 "$here/recipe/cations.py" "$data/structures/structures.tsv.xz" -o "$runs/cations.smi" --seed "$seed" $(options cations)
  duallgd data structures "$runs/cations.smi" -o "$runs/cations" --holdout "$runs/held-out.keys" --force
}
simulated() { # NAME SEED
  duallgd data simulate "$runs/alike" --like "$runs/measured" -o "$runs/$1" --seed "$2" $(options "$1") --force
}
hashes() {
  duallgd weights hashes "$runs/measured" "$runs/alike" "$runs/large" "$runs/cations" --force -o "$runs/templates.train.hashes" \
    ${start:+--also "${start%.safetensors}.train.hashes"}
  cp "$runs/templates.train.hashes" "$runs/ranked.train.hashes"
  cp "$runs/templates.train.hashes" "$runs/duallgd.train.hashes"
}
draw() { # WEIGHTS INDEX
  duallgd evaluate --benchmark "$data/massbank/massbank.tsv.xz" --fold val --spectra-per-molecule 1 --drop-leaked --no-mces \
    --device "${DEVICE:-auto}" --precision bfloat16 --weights "$runs/$1.safetensors" -o "$runs/draw-$1-$2" --seed "$seed" --resume --force $(options draws "$2")
}
confidence() { # from every draw
  local runs_of=() index
  for index in $(python3 -c 'import sys, yaml; print(*range(len(yaml.safe_load(open(sys.argv[1]))["draws"])))' "$recipe"); do
    draw ranked "$index"
    runs_of+=(--run "$runs/draw-ranked-$index/predictions.csv")
  done
  duallgd calibrate "$runs/ranked.safetensors" --force "${runs_of[@]}" --truth "$runs/draw-ranked-0/truth.tsv" --keep-ranking -o "$runs/fitted.safetensors"
}
recorded() { # the recipe, the commit and what it cost go into the file; data digests are there already
  python3 - "$recipe" "$runs" "$start" "$(git -C "$here" rev-parse HEAD 2> /dev/null || true)" << 'PYTHON'
import sys
from dataclasses import replace
from pathlib import Path

import torch, yaml
from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.files import sha256

recipe, runs, start, commit = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]
marks = [line.split("\t")[1] for line in (runs / "stages.tsv").read_text().splitlines()]
hours = sum(float(a) + float(b) for a, b in zip(marks, marks[1:]) if a[0] + b[0] == "-+") / 3600
said = f"{recipe.name}, from {start or 'nothing'}"
made = {"recipe": said, "commit": commit, "core_hours": round(hours, 3), "table_sha256": sha256(runs / "measured.tsv")}
made["made_by"] = yaml.safe_load(recipe.read_text())
fitted = load(runs / "fitted.safetensors")
save(runs / "duallgd.safetensors", replace(fitted, record=fitted.record | made), torch.float16, short_codes=True)
print(f"{runs / 'duallgd.safetensors'}: {hours:.2f} core-hours")
PYTHON
}

{ # read whole before it runs: an edit of this file during a long run would otherwise move it under the shell
stage measured measured
stage structures duallgd data structures --force "$data/structures/structures.tsv.xz" -o "$runs/structures" --holdout "$runs/held-out.keys" $(options structures)
stage alike alike alike
stage large alike large --with-measured
stage cations cations
stage simulated simulated simulated "$seed"
stage simulated-joint simulated simulated-joint $((seed + 1)) # spectra that the encoder has not seen
from=(${start:+--init-denoiser "$start"})
stage decoder train decoder decoder --data "$runs/structures" "${from[@]}"
stage encoder train encoder encoder --data "$runs/measured" --simulated "$runs/simulated"
stage joint train joint joint --data "$runs/measured" --structures "$runs/alike" --structures "$runs/large" --structures "$runs/cations" \
  --simulated "$runs/simulated-joint" --init-denoiser "$runs/decoder" --init-encoder "$runs/encoder"
stage templates duallgd weights analogues --force "$runs/joint/model.safetensors" --molecules "$runs/measured" \
  --structures "$runs/alike" -o "$runs/known.safetensors"
stage evidence duallgd weights evidence --force "$runs/known.safetensors" --structures "$runs/structures" --spectra "$runs/measured" \
  -o "$runs/templates.safetensors" --seed "$seed" $(options evidence)
stage hashes hashes
stage draw draw templates 0
stage ranking duallgd calibrate --force "$runs/templates.safetensors" --run "$runs/draw-templates-0/predictions.csv" \
  --truth "$runs/draw-templates-0/truth.tsv" -o "$runs/ranked.safetensors"
stage confidence confidence
stage record recorded
exit
}
