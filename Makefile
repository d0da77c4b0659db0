.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LAKE ?= lake
FRAUDLAKE := $(BIN)/fraudlake

# databricks-connect replaces pyspark and runs on the Python of its runtime only: it needs an environment of its own.
DATABRICKS_VENV := .venv-databricks
DATABRICKS_BIN := $(DATABRICKS_VENV)/bin
DATABRICKS_READY := $(DATABRICKS_VENV)/.ready
IS_PYTHON312 := import sys, ensurepip; sys.version_info[:2] == (3, 12) and print(sys.executable)

# Spark 4.3, which Delta does not support yet, takes the place of the lake's Spark.
REALTIME_VENV := .venv-realtime
REALTIME_BIN := $(REALTIME_VENV)/bin
REALTIME_READY := $(REALTIME_VENV)/.ready

PYTHON312 ?= $(firstword $(foreach python,python3.12 $(PYTHON) $(wildcard $(HOME)/.pyenv/versions/3.12.*/bin/python),\
  $(shell $(python) -c '$(IS_PYTHON312)' 2>/dev/null)))

# A lock file names everything, so nothing is left to resolve; Python compiles a module when it is first imported.
# A container's PYTHONDONTWRITEBYTECODE would have each process compile all modules again: three seconds a start.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := -m pip install --quiet --disable-pip-version-check --no-deps
LOCKED := $(INSTALL) --no-compile --require-hashes --requirement
PACKAGE := $(INSTALL) --no-build-isolation --editable .

.PHONY: help setup demo test quick check audit tables phrasebook databricks realtime realtime-demo python312 wheel lock clean

help: ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(READY) ## make the Python environment (.venv) from the lock file

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "fraudlake needs Python 3.11 or newer as '$(PYTHON)'; name another with: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(LOCKED) requirements.lock
	@$(BIN)/python $(PACKAGE)
	@$(FRAUDLAKE) setup
	@touch $@

demo: $(READY) ## run the main job on transactions that a real Flink wrote, into ./lake
	@mkdir -p $(LAKE)/landing/tutorial $(LAKE)/landing/twodays
	@cp -R -n fixtures/flink/tutorial/int96/. $(LAKE)/landing/tutorial
	@cp -R -n fixtures/flink/twodays/. $(LAKE)/landing/twodays
	@$(FRAUDLAKE) --lake $(LAKE) run

test: $(READY) ## run all tests
	@$(BIN)/python -m pytest

quick: $(READY) ## run the tests that need no Spark session and take no second each
	@$(BIN)/python -m pytest -m "not stream and not slow"

check: $(READY) ## lint, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

audit: $(READY) ## compare what is installed with the lock file, and check the licences
	@$(BIN)/python -m pytest -q -n 0 tests/test_dependencies.py

tables: $(READY) ## write docs/tables.md from what src/fraudlake/tables.py declares
	@$(BIN)/python -m tests.tables_page

phrasebook: $(READY) ## write docs/phrasebook.md from the headers of the examples
	@$(BIN)/python -m tests.phrasebook_page

databricks: $(DATABRICKS_READY) ## check the package against databricks-connect (needs Python 3.12)
	@PYTHONPATH=src $(DATABRICKS_BIN)/python -m pytest tests/databricks --confcutdir tests/databricks -o "addopts=-ra --tb=short"

$(DATABRICKS_READY): requirements-databricks.lock
	@test -n "$(PYTHON312)" || { echo "no Python 3.12 found; name one with: make databricks PYTHON312=/path/to/python3.12"; exit 1; }
	@echo "Setting up $(DATABRICKS_VENV) (once) ..."
	@$(PYTHON312) -m venv --clear $(DATABRICKS_VENV)
	@$(DATABRICKS_BIN)/python $(LOCKED) requirements-databricks.lock
	@touch $@

realtime: $(REALTIME_READY) ## set up the fast lane's environment (.venv-realtime), and run its tests
	@$(REALTIME_BIN)/python -m pytest tests/realtime --confcutdir tests/realtime -o "addopts=-ra --tb=short"

$(REALTIME_READY): requirements-realtime.lock
	@echo "Setting up $(REALTIME_VENV) (once) ..."
	@$(PYTHON) -m venv --clear $(REALTIME_VENV)
	@$(REALTIME_BIN)/python $(LOCKED) requirements-realtime.lock
	@$(REALTIME_BIN)/python $(PACKAGE)
	@touch $@

realtime-demo: $(READY) $(REALTIME_READY) ## ten seconds of traffic through the fast lane, then the exact lane's word on it
	@$(BIN)/python -m tests.realtime.demo $(LAKE)-realtime $(REALTIME_BIN)/fraudlake

python312: # the path of a Python 3.12, if there is one
	@echo $(PYTHON312)

wheel: dist/.built ## build the wheel into dist/, if the package changed

dist/.built: pyproject.toml README.md LICENSE $(shell find src -name __pycache__ -prune -o -print) | $(READY)
	@rm -rf dist
	@$(BIN)/python -m build --quiet --wheel --no-isolation
	@touch $@

COMPILE := uv pip compile pyproject.toml --universal --generate-hashes --no-emit-index-url --no-annotate --no-header

lock: ## resolve the lock files anew (needs uv)
	$(COMPILE) --extra local --extra kafka --extra jdbc --group dev --python-version 3.11 --output-file requirements.lock
	$(COMPILE) --extra realtime --group realtime --python-version 3.11 --output-file requirements-realtime.lock
	$(COMPILE) --group databricks --python-version 3.12 --output-file requirements-databricks.lock

clean: ## remove the environments and the demo lake
	rm -rf $(VENV) $(DATABRICKS_VENV) $(REALTIME_VENV) $(LAKE) $(LAKE)-realtime dist
