# `make` without a target lists the targets.

ENV := gym/pendulum
ARGS :=
JOBS := 2
PYTHON :=
RESULTS := models/evidence
BENCHES := updates steps memory replay pixels workers lanes checkpoints rollouts inbox learners signals devices exports tuning engines scaling bare evidence
ONLY := $(BENCHES)

PY := .venv/bin/python
# One thread a process: several processes with many threads each slow one another down many times over.
THREADS := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMEXPR_NUM_THREADS=1
PEERS := benchmarks/.peers
# What has to fit Windows too: mypy then refuses what only exists elsewhere.
PORTED := algorithm asac ds main.py main_ds.py

.DEFAULT_GOAL := help
.PHONY: help venv train test nightly lint format check mutations docs bench evidence bench-peers constraints clean distclean

help: ## this list
	@echo "make <target> [NAME=value …]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: ## create .venv and install the tested versions (the other targets do this themselves; PYTHON=python3.12)
	@PYTHON="$(PYTHON)" scripts/venv.sh

train: venv ## train a task: make train ENV=gym/pendulum ARGS="--seed 1"
	@$(PY) main.py $(ENV) $(ARGS)

test: venv ## run the test suite: make test ARGS="-k replay" JOBS=2
	@$(THREADS) $(PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

nightly: venv ## the tests that take minutes: kills, fuzz, presets, learning: make nightly ARGS="-k player"
	@$(THREADS) $(PY) -m pytest -n $(JOBS) --dist worksteal -m slow $(ARGS)

lint: venv ## ruff, mypy, generated files and the budget of statements
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m mypy --platform win32 --cache-dir .mypy_cache/win32 $(PORTED)
	@$(PY) scripts/reference.py --check
	@$(PY) scripts/pages.py --check
	@$(PY) scripts/words.py --check > /dev/null
	@$(PY) scripts/names.py
	@$(PY) scripts/shape.py --check

format: venv ## let ruff format the code and make its safe corrections
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

check: lint test ## everything a change has to pass

mutations: venv ## plant mistakes, see whether a test notices each: make mutations ARGS="replay ds" JOBS=2
	@$(PY) scripts/mutations.py --jobs $(JOBS) $(ARGS)

# Said while the Makefile is read, before any target installs something.
ifneq (,$(and $(filter bench,$(MAKECMDGOALS)),$(filter-out $(BENCHES),$(ONLY))))
$(error make bench: there is no question $(filter-out $(BENCHES),$(ONLY)); ONLY knows: $(BENCHES))
endif

docs: venv ## build the documentation site into build/site; draw screens that show other words by now
	@$(THREADS) $(PY) scripts/screenshots.py --stale
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "build/site/index.html"

bench: venv $(if $(filter updates steps pixels rollouts engines bare evidence,$(ONLY)),bench-peers) ## measure and fill the tables of docs/: make bench ONLY="updates bare"
	@$(THREADS) $(PY) -m benchmarks $(ONLY) $(ARGS)

evidence: bench-peers ## learning beside other libraries, goes on where it was killed: make evidence ARGS="--suite classic" RESULTS=models/evidence
	@$(THREADS) $(PY) -m benchmarks evidence --results $(RESULTS) $(ARGS)

bench-peers: venv ## environments of their own for the libraries that the benchmarks compare with
	@$(PY) -m benchmarks.peer

constraints: ## resolve constraints/ anew, needs uv on the PATH
	@scripts/constraints.sh

clean: ## remove caches and build products; keeps .venv and models
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
	@find algorithm envs tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv and the benchmarks' environments; keeps models
	@rm -rf .venv $(PEERS)
