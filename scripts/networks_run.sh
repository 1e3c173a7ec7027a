#!/usr/bin/env bash
# The runs behind "Networks beside the kernel machines": four pairs, three seeds; the same command goes on where one stopped.
#   scripts/networks_run.sh [MLRUNS]      about an hour of one core; what is dear comes last, whole tables first
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python} folder=${1:-mlruns}
run() { "$python" -m pipeline.run -m experiment=networks figures=off tracking.folder="$folder" seed=0,1,2 "$@" || true; }
# One learning rate per kind of picture; PGD inside training takes 5 steps, not 10, which would double its time.
mnist=$("$python" scripts/networks_page.py rate mnist_1v7)
cifar=$("$python" scripts/networks_page.py rate cifar10_automobile_truck)
small() { [[ $1 = mnist* ]] && rate=$mnist || rate=$cifar; run dataset="$1" tune=none model.epochs=8 model.learning_rate="$rate" "${@:2}"; }
pairs="mnist_1v7 cifar10_automobile_truck cifar10_dog_horse mnist_8v9"
for pair in $pairs; do small $pair attack=fgsm,pgd model=dnn_natural,dnn_fgsm_rs,dnn_free,dnn_vat; done
for pair in $pairs; do run dataset=$pair attack=fgsm,pgd model=natural_exact,adv_svm_d_exact,adv_svm_c_exact,adv_linear_svm; done
for pair in $pairs; do small $pair attack=fgsm,pgd model=dnn_standard,dnn_mart model.training.steps=5; done
for pair in $pairs; do run dataset=$pair tune=none attack=fgsm,pgd model=svc; done
for pair in $pairs; do
  small $pair attack=cw,zoo evaluation.max_attacked_costly=50 model=dnn_natural,dnn_fgsm_rs,dnn_free,dnn_vat
  small $pair attack=cw,zoo evaluation.max_attacked_costly=50 model=dnn_standard,dnn_mart model.training.steps=5
done
"$python" scripts/networks_page.py collect "$folder"
"$python" scripts/networks_page.py draw
"$python" scripts/networks_page.py tables
