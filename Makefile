.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTS_READY := $(VENV)/.ready-tests
LAKE ?= lake
FRAUDLAKE := $(BIN)/fraudlake

# databricks-connect replaces pyspark and runs on the Python of its runtime only: each of its releases needs an environment.
DATABRICKS := databricks databricks-classic
DATABRICKS_READY := $(DATABRICKS:%=.venv-%/.ready)
IS_PYTHON312 := import sys, ensurepip; sys.version_info[:2] == (3, 12) and print(sys.executable)

# Spark 4.3, which Delta does not support yet, replaces the lake's Spark.
REALTIME_VENV := .venv-realtime
REALTIME_BIN := $(REALTIME_VENV)/bin
REALTIME_READY := $(REALTIME_VENV)/.ready

PYTHON312 ?= $(firstword $(foreach python,python3.12 $(PYTHON) $(wildcard $(HOME)/.pyenv/versions/3.12.*/bin/python),\
  $(shell $(python) -c '$(IS_PYTHON312)' 2>/dev/null)))

# pip takes three times as long as uv, which does not read pip's configuration: it may name a company's own index.
INDEX = $(or $(PIP_INDEX_URL),$(shell $(BIN)/python -m pip config get global.index-url 2>/dev/null))
UV = $(if $(INDEX),UV_DEFAULT_INDEX=$(INDEX)) $(BIN)/uv pip install --no-deps
# A lock file names everything, so there is nothing to resolve. Python compiles a module when it is first imported.
LOCKED := --require-hashes --requirement
# A container's PYTHONDONTWRITEBYTECODE would have each process compile all modules again: three seconds a start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-long test-all quick check audit tables phrasebook reference pictures docs databricks realtime realtime-demo python312 wheel lock clean

help: ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(READY) ## make the Python environment (.venv) from the lock file

$(BIN)/uv: requirements-uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "fraudlake needs Python 3.11 or newer as '$(PYTHON)'; name another with: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up $(VENV) (once): uv ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(LOCKED) requirements-uv.lock
	@touch $@

$(READY): requirements.lock pyproject.toml | $(BIN)/uv
	@echo "Setting up $(VENV) (once): packages ..."
	@$(UV) --python $(BIN)/python $(LOCKED) requirements.lock
	@$(UV) --python $(BIN)/python --quiet --editable .
	@echo "Setting up $(VENV) (once): jars ..."
	@$(FRAUDLAKE) setup
	@touch $@

$(TESTS_READY): requirements-test.lock $(READY)
	@echo "Setting up $(VENV) (once): the tests' packages ..."
	@$(UV) --python $(BIN)/python $(LOCKED) requirements-test.lock
	@touch $@

demo: $(READY) ## run the main job on transactions that a real Flink wrote, and some with a terminal, into ./lake
	@mkdir -p $(LAKE)/landing/tutorial $(LAKE)/landing/twodays $(LAKE)/landing/terminals
	@cp -R -n fixtures/flink/tutorial/int96/. $(LAKE)/landing/tutorial
	@cp -R -n fixtures/flink/twodays/. $(LAKE)/landing/twodays
	@cp -R -n fixtures/terminals/. $(LAKE)/landing/terminals
	@$(FRAUDLAKE) --lake $(LAKE) --config examples/terminals/fraudlake.toml run

quick: $(TESTS_READY) ## run the tests without a Spark session that take less than a second each
	@$(BIN)/python -m pytest -m "not stream and not slow"

test: $(TESTS_READY) ## run the tests of every guarantee: ten to twenty minutes on two cores
	@$(BIN)/python -m pytest -m "not long"

test-long: $(TESTS_READY) ## run the other tests: second passes, crash points at every commit, soaks, whole matrices; with THIRD=2 from the second third on; with MINUTES=40 only what begins in time
	@$(BIN)/python -m pytest -m long $(if $(THIRD),--third $(THIRD)) $(if $(MINUTES),--minutes $(MINUTES))

test-all: ## run all tests
	@$(MAKE) --no-print-directory test test-long

check: $(TESTS_READY) ## lint, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

audit: $(TESTS_READY) ## compare what is installed with the lock file, and check the licences
	@$(BIN)/python -m pytest -q -n 0 tests/test_dependencies.py

