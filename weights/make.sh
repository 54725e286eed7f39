#!/usr/bin/env bash
# From the two data tables to weights/duallgd.safetensors: the commands that made the shipped file.
# Every stage resumes if it is interrupted: run the script again.
#
#   weights/make.sh DATA RUNS
#
# DATA holds massbank/massbank.tsv.xz and structures/structures.tsv.xz; RUNS gets prepared data and runs.
# On the machine in the model card: about an hour to prepare, 22 hours to train, 50 minutes to predict for
# the fit of ranking and confidence.
#
# The stages of the first part were run by the code of the first release, whose fingerprints were
# corrupted otherwise and whose encoder and pair layers were wider by default; both encoders of the
# first two parts saw spectra simulated by a cruder model, that of the third part poorer ones, 3 % of
# them of neutral molecules as [M]+. With today's code they give weights like those, not the same
# ones. The fourth part was run as it stands here; only its denoiser stems from the others. So were the
# fifth and the seventh, but that each started from the shipped file of the release before; two runs of
# the fifth were stopped by hand.
set -euo pipefail
data=$1 runs=$2
export OMP_WAIT_POLICY=PASSIVE
one_core=(--device cpu --precision bfloat16 --threads 1)
# AdamW up to the fourth part, then Muon for the matrices.
log=(--set training.log_every=50 --set training.optimiser.matrices=adamw)
small=(--set training.data.max_atoms=40 --set training.data.pairs_per_batch=8000)

[ -f "$runs/structures/manifest.json" ] || duallgd data structures "$data/structures/structures.tsv.xz" -o "$runs/structures"
[ -f "$runs/massbank/manifest.json" ] || duallgd data spectra "$data/massbank/massbank.tsv.xz" -o "$runs/massbank"
[ -f "$runs/simulated/manifest.json" ] || duallgd data simulate "$runs/structures" --like "$runs/massbank" -o "$runs/simulated" \
  --limit 120000 --max-atoms 40

# First part: a wide network. The decoder stopped at step 8,000 of its schedule; the joint stage annealed it.
wide=(--set model.denoiser.pair_feed=4 --set model.encoder.summary=256 --set model.encoder.dropout=0.1
  --set model.denoiser.fade_from=100 --set model.denoiser.fade_to=300) # positions faded up to the sixth part
duallgd train --stage decoder --data "$runs/structures" -o "$runs/decoder" "${one_core[@]}" "${log[@]}" "${small[@]}" "${wide[@]}" \
  --stop-after 8000 --set training.steps=12500 --set training.validate_every=1500
duallgd train --stage encoder --data "$runs/massbank" --simulated "$runs/simulated" -o "$runs/encoder" "${one_core[@]}" "${log[@]}" "${wide[@]}" \
  --set training.steps=4000 --set training.data.simulated_share=0.33 --set training.validate_every=500
duallgd train --stage joint --data "$runs/massbank" --structures "$runs/structures" -o "$runs/joint" "${one_core[@]}" "${log[@]}" "${small[@]}" \
  --init-denoiser "$runs/decoder" --init-encoder "$runs/encoder" \
  --set training.steps=2600 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=3.0e-4 --set training.validate_every=1300

# Second part: narrower pair layers, trained on from there; a new encoder, regularised more.
duallgd weights narrow "$runs/joint/model.safetensors" --pair-feed 3 -o "$runs/narrow.safetensors"
duallgd train --stage decoder --data "$runs/structures" -o "$runs/decoder2" "${one_core[@]}" "${log[@]}" "${small[@]}" \
  --init-denoiser "$runs/narrow.safetensors" --init-encoder "$runs/narrow.safetensors" --stop-after 8500 \
  --set training.steps=9500 --set training.seed=2 --set training.optimiser.learning_rate=7.0e-4 --set training.validate_every=1000
duallgd train --stage encoder --data "$runs/massbank" --simulated "$runs/simulated" -o "$runs/encoder2" "${one_core[@]}" "${log[@]}" \
  --set training.steps=3600 --set training.seed=2 --set training.optimiser.weight_decay=0.05 --set training.validate_every=500
