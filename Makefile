# One word per job; `make` alone lists them.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench lock clean

help: ## List the jobs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv .venv

# The demo needs neither torch nor Flower, so it installs neither.
.venv/.learn: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[learn]'
	@touch $@

.venv/.all: .venv/.learn
	$(PIP) --editable '.[learn,torch,flower,dev]'
	@touch $@

setup: .venv/.all ## Make .venv with the package and every extra (idempotent)

demo: .venv/.learn ## One narrated round, masks and all
	$(BIN)/sparsesecagg demo

lint: .venv/.all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint ## ruff, mypy --strict, pytest
	$(BIN)/pytest

bench: .venv/.all ## Measure, and write benchmarks/results/
	$(BIN)/python -m benchmarks.round

lock: ## Write constraints.txt from what is installed now
	$(BIN)/python -m pip list --format freeze --exclude sparsesecagg --exclude pip --exclude setuptools | sed 's/+cpu//' > constraints.txt

clean: ## Remove the environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache build src/*.egg-info
