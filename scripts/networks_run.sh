#!/usr/bin/env bash
# The runs behind docs/networks.md: six networks on four pairs, three seeds; the same command goes on where one stopped.
#   scripts/networks_run.sh [MLRUNS]      somewhat over an hour of one core; what is dear comes last, whole tables first
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python} folder=${1:-mlruns}
run() { "$python" -m pipeline.run -m experiment=networks figures=off tracking.folder="$folder" tune=none "$@" || true; }
# One learning rate per kind of picture, chosen on training rows. PGD inside training takes 5 steps, not 10: half the time.
mnist=$("$python" scripts/networks_page.py rate mnist_1v7)
cifar=$("$python" scripts/networks_page.py rate cifar10_automobile_truck)
network() {
  if [[ $1 = mnist* ]]; then rate=$mnist epochs=5; else rate=$cifar epochs=10; fi
  run dataset="$1" model.epochs=$epochs model.learning_rate="$rate" "${@:2}" model=dnn_natural,dnn_fgsm_rs,dnn_free,dnn_vat
  run dataset="$1" model.epochs=$epochs model.learning_rate="$rate" "${@:2}" model=dnn_standard,dnn_mart model.training.steps=5
}
pairs="cifar10_automobile_truck mnist_1v7 cifar10_dog_horse mnist_8v9"
for pair in $pairs; do network $pair seed=0,1,2 attack=fgsm,pgd; done
for pair in $pairs; do network $pair seed=0,1,2 attack=cw evaluation.max_attacked_costly=50; done
# A network answers ZOO's queries one by one: minutes for every run.
for pair in $pairs; do network $pair seed=0 attack=zoo evaluation.max_attacked_costly=20; done
"$python" scripts/networks_page.py collect "$folder"
"$python" scripts/networks_page.py write