duallgd train --stage joint --data "$runs/massbank" --structures "$runs/structures" -o "$runs/joint2" "${one_core[@]}" "${log[@]}" "${small[@]}" \
  --init-denoiser "$runs/decoder2" --init-encoder "$runs/encoder2" \
  --set training.steps=2800 --set training.seed=2 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=4.0e-4 --set training.validate_every=700

# Third part: an encoder that learnt from the better simulated spectra, and those in the joint stage too.
duallgd train --stage encoder --data "$runs/massbank" --simulated "$runs/simulated" -o "$runs/encoder3" "${one_core[@]}" "${log[@]}" \
  --set training.steps=3600 --set training.seed=3 --set training.optimiser.weight_decay=0.05 --set training.validate_every=500
duallgd train --stage joint --data "$runs/massbank" --structures "$runs/structures" --simulated "$runs/simulated" -o "$runs/joint3" \
  "${one_core[@]}" "${log[@]}" "${small[@]}" --init-denoiser "$runs/joint2" --init-encoder "$runs/encoder3" \
  --set training.steps=3000 --set training.seed=3 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=4.0e-4 --set training.validate_every=750

# Fourth part: more simulated spectra, as rich as measured ones; longer in all stages. The decoder was
# stopped by hand.
[ -f "$runs/simulated4/manifest.json" ] || duallgd data simulate "$runs/structures" --like "$runs/massbank" -o "$runs/simulated4" \
  --limit 200000 --max-atoms 40 --seed 4
duallgd train --stage encoder --data "$runs/massbank" --simulated "$runs/simulated4" -o "$runs/encoder4" "${one_core[@]}" "${log[@]}" \
  --set training.steps=7500 --set training.seed=4 --set training.optimiser.weight_decay=0.05 --set training.validate_every=500 \
  --set training.data.simulated_share=0.6
duallgd train --stage decoder --data "$runs/structures" -o "$runs/decoder4" "${one_core[@]}" "${log[@]}" "${small[@]}" \
  --init-denoiser "$runs/joint3" --init-encoder "$runs/joint3" --stop-after 5967 \
  --set training.steps=9000 --set training.seed=4 --set training.optimiser.learning_rate=6.0e-4 --set training.validate_every=1500
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train --stage joint --data "$runs/massbank" --structures "$runs/structures" \
  --simulated "$runs/simulated4" -o "$runs/joint4" "${one_core[@]}" "${log[@]}" "${small[@]}" \
  --init-denoiser "$runs/decoder4" --init-encoder "$runs/encoder4" \
  --set training.steps=2100 --set training.seed=4 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=5.0e-4 \
  --set training.validate_every=800

# Fifth part: matrices updated by Muon, all stages going on from the fourth release.
[ -f "$runs/simulated5/manifest.json" ] || duallgd data simulate "$runs/structures" --like "$runs/massbank" -o "$runs/simulated5" \
  --limit 150000 --max-atoms 40 --seed 5
muon=(--set training.optimiser.matrices=muon --set training.optimiser.weight_decay=0.05)
duallgd train --stage decoder --data "$runs/structures" -o "$runs/muon5" "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" \
  --init-denoiser "$runs/joint4" --init-encoder "$runs/joint4" \
  --set training.steps=1100 --set training.seed=5 --set training.optimiser.learning_rate=6.0e-4 --set training.optimiser.ema=0.998 \
  --set training.validate_every=2000
duallgd train --stage decoder --data "$runs/structures" -o "$runs/decoder5" "${one_core[@]}" "${log[@]}" "${muon[@]}" \
  --init-denoiser "$runs/muon5" --init-encoder "$runs/joint4" --stop-after 3027 \
  --set training.data.max_atoms=32 --set training.data.pairs_per_batch=12000 \
  --set training.steps=3700 --set training.seed=6 --set training.optimiser.learning_rate=8.0e-4 --set training.validate_every=1850
