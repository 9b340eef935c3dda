# One word per job; `make` alone lists them.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo docs notebook test pytest test-fast lint coverage bench soak chaos mutants fuzz flower-demo audit-deps release lock clean

help: ## List the jobs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv .venv

# The demo needs neither torch nor Flower, so it installs neither.
.venv/.learn: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[learn]'
	@touch $@

.venv/.all: .venv/.learn
	$(PIP) --editable '.[learn,torch,flower,dp,examples,docs,dev]'
	@touch $@

setup: .venv/.all ## Make .venv with the package and every extra (idempotent)

demo: .venv/.learn ## Train on the embedded digits: slices, the published pattern, SecAgg and plain side by side
	$(BIN)/sparsesecagg train --dataset digits --hidden 1024 --clients 50 --rounds 20 --dropout 0.1 --seed 1 \
	  --bandwidth-mbit 10 --compare sliced:0.1:8,pairwise:0.1,secagg,plain --out runs/demo-$$(date +%Y%m%d-%H%M%S)

lint: .venv/.all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint pytest ## ruff, mypy --strict, pytest

pytest: .venv/.all
	$(BIN)/pytest

test-fast: .venv/.all ## The tests of the core, in less than a minute: for the loop at the desk
	$(BIN)/pytest -m 'not slow and not soak' tests/field tests/crypto tests/rounding tests/privacy tests/patterns tests/protocol tests/downlink tests/vectors tests/test_layout.py

coverage: .venv/.all ## Which lines and branches no test runs
	$(BIN)/pytest --cov --cov-report term --cov-report html

$(BIN)/mkdocs: | $(BIN)/python
	$(PIP) --editable '.[docs]'

docs: $(BIN)/mkdocs ## Build the documentation as a site: build/site/index.html (no network, no warning)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

notebook: .venv/.all ## Run examples/notebook.ipynb and keep what it prints and draws
	$(BIN)/python examples/run_notebook.py

bench: .venv/.all ## Measure, and write benchmarks/results/ (minutes)
	$(BIN)/python -m benchmarks

soak: .venv/.all ## 100,000 runs over a broken network, 200,000 interleavings on one node (half an hour on two cores)
	$(BIN)/pytest -m soak --timeout 3600
	$(BIN)/python tests/soak.py --resume --out results/soak.json

chaos: .venv/.all ## A Flower deployment of 8 nodes while processes are killed, stopped, and find the disk full (two hours)
	$(BIN)/python tests/chaos.py --out results/chaos.json

mutants: .venv/.all ## Change protocol, patterns, crypto and noise in every small way and see whether a test notices (an hour)
	PYTHONPATH=tests $(BIN)/python -m mutation --resume

FUZZ_SECONDS ?= 600
fuzz: .venv/.all ## Coverage-guided fuzzing of every decoder, each for FUZZ_SECONDS=600 (two hours on two cores)
	$(PIP) atheris
	$(BIN)/python tests/fuzz_decoders.py --seconds $(FUZZ_SECONDS) --jobs 2 --out results/fuzz.json

flower-demo: .venv/.all ## A real Flower deployment on this machine, one node killed while uploading
	PYTHONPATH=tests $(BIN)/python examples/flower_demo.py

audit-deps: .venv/.all ## Known vulnerabilities and licences of what is installed
	$(PIP) pip-audit pip-licenses
	$(BIN)/pip-licenses --format markdown --order license
	$(BIN)/pip-audit --local --progress-spinner off

release: .venv/.all ## Build wheel and source, check and try them in a fresh environment; uploads nothing
	$(BIN)/python tests/release.py

lock: ## Write constraints.txt from what is installed now
	$(BIN)/python -m pip list --format freeze --exclude sparsesecagg --exclude pip --exclude setuptools | sed 's/+cpu//' > constraints.txt

clean: ## Remove the environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache build src/*.egg-info
