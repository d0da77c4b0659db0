.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LAKE ?= lake
FRAUDLAKE := $(BIN)/fraudlake

.PHONY: help setup demo test quick check wheel lock clean

help: ## show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## make the Python environment (.venv) from the lock file

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "fraudlake needs Python 3.11 or newer as '$(PYTHON)'; name another with: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY) ## run the main job on transactions that a real Flink wrote, into ./lake
	@mkdir -p $(LAKE)/landing/tutorial $(LAKE)/landing/twodays
	@cp -R -n fixtures/flink/tutorial/int96/. $(LAKE)/landing/tutorial
	@cp -R -n fixtures/flink/twodays/. $(LAKE)/landing/twodays
	@$(FRAUDLAKE) --lake $(LAKE) run

test: $(READY) ## run all tests
	@$(BIN)/python -m pytest

quick: $(READY) ## run the tests that need no Spark session
	@$(BIN)/python -m pytest -m "not stream"

check: $(READY) ## lint, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

wheel: dist/.built ## build the wheel into dist/, if the package changed

dist/.built: pyproject.toml README.md LICENSE $(shell find src -name __pycache__ -prune -o -print) | $(READY)
	@rm -rf dist
	@$(BIN)/python -m build --quiet --wheel --no-isolation
	@touch $@

lock: ## resolve requirements.lock anew (needs uv)
	uv pip compile pyproject.toml --extra local --extra kafka --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header --output-file requirements.lock

clean: ## remove the environment and the demo lake
	rm -rf $(VENV) $(LAKE) dist