duallgd train --stage encoder --data "$runs/massbank" --simulated "$runs/simulated5" -o "$runs/encoder5" "${one_core[@]}" "${log[@]}" \
  "${muon[@]}" --init-encoder "$runs/joint4" --init-denoiser "$runs/joint4" \
  --set training.steps=4000 --set training.seed=5 --set training.optimiser.learning_rate=8.0e-4 --set training.validate_every=1000 \
  --set training.data.simulated_share=0.6
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train --stage joint --data "$runs/massbank" --structures "$runs/structures" \
  --simulated "$runs/simulated5" -o "$runs/joint5" "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" \
  --init-denoiser "$runs/decoder5" --init-encoder "$runs/encoder5" --stop-after 1120 \
  --set training.steps=1250 --set training.seed=5 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=5.0e-4 \
  --set training.validate_every=2000

# Sixth part: no training; candidates asked for evidence, by the fifth's network.

# Seventh part: a decoder that sees positions at every step, and the encoder of the fifth.
duallgd train --stage decoder --data "$runs/structures" -o "$runs/decoder7" "${one_core[@]}" "${log[@]}" "${muon[@]}" \
  --init-denoiser "$runs/joint5" --init-encoder "$runs/joint5" \
  --set model.denoiser.fade_from=-1 --set model.denoiser.fade_to=0 \
  --set training.data.max_atoms=40 --set training.data.pairs_per_batch=12000 \
  --set training.steps=4000 --set training.seed=7 --set training.optimiser.learning_rate=7.0e-4 --set training.validate_every=400
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train --stage joint --data "$runs/massbank" --structures "$runs/structures" \
  --simulated "$runs/simulated5" -o "$runs/joint7" "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" \
  --init-denoiser "$runs/decoder7" --init-encoder "$runs/encoder5" \
  --set training.steps=1500 --set training.seed=7 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=5.0e-4 \
  --set training.validate_every=2000

# Eighth part: no training; the seventh's network, sampled with shifted time and read more strictly.

# Ninth part: decoder and encoder go on, both stopped by hand; then both on structures that are like measured molecules.
[ -f "$runs/simulated9/manifest.json" ] || duallgd data simulate "$runs/structures" --like "$runs/massbank" -o "$runs/simulated9" \
  --limit 200000 --max-atoms 40 --seed 9
[ -f "$runs/alike9/manifest.json" ] || python3 weights/recipe/select_structures.py "$runs/structures" --reference-spectra "$runs/massbank" -o "$runs/alike9" --limit 150000 --seed 9
[ -f "$runs/simalike9/manifest.json" ] || duallgd data simulate "$runs/alike9" --like "$runs/massbank" -o "$runs/simalike9" \
  --limit 90000 --max-atoms 40 --seed 9
duallgd train --stage decoder --data "$runs/structures" -o "$runs/decoder9" "${one_core[@]}" "${log[@]}" "${muon[@]}" \
  --init-denoiser "$runs/joint7" --init-encoder "$runs/joint7" --stop-after 3000 \
  --set training.data.max_atoms=40 --set training.data.pairs_per_batch=12000 \
  --set training.steps=5000 --set training.seed=9 --set training.optimiser.learning_rate=7.0e-4 --set training.validate_every=500
duallgd train --stage joint --data "$runs/massbank" --structures "$runs/structures" --simulated "$runs/simulated9" -o "$runs/joint9a" \
  "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" --init-denoiser "$runs/decoder9" --init-encoder "$runs/joint7" \
  --set training.steps=400 --set training.seed=9 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=3.0e-4 \
  --set training.optimiser.ema=0.99 --set training.validate_every=400
encoder9=(--stage encoder --data "$runs/massbank" --simulated "$runs/simulated9" "${one_core[@]}" "${log[@]}" "${muon[@]}"
  --set training.data.simulated_share=0.6)
duallgd train "${encoder9[@]}" -o "$runs/encoder9" --init-denoiser "$runs/joint7" --init-encoder "$runs/joint7" --stop-after 1000 \
  --set training.steps=5000 --set training.seed=9 --set training.optimiser.learning_rate=8.0e-4 --set training.validate_every=1000
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train "${encoder9[@]}" -o "$runs/encoder9b" \
  --init-denoiser "$runs/encoder9" --init-encoder "$runs/encoder9" --stop-after 1100 \
  --set training.steps=2600 --set training.seed=10 --set training.optimiser.learning_rate=7.0e-4 --set training.validate_every=650
