#!/usr/bin/env bash
# The tracked runs behind docs/robust_tuning.md; the same command goes on where one stopped.
#   scripts/robust_tuning_run.sh [MLRUNS]      some two hours of one core, nearly all of it CIFAR-10
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python} folder=${1:-mlruns}
run() {
  "$python" -m pipeline.run -m experiment=robust_tuning figures=off checks=off tracking.folder="$folder" \
    evaluation.certify_seconds=15 "$@" || true
}
# adv-linear-SVM and the SVC are solved to their optimum: every seed gives the same machine.
for pair in mnist_1v7 mnist_8v9; do
  run dataset=$pair "seed=range(10)" model=natural_exact,adv_svm_d_exact
  run dataset=$pair "seed=range(10)" model=adv_svm_c_exact model.averaging=tail
  run dataset=$pair seed=0 model=adv_linear_svm,svc
done
for pair in cifar10_automobile_truck cifar10_dog_horse; do
  run dataset=$pair tune.metric=robust_accuracy seed=0 model=adv_linear_svm,svc
  run dataset=$pair tune.metric=robust_accuracy "seed=range(10)" model=natural_exact,adv_svm_d_exact
  run dataset=$pair tune.metric=robust_accuracy "seed=range(10)" model=adv_svm_c_exact model.averaging=tail
done
"$python" scripts/robust_tuning_page.py collect "$folder"
"$python" scripts/robust_tuning_page.py write
