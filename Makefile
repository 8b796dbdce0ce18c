# `make help` lists what there is. Everything runs in .venv, which `make setup` makes.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest -q

export PYSPARK_PYTHON        := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python

.DEFAULT_GOAL := help

.PHONY: help
help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP)  ## Make .venv with everything that is needed

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed, $(PYTHON) is " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

.PHONY: demo
demo: setup  ## Start a real RocketMQ, stream orders through Spark, show and check the result
	@$(BIN)/pyspark-rocketmq demo

.PHONY: test
test: lint unit contract spark chaos  ## Everything that CI runs

.PHONY: lint
lint: setup  ## Style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: unit
unit: setup  ## Tests without a broker: unit, property, golden, network
	$(PYTEST) tests/unit tests/property tests/golden tests/network

.PHONY: contract
contract: setup  ## Tests against a real RocketMQ 5.4 and 4.9
	$(PYTEST) tests/contract

.PHONY: spark
spark: setup  ## Tests in a real Spark session against a real RocketMQ
	$(PYTEST) tests/spark

.PHONY: chaos
chaos: setup  ## Tests that kill processes and cut connections, the bounded part
	$(PYTEST) tests/chaos

.PHONY: clean
clean:  ## Remove what the tools left; the virtual environment and the jars stay
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