duallgd train "${encoder9[@]}" -o "$runs/encoder9c" --init-denoiser "$runs/encoder9b" --init-encoder "$runs/encoder9b" \
  --set training.steps=800 --set training.seed=11 --set training.optimiser.learning_rate=5.0e-4 --set training.optimiser.ema=0.99 \
  --set training.validate_every=800
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train --stage joint --data "$runs/massbank" --structures "$runs/alike9" \
  --simulated "$runs/simalike9" -o "$runs/joint9" "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" \
  --init-denoiser "$runs/joint9a" --init-encoder "$runs/encoder9c" --stop-after 900 \
  --set training.steps=1100 --set training.seed=9 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=4.0e-4 \
  --set training.optimiser.ema=0.995 --set training.validate_every=2000

# Tenth part: the encoder goes on, now that spectra cost less than a third, on those of structures that are like measured molecules;
# the first run was stopped by hand when the cross entropy of fold val rose. Then both.
encoder10=(--stage encoder --data "$runs/massbank" --simulated "$runs/simalike9" "${one_core[@]}" "${log[@]}" "${muon[@]}"
  --set training.data.spectra_per_batch=128)
duallgd train "${encoder10[@]}" -o "$runs/encoder10" --init-denoiser "$runs/joint9" --init-encoder "$runs/joint9" --stop-after 4000 \
  --set training.steps=8000 --set training.seed=21 --set training.optimiser.learning_rate=8.0e-4 --set training.data.simulated_share=0.75 \
  --set training.validate_every=500
duallgd train "${encoder10[@]}" -o "$runs/encoder10b" --init-denoiser "$runs/encoder10" --init-encoder "$runs/encoder10" \
  --set training.steps=1500 --set training.seed=22 --set training.optimiser.learning_rate=5.0e-4 --set training.data.simulated_share=0.85 \
  --set training.optimiser.ema=0.995 --set training.validate_every=750
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train --stage joint --data "$runs/massbank" --structures "$runs/alike9" \
  --simulated "$runs/simalike9" -o "$runs/joint10" "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" \
  --init-denoiser "$runs/joint9" --init-encoder "$runs/encoder10b" \
  --set training.steps=900 --set training.seed=23 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=4.0e-4 \
  --set training.optimiser.ema=0.995 --set training.validate_every=2000

# Eleventh part: simulated spectra are explained like measured ones, by the sub-formulas that fit (commit 396abe9;
# those of the parts before told which one it was). The encoder learns on those, then both.
simulate11=(duallgd data simulate "$runs/alike9" --like "$runs/massbank" --max-atoms 40 --seed 12)
[ -f "$runs/simulated11/manifest.json" ] || "${simulate11[@]}" -o "$runs/simulated11" --limit 60000
[ -f "$runs/simalike11/manifest.json" ] || "${simulate11[@]}" -o "$runs/simalike11" --limit 150000
encoder11=(--stage encoder --data "$runs/massbank" "${one_core[@]}" "${log[@]}" "${muon[@]}" --set training.data.spectra_per_batch=128
  --set training.optimiser.learning_rate=8.0e-4)
duallgd train "${encoder11[@]}" --simulated "$runs/simulated11" -o "$runs/encoder11" --init-denoiser "$runs/encoder10b" --init-encoder "$runs/encoder10b" \
  --set training.steps=1500 --set training.seed=31 --set training.data.simulated_share=0.75 --set training.validate_every=250
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train "${encoder11[@]}" --simulated "$runs/simalike11" -o "$runs/encoder11b" \
  --init-denoiser "$runs/encoder11" --init-encoder "$runs/encoder11" \
  --set training.steps=2800 --set training.seed=32 --set training.data.simulated_share=0.85 --set training.optimiser.ema=0.995 \
  --set training.validate_every=350
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train --stage joint --data "$runs/massbank" --structures "$runs/alike9" \
  --simulated "$runs/simalike11" -o "$runs/joint11" "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" \
  --init-denoiser "$runs/joint10" --init-encoder "$runs/encoder11b" \
  --set training.steps=560 --set training.seed=24 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=4.0e-4 \
  --set training.optimiser.ema=0.995 --set training.validate_every=2000

