# Everything here works on a fresh checkout: each target that needs the set-up does it first.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q
SOURCES := schemas pipelines edge_node api farpost tests
SEEDS ?= 20

# The first Python that is new enough; a .venv that exists keeps its own.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

.PHONY: help setup fmt check test test-long unit sim spark integration demo bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install all that is missing: packages into .venv, jars into the per-user cache
	@[ -n "$(PYTHON)" ] || { echo "error: Python 3.11 or newer is needed and was not found: install it with \`$$(\
		command -v apt-get >/dev/null && echo 'apt-get install -y python3 python3-venv' || echo 'brew install python@3.12')\`" >&2; exit 1; }
	@$(PYTHON) -m farpost.bootstrap

fmt: setup ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

check: setup ## Lint, format and types: exactly what CI checks
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

unit: setup ## Tests without a JVM or a broker: seconds
	$(PYTEST) -n auto tests/unit

sim: setup ## The core against seeded faults; SEEDS=n for more
	FARPOST_TEST_SEEDS=$(SEEDS) $(PYTEST) -n auto tests/simulation

spark: setup ## Tests that need a local Spark session
	$(PYTEST) -m "not slow" tests/spark

integration: setup ## Tests with the real broker and the real job, and kill -9
	$(PYTEST) -m "not slow" tests/integration

test: check unit sim spark integration ## All of the above: what CI runs

test-long: test ## The same, and the tests that take very long
	FARPOST_TEST_SEEDS=1000 $(PYTEST) -n auto tests/simulation
	$(PYTEST) -m slow --timeout 3600 tests

demo: setup ## See the hub work: a few messages through the real log, in a temporary directory
	@$(BIN)/farpost demo

bench: setup ## Measure the pipeline on this machine
	@$(BIN)/farpost bench pipeline

clean: ## Remove what set-up and tests made here; the per-user cache and all data stay
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