tables: $(TESTS_READY) ## write docs/reference/tables.md from what src/fraudlake/tables.py declares
	@$(BIN)/python -m tests.tables_page

phrasebook: $(TESTS_READY) ## write docs/reference/phrasebook.md from the headers of the examples
	@$(BIN)/python -m tests.phrasebook_page

reference: tables phrasebook ## write all pages of docs/reference that the program or its code says
	@$(BIN)/python -m tests.commands_page
	@$(BIN)/python -m tests.settings_page
	@$(BIN)/python -m tests.messages_page

pictures: $(TESTS_READY) ## draw the pictures of the documentation again, from a fixed seed (needs Chromium)
	@$(BIN)/python docs/images/pipeline.py
	@PYTHONPATH=. $(BIN)/python docs/images/desk.py

docs: $(TESTS_READY) ## build the site of the documentation into site/, and say how to read it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/ is built; to read it at http://127.0.0.1:8000: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

databricks: $(DATABRICKS_READY) ## check the package against databricks-connect (needs Python 3.12)
	@for client in $(DATABRICKS); do PYTHONPATH=src .venv-$$client/bin/python -m pytest tests/databricks \
	  --confcutdir tests/databricks -o "addopts=-ra --tb=short" || exit 1; done

$(DATABRICKS_READY): .venv-%/.ready: requirements-%.lock | $(BIN)/uv
	@test -n "$(PYTHON312)" || { echo "no Python 3.12 found; name one with: make databricks PYTHON312=/path/to/python3.12"; exit 1; }
	@echo "Setting up $(@D) (once) ..."
	@$(PYTHON312) -m venv --clear --without-pip $(@D)
	@$(UV) --python $(@D)/bin/python $(LOCKED) $<
	@touch $@

realtime: $(REALTIME_READY) ## set up the fast lane's environment (.venv-realtime), and run its tests
	@$(REALTIME_BIN)/python -m pytest tests/realtime --confcutdir tests/realtime -o "addopts=-ra --tb=short"

$(REALTIME_READY): requirements-realtime.lock | $(BIN)/uv
	@echo "Setting up $(REALTIME_VENV) (once) ..."
	@$(PYTHON) -m venv --clear --without-pip $(REALTIME_VENV)
	@$(UV) --python $(REALTIME_BIN)/python $(LOCKED) requirements-realtime.lock
	@$(UV) --python $(REALTIME_BIN)/python --quiet --editable .
	@touch $@

realtime-demo: $(TESTS_READY) $(REALTIME_READY) ## send ten seconds of traffic through the fast lane, and compare it with the exact lane
	@$(BIN)/python -m tests.realtime.demo $(LAKE)-realtime $(REALTIME_BIN)/fraudlake

python312: # the path of a Python 3.12, if there is one
	@echo $(PYTHON312)

# A deploy needs only pip, which fetches the build's backend; neither Java nor the environment.
WHEEL_PYTHON := $(firstword $(wildcard $(BIN)/python) $(PYTHON))

wheel: ## build the wheel into dist/, unless it exists for this code (needs only pip)
	@wheel=dist/fraudlake-$$($(WHEEL_PYTHON) -c 'import wheel_version; print(wheel_version.version())')-py3-none-any.whl; \
	  [ "$$(echo dist/*.whl)" = "$$wheel" ] || { rm -rf dist \
	  && $(WHEEL_PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .; }

COMPILE := $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-annotate --no-header
PROJECT := $(COMPILE) pyproject.toml

lock: $(BIN)/uv ## resolve the lock files again
	$(COMPILE) --group setup --python-version 3.11 --output-file requirements-uv.lock
	$(PROJECT) --extra local --python-version 3.11 --output-file requirements.lock
	$(PROJECT) --extra local --extra kafka --extra jdbc --group dev --python-version 3.11 --output-file requirements-test.lock
	$(PROJECT) --extra realtime --group realtime --python-version 3.11 --output-file requirements-realtime.lock
	for client in $(DATABRICKS); do \
	  $(PROJECT) --extra desk --group $$client --python-version 3.12 --output-file requirements-$$client.lock || exit 1; done

clean: ## remove the environments and the demo lake
	rm -rf $(VENV) $(DATABRICKS:%=.venv-%) $(REALTIME_VENV) $(LAKE) $(LAKE)-realtime dist site