# Twelfth part: simulated ions have unpaired electrons as seldom as measured ones, and more peaks that no cut gives;
# with those, less dropout. The encoder learns on them, then both, from the shipped file of the eleventh. (Spectra and
# evidence of commit 21e5e59: since then the fragment model also knows kinds of atoms, and both come out otherwise.)
[ -f "$runs/simalike12/manifest.json" ] || duallgd data simulate "$runs/alike9" --like "$runs/massbank" -o "$runs/simalike12" \
  --limit 150000 --max-atoms 40 --seed 14
less=(--set model.encoder.dropout=0.05 --set training.data.peak_dropout=0.15)
encoder12=(--stage encoder --data "$runs/massbank" --simulated "$runs/simalike12" "${one_core[@]}" "${log[@]}" "${muon[@]}" "${less[@]}"
  --set training.data.spectra_per_batch=128)
duallgd train "${encoder12[@]}" -o "$runs/encoder12" --init-denoiser "$runs/joint11" --init-encoder "$runs/joint11" \
  --set training.steps=1200 --set training.seed=41 --set training.optimiser.learning_rate=8.0e-4 --set training.data.simulated_share=0.85 \
  --set training.optimiser.ema=0.99 --set training.validate_every=500
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train "${encoder12[@]}" -o "$runs/encoder12b" \
  --init-denoiser "$runs/encoder12" --init-encoder "$runs/encoder12" \
  --set training.steps=1900 --set training.seed=52 --set training.optimiser.learning_rate=7.0e-4 --set training.data.simulated_share=0.9 \
  --set training.optimiser.ema=0.995 --set training.validate_every=400
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train --stage joint --data "$runs/massbank" --structures "$runs/alike9" \
  --simulated "$runs/simalike12" -o "$runs/joint12" "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" "${less[@]}" \
  --init-denoiser "$runs/joint11" --init-encoder "$runs/encoder12b" \
  --set training.steps=760 --set training.seed=25 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=4.0e-4 \
  --set training.optimiser.ema=0.995 --set training.validate_every=2000

# Thirteenth part: the fragment model knows kinds of atoms. The encoder learns on new simulated spectra and is averaged with
# its relatives; then it is frozen, and the denoiser learns from what it says, from the shipped file of the twelfth on.
[ -f "$runs/simalike13/manifest.json" ] || duallgd data simulate "$runs/alike9" --like "$runs/massbank" -o "$runs/simalike13" \
  --limit 150000 --max-atoms 40 --seed 15
encoder13=(--stage encoder --data "$runs/massbank" --simulated "$runs/simalike13" "${one_core[@]}" "${log[@]}" "${muon[@]}" "${less[@]}")
duallgd train "${encoder13[@]}" -o "$runs/encoder13" --init-denoiser "$runs/joint11" --init-encoder "$runs/joint11" \
  --set training.data.spectra_per_batch=128 --set training.steps=1200 --set training.seed=41 --set training.data.simulated_share=0.85 \
  --set training.optimiser.learning_rate=8.0e-4 --set training.optimiser.ema=0.99 --set training.validate_every=500
duallgd train "${encoder13[@]}" -o "$runs/encoder13b" --init-denoiser "$runs/encoder13" --init-encoder "$runs/encoder13" \
  --set training.data.spectra_per_batch=256 --set training.steps=1400 --set training.seed=53 --set training.data.simulated_share=0.9 \
  --set training.optimiser.learning_rate=7.0e-4 --set training.optimiser.ema=0.995 --set training.validate_every=700
duallgd weights average "$runs/encoder13b/model.safetensors" "$runs/joint12/model.safetensors" "$runs/encoder13/model.safetensors" \
  -o "$runs/average13.safetensors"
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train --stage joint --data "$runs/massbank" --structures "$runs/alike9" \
  --simulated "$runs/simalike13" -o "$runs/joint13" "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" "${less[@]}" \
  --init-denoiser "$runs/joint12" --init-encoder "$runs/average13.safetensors" --set training.freeze_encoder=true \
  --set training.steps=1500 --set training.seed=27 --set training.data.clean_share=0.1 --set training.optimiser.learning_rate=4.0e-4 \
  --set training.optimiser.ema=0.995 --set training.validate_every=2000

