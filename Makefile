# Everything runs from .venv, which is made on first use and brought up to date when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
SERVER_STAMP := $(VENV)/.installed-server
DOCS_STAMP := $(VENV)/.installed-docs
PORT ?= 5000
PYTEST := $(BIN)/python -m pytest
# make test COVERAGE=1 also says how much of src/ the tests reach.
COVERED := $(if $(COVERAGE),--cov=src --cov-report=term:skip-covered)

.DEFAULT_GOAL := help
.PHONY: help setup run ui test test-commands test-slow test-ratios test-survival test-slurm test-server test-cluster test-browser fuzz lint format wheel docs bench report data clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

# On a terminal the installer shows its progress; uv takes PyTorch's CPU build where it is there and can have it.
$(STAMP): pyproject.toml
	@echo "setting up $(VENV), once: a virtual environment, then some 1.7 GB of packages (torch, MLflow, scikit-learn, …), a minute or two"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@quiet=-q; [ -t 1 ] && quiet=; \
	{ command -v uv >/dev/null && uv pip install $$quiet --python $(BIN)/python --torch-backend cpu -e '.[test]'; } || \
	$(BIN)/python -m pip install $$quiet --disable-pip-version-check -e '.[test]'
	@echo "set up; now the empty tables of the tracking store, which every new one is copied from"
	@$(BIN)/python -c "import hydra, sklearn, torch, pytest; from pipeline.tracking.store import empty_database as e; e()" || \
	$(BIN)/python -c "import hydra, mlflow, sklearn, torch, pytest"
	@touch $@

$(BENCH_STAMP): $(STAMP)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[bench,server]' 2>&1 | grep -v '^WARNING' || true
	@touch $@

$(SERVER_STAMP): $(STAMP)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[server]' 2>&1 | grep -v '^WARNING' || true
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[docs]' 2>&1 | grep -v '^WARNING' || true
	@touch $@

setup: $(STAMP) ## make .venv

run: $(STAMP) ## the sweep of the README on the embedded digits
	@$(BIN)/python -m pipeline.run -m hydra/launcher=joblib attack=pgd,zoo model=natural,svc,adv_svm_c,adv_svm_d

ui: $(STAMP) ## MLflow's UI on mlruns/, on this machine only (PORT=5000)
	@echo "all runs: http://127.0.0.1:$(PORT)/#/experiments/1/runs?workflowType=machine_learning&viewStateShareKey=results"
	@MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(BIN)/mlflow ui --host 127.0.0.1 --port $(PORT) --backend-store-uri sqlite:///mlruns/mlflow.db

# Threads of a test's own would only wait for those of the test beside it.
PARALLEL := OMP_NUM_THREADS=1 $(PYTEST) -q -n auto --dist loadfile
ELSEWHERE := slow or network or realdata or ratios or survival or server or cluster or browser or slurm

test: $(STAMP) ## the fast tests, one process per core
	@$(PARALLEL) $(COVERED) -m "not (commands or $(ELSEWHERE))"

test-commands: $(STAMP) ## whole experiments and sweeps by the command line, as a user runs them
	@$(PARALLEL) -m "commands and not ($(ELSEWHERE))"

test-slow: $(STAMP) ## slow and real-data tests (fetches data)
	@$(PARALLEL) -m "slow or realdata or network"

test-ratios: $(STAMP) ## fails when a cheap benchmark's ratio has doubled, twice; better without other work beside it
	@$(PYTEST) -q -m ratios

# What hostile users tried without killing anything; part of make test and make test-commands, too.
HOSTILE := tests/security tests/tracking tests/cache $(addprefix tests/data/test_data_,identity.py hostile.py formats.py) \
	$(addprefix tests/pipeline/test_,before_a_run.py command_line.py commands.py summary.py sweeps.py)

test-survival: $(STAMP) ## kills, full disks, jobs that go wrong, bad input (HOSTILE= without the latter)
	@$(PYTEST) -q -m survival tests/survival
	@$(if $(HOSTILE),$(PARALLEL) -m "not ($(ELSEWHERE))" $(HOSTILE))

test-slurm: $(STAMP) ## the sweep on a real one-node SLURM cluster (Debian, as root)
	@eval "$$(scripts/slurm-up.sh)"; $(PYTEST) -q -m slurm tests/slurm; code=$$?; scripts/slurm-down.sh; exit $$code

test-server: $(SERVER_STAMP) ## the tracking server with PostgreSQL on loopback (Debian, as root)
	@$(PYTEST) -q -m server tests/server

test-cluster: $(SERVER_STAMP) ## three hosts: a node dies, the server restarts, the network is cut (JOBS=24; Debian, as root)
	@CLUSTER_JOBS=$(or $(JOBS),24) $(PYTEST) -q -s -m cluster tests/cluster

test-browser: $(STAMP) ## UI and report in headless Chromium
	@$(PYTEST) -q -m browser

fuzz: $(STAMP) ## random command lines and files for MINUTES=5; every case prints its seed
	@$(BIN)/python scripts/fuzz.py $(or $(MINUTES),5) $(SEED)

lint: $(STAMP) ## ruff, mypy, and what may import what
	@$(BIN)/ruff check src tests benchmarks scripts
	@$(BIN)/ruff format --check src tests benchmarks scripts
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(STAMP) ## let ruff put right what it can
	@$(BIN)/ruff check --fix src tests benchmarks scripts
	@$(BIN)/ruff format src tests benchmarks scripts

wheel: $(STAMP) ## build sdist and wheel, check them, run one experiment from the wheel in a clean environment
	@rm -rf dist build/wheel-venv
	@$(BIN)/python -m build -q
	@$(BIN)/twine check --strict dist/*
	@$(PYTHON) -m venv build/wheel-venv
	@build/wheel-venv/bin/pip install -q --disable-pip-version-check dist/*.whl 2>&1 | grep -v '^WARNING' || true
	@cd build/wheel-venv && bin/advsvm attack=fgsm tracking.folder=mlruns hydra.run.dir=outputs && bin/advsvm-report tracking.folder=mlruns output=reports
	@rm -rf build/wheel-venv

# Not with --quiet: mkdocs would then overlook the warnings that --strict is to fail on.
docs: $(DOCS_STAMP) ## the documentation as a site in site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open site/index.html, or: $(BIN)/python -m mkdocs serve (the search needs a server)"

bench: $(BENCH_STAMP) ## peers side by side; one JSON line each, and docs/benchmarks.md from them
	@mkdir -p build && : > build/bench.jsonl
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file > build/bench.part || exit 1; tee -a build/bench.jsonl < build/bench.part; done
	@$(BIN)/python benchmarks/page.py build/bench.jsonl

data: $(STAMP) ## what datasets there are and which are here
	@$(BIN)/python -m pipeline.data

report: $(STAMP) ## tables and figures from the tracked runs
	@$(BIN)/python -m pipeline.report

clean: ## remove .venv and caches (not mlruns/)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
