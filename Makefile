# `make` without a target lists the targets.

ENV := gym/pendulum
ARGS :=
JOBS := 2
PYTHON :=
BENCHES := updates replay steps pixels workers learning ablation target_entropy toys memory hidden delays checkpoints prefetch representation inbox
ONLY := $(BENCHES)

PY := .venv/bin/python
# One thread a process: several processes with many threads each slow one another down many times over.
THREADS := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMEXPR_NUM_THREADS=1
PEER := benchmarks/.peers/sb3

.DEFAULT_GOAL := help
.PHONY: help venv train test lint format check bench bench-peers constraints clean distclean

help: ## this list
	@echo "make <target> [NAME=value …]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: ## create .venv and install the tested versions (the other targets do this themselves; PYTHON=python3.12)
	@PYTHON="$(PYTHON)" scripts/venv.sh

train: venv ## train a task: make train ENV=gym/pendulum ARGS="--seed 1"
	@$(PY) main.py $(ENV) $(ARGS)

test: venv ## run the test suite: make test ARGS="-k replay" JOBS=2
	@$(THREADS) $(PY) -m pytest -n $(JOBS) $(ARGS)

lint: venv ## ruff, mypy, and whether the generated files are up to date
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m algorithm.config.reference --check

format: venv ## let ruff format the code and make its safe corrections
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

check: lint test ## everything a change has to pass

bench: venv $(if $(filter updates steps pixels learning,$(ONLY)),bench-peers) ## measure and fill the tables of docs/: make bench ONLY="updates ablation"
	@[ -z "$(filter-out $(BENCHES),$(ONLY))" ] || { echo "make bench: ONLY knows: $(BENCHES)" >&2; exit 2; }
	@set -e; for one in $(ONLY); do echo "== $$one"; $(THREADS) $(PY) benchmarks/$$one.py $(ARGS); done
	@$(PY) benchmarks/tables.py --write

bench-peers: venv ## an environment of its own for the library that the benchmark compares with
	@$(PY) benchmarks/peer.py

constraints: ## resolve constraints/ anew, needs uv on the PATH
	@scripts/constraints.sh

clean: ## remove caches and build products; keeps .venv and models
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
	@find algorithm envs tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv and the benchmark's environment; keeps models
	@rm -rf .venv $(PEER)