# Fourteenth part: simulated spectra that the encoder never saw, and molecules above 40 heavy atoms, which no denoiser had seen
# as graphs: those that are like measured ones, with these, take turns with the others.
[ -f "$runs/simalike14/manifest.json" ] || duallgd data simulate "$runs/alike9" --like "$runs/massbank" -o "$runs/simalike14" \
  --limit 150000 --max-atoms 40 --seed 16
[ -f "$runs/large14/manifest.json" ] || python3 weights/recipe/select_structures.py "$runs/structures" --reference-spectra "$runs/massbank" -o "$runs/large14" \
  --limit 5000 --min-atoms 37 --max-atoms 66 --with-measured --seed 14
joint14=(--stage joint --data "$runs/massbank" --structures "$runs/alike9" --simulated "$runs/simalike14" "${one_core[@]}" "${log[@]}"
  "${small[@]}" "${muon[@]}" "${less[@]}" --set training.freeze_encoder=true --set training.data.clean_share=0.1
  --set training.optimiser.ema=0.995)
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train "${joint14[@]}" -o "$runs/joint14" \
  --init-denoiser "$runs/joint13" --init-encoder "$runs/joint13" --set training.steps=2600 --stop-after 605 \
  --set training.seed=28 --set training.optimiser.learning_rate=4.0e-4 --set training.validate_every=1300
OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m duallgd_cli train "${joint14[@]}" -o "$runs/joint14b" \
  --init-denoiser "$runs/joint14" --init-encoder "$runs/joint14" --structures "$runs/large14" --set training.data.max_atoms=66 \
  --set training.steps=2300 --stop-after 2006 --set training.seed=29 --set training.optimiser.learning_rate=6.0e-4 --set training.validate_every=1150

# Fifteenth part: on from there, other simulated spectra; a part of the samples starts from known molecules.
[ -f "$runs/simalike15/manifest.json" ] || duallgd data simulate "$runs/alike9" --like "$runs/massbank" -o "$runs/simalike15" \
  --limit 200000 --max-atoms 40 --seed 19
duallgd train --stage joint --data "$runs/massbank" --structures "$runs/alike9" --structures "$runs/large14" --simulated "$runs/simalike15" \
  -o "$runs/joint15" "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" "${less[@]}" --set training.data.max_atoms=66 \
  --init-denoiser "$runs/joint14b" --init-encoder "$runs/joint14b" --set training.freeze_encoder=true --set training.data.clean_share=0.1 \
  --set training.steps=1500 --set training.seed=30 --set training.optimiser.learning_rate=4.0e-4 --set training.optimiser.ema=0.995 \
  --set training.validate_every=5000

# Sixteenth part: more of both stages; then what permanent cations are, which collections of structures leave out. The mean of
# the three is better at either than the last alone; their encoders' mean is the one that the last was trained beside.
duallgd train --stage encoder --data "$runs/massbank" --simulated "$runs/simalike15" -o "$runs/encoder16" "${one_core[@]}" "${log[@]}" \
  "${muon[@]}" "${less[@]}" --init-denoiser "$runs/joint15" --init-encoder "$runs/joint15" --set training.data.spectra_per_batch=256 \
  --set training.steps=2000 --set training.seed=61 --set training.data.simulated_share=0.9 --set training.optimiser.learning_rate=7.0e-4 \
  --set training.optimiser.ema=0.995 --set training.validate_every=1000
joint16=(--stage joint --data "$runs/massbank" --structures "$runs/alike9" --structures "$runs/large14" --simulated "$runs/simalike15"
  "${one_core[@]}" "${log[@]}" "${small[@]}" "${muon[@]}" "${less[@]}" --set training.data.max_atoms=66 --set training.freeze_encoder=true
  --set training.data.clean_share=0.1 --set training.optimiser.ema=0.995 --set training.validate_every=5000)
duallgd train "${joint16[@]}" -o "$runs/joint16" --init-denoiser "$runs/joint15" --init-encoder "$runs/joint15" \
  --set training.steps=1800 --set training.seed=31 --set training.optimiser.learning_rate=4.0e-4
xz -dc "$data/massbank/massbank.tsv.xz" \
  | awk -F'\t' 'NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next } $c["fold"] != "train" { print $c["inchikey"] }' | sort -u > "$runs/held-out.keys"
python3 weights/recipe/cations.py "$data/structures/structures.tsv.xz" -o "$runs/cations16.smi" --limit 12000 --seed 1
duallgd data structures "$runs/cations16.smi" -o "$runs/cations16" --holdout "$runs/held-out.keys"
duallgd weights average "$runs/joint15/model.safetensors" "$runs/encoder16/model.safetensors" -o "$runs/average16.safetensors"
duallgd train "${joint16[@]}" -o "$runs/joint16c" --structures "$runs/cations16" --init-denoiser "$runs/joint16" \
  --init-encoder "$runs/average16.safetensors" --set training.steps=1750 --set training.seed=33 --set training.optimiser.learning_rate=5.0e-4
duallgd weights average "$runs/joint16/model.safetensors" "$runs/joint16c/model.safetensors" "$runs/encoder16/model.safetensors" \
  -o "$runs/average16b.safetensors"

# The list of what was trained on, which evaluate looks molecules up in: it lies beside the weights.
duallgd weights hashes "$runs/structures" "$runs/massbank" --max-atoms 50 -o "$runs/before.train.hashes"
duallgd weights hashes "$runs/massbank" "$runs/large14" "$runs/cations16" --also "$runs/before.train.hashes" -o "$runs/large.train.hashes"
duallgd weights hashes "$runs/alike9" --max-atoms 66 --also "$runs/large.train.hashes" -o weights/duallgd.train.hashes
cp weights/duallgd.train.hashes "$runs/starting.train.hashes"

# What candidates are asked with, and what a part of the samples starts from, besides the network.
duallgd weights evidence "$runs/average16b.safetensors" --structures "$runs/structures" --spectra "$runs/massbank" -o "$runs/asking.safetensors"
duallgd weights analogues "$runs/asking.safetensors" --molecules "$runs/massbank" -o "$runs/starting.safetensors"

# Ranking and confidence are fitted on fold val, one spectrum a molecule.
duallgd evaluate --benchmark "$data/massbank/massbank.tsv.xz" --fold val --spectra-per-molecule 1 --drop-leaked \
  --no-mces --no-rivals --precision bfloat16 --weights "$runs/starting.safetensors" -o "$runs/val16"
duallgd calibrate "$runs/starting.safetensors" --run "$runs/val16/predictions.csv" --truth "$runs/val16/truth.tsv" \
  -o "$runs/ranked.safetensors"

# Confidence knows the number of samples and steps: it is fitted on draws of others too, their order kept.
draws=()
for draw in "100 1 260" "60 3 200" "60 5 110" "30 20 60" "30 50 60" "100 10 412" "300 10 330"; do
  read -r samples steps limit <<< "$draw"
  duallgd evaluate --benchmark "$data/massbank/massbank.tsv.xz" --fold val --spectra-per-molecule 1 --drop-leaked --no-mces \
    --no-rivals --precision bfloat16 --weights "$runs/ranked.safetensors" --limit "$limit" --set sampling.samples="$samples" \
    --set sampling.steps="$steps" -o "$runs/val16-$samples-$steps"
  draws+=(--run "$runs/val16-$samples-$steps/predictions.csv")
done
duallgd calibrate "$runs/ranked.safetensors" "${draws[@]}" --truth "$runs/val16/truth.tsv" --keep-ranking -o weights/duallgd.safetensors
python3 weights/recipe/recorded_draws.py weights/duallgd.safetensors --run "$runs/val16-300-10/predictions.csv" \
  --truth "$runs/val16/truth.tsv" -o tests/unit/evaluate/recorded_draws.npz

# What --parts rests on. It was fitted on draws of 110 molecules with 300 samples and of the others with 100.
python3 weights/recipe/parts.py "$data" "${draws[@]}" --truth "$runs/val16/truth.tsv"
