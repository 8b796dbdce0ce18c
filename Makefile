# `make help` lists the targets. Everything runs in .venv, which `make setup` creates.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEV    := $(VENV)/.ready-for-development
# Spark's JVM starts in half the time with its classes in an archive, see docs/performance.md.
ARCHIVE := $(VENV)/spark-classes.jsa
ARCHIVED = SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=$(CURDIR)/$(ARCHIVE) -Xlog:disable -Xlog:all=error:stderr"
# Spark's local files without a process for each, for tests.
LOCAL_FILES := $(VENV)/local-files.jar
# Everything random in tests follows from it. `make test-all` selects one, and prints it.
SEED   ?= 1
PYTEST := $(BIN)/python -m pytest --hypothesis-seed=$(SEED)
# Hypothesis' settings, see tests/support/examples.py.
EXAMPLES := fixed
# Each process begins with its part of the list, and takes half of another's rest when it has finished. Two for tests
# that compute, because each process imports all of them first; four where half of the tests wait.
COMPUTING := --numprocesses 2 --dist worksteal
WAITING := --numprocesses 4 --dist worksteal
# Processes with a Spark session each, which share a broker: three, because tests also wait; a fourth costs more to
# start its JVM than it finds to do. Tests of a file run in the same process; the first folder starts first, so the slowest.
BY_FILE := --numprocesses 3 --dist loadfile --no-loadscope-reorder

# `make test-matrix` tests each Spark with the Python of .venv, and each other Python with the Spark of .venv.
SPARKS  := 4.0 4.1 4.2 4.3
PYTHONS := 3.12 3.13
# The tests without Spark run apart: a process that has had a session of Spark has other loggers.
# A version gets this time for the tests of each run: the rest fails.
MATRIX_SECONDS := 3600

export PYSPARK_PYTHON        := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python
export TEST_SEED             := $(SEED)
export CHAOS_SEED            := $(SEED)
# The entry point of trio, which no test uses: 0.2 s in every process that imports hypothesis.
export HYPOTHESIS_NO_PLUGINS := 1
# Hundreds of processes import the package, and each would compile it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(DEV) $(ARCHIVE) $(LOCAL_FILES)  ## Create .venv with everything for development, and fetch RocketMQ's jars

# The package's own dependencies, PySpark compiled for its workers (see docs/performance.md), and the RocketMQ of the demo.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed, $(PYTHON) is " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[spark]'
	@cd $(VENV)/lib/python*/site-packages/pyspark/python/lib && { test -d pyspark.zip || { \
	  mv pyspark.zip sources.zip && $(PYTHON) -m zipfile -e sources.zip pyspark.zip; }; }
	@$(BIN)/python -m compileall -q -x '/tests/' $(VENV)/lib/python*/site-packages/pyspark/python/lib/pyspark.zip
	@$(BIN)/pyspark-rocketmq cluster fetch
	@touch $@

$(DEV): $(READY)
	@echo "installing the tools of development"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(ARCHIVE): $(READY) tests/support/class_archive.py
	@echo "archiving the classes of Spark"
	@$(BIN)/python -m tests.support.class_archive 2>$@.log || { cat $@.log; echo "no archive: Spark starts slower"; }

$(LOCAL_FILES): $(READY) tests/support/local_files.py tests/support/java/InProcessFiles.java
	@$(BIN)/python -m tests.support.local_files 2>$@.log || { cat $@.log; echo "tests with Spark take longer"; }

.PHONY: demo
demo: $(READY) $(ARCHIVE)  ## Start a real RocketMQ, stream orders through Spark, show and check the result
	@$(ARCHIVED) $(BIN)/pyspark-rocketmq demo

# `make test` excludes these tests.
QUICK := -m "not large"
# Not empty: Spark compiles the expressions of queries and has Hadoop's files, as for users, see `tests/support/lean_jvm.py`.
COMPILED ?=
export TEST_COMPILED = $(COMPILED)

.PHONY: test
test: lint unit network simulation docs brokers smoke  ## Run everything that CI runs

.PHONY: test-all
test-all:  ## Run everything, including tests with separate clusters, many kills or MariaDB, with a random SEED: hours
	@seed=$(if $(filter file,$(origin SEED)),$$(od -An -N3 -tu4 /dev/urandom | tr -d ' '),$(SEED)); \
	echo "random choices follow from $$seed: make test-all SEED=$$seed repeats them"; \
	$(MAKE) --keep-going mariadb prometheus releases test test-lowest QUICK= COMPILED=1 EXAMPLES=search CHAOS_KILLS=2 SEED=$$seed

.PHONY: releases
releases: setup  ## Fetch the JARs of every release of RocketMQ that tests use, and of the proxy
	@$(BIN)/pyspark-rocketmq cluster fetch --version 5.4.0 --version 4.9.7
	@$(BIN)/pyspark-rocketmq cluster fetch --proxy

.PHONY: lint
lint: setup  ## Check style, types and layers
	@$(MAKE) --no-print-directory --jobs 2 --output-sync types types-windows style

# Two processes check types, each for half a minute without a cache.
.PHONY: types
types:
	$(BIN)/mypy

.PHONY: types-windows
types-windows:
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32

.PHONY: style
style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs src examples

.PHONY: browser
browser:  ## Install Chromium and its driver for the dashboard's tests, if missing
	@{ command -v chromium && command -v chromedriver; } >/dev/null || { \
	  test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && \
	  apt-get install -qq -y --no-install-recommends chromium chromium-driver fonts-dejavu-core >/dev/null; } || { \
	  echo "Chromium and chromedriver are needed: install them with the system's package manager"; exit 1; }

.PHONY: mariadb
mariadb:  ## Install MariaDB's server for tests, if missing
	@PATH=$$PATH:/usr/sbin command -v mariadbd >/dev/null || { \
	  test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && \
	  apt-get install -qq -y --no-install-recommends mariadb-server >/dev/null; } || { \
	  echo "MariaDB's server is needed: install mariadb-server with the system's package manager"; exit 1; }

# Taken out of the package: installed, it would start a server.
.PHONY: prometheus
prometheus: setup  ## Fetch Prometheus' promtool for tests, if missing
	@PATH=$(BIN):$$PATH command -v promtool >/dev/null || { folder=$$(mktemp -d) && ( cd $$folder && \
	  { apt-get download -qq prometheus 2>/dev/null || { apt-get update -qq && apt-get download -qq prometheus; }; } && \
	  dpkg -x prometheus_*.deb . ) && mv $$folder/usr/bin/promtool $(BIN)/; code=$$?; rm -rf $$folder; exit $$code; } || { \
	  echo "promtool is needed: install prometheus with the system's package manager"; exit 1; }

.PHONY: screenshots
screenshots: setup browser  ## Recreate the documentation's pictures of the dashboard and the demo
	SCREENSHOTS=1 $(PYTEST) tests/network/test_dashboard.py -k draws
	$(BIN)/python -m tests.support.demo_picture docs/pictures/demo.svg

.PHONY: unit
unit: setup  ## Run tests without a network: unit, property, golden, fuzz
	$(PYTEST) $(QUICK) --hypothesis-profile=$(EXAMPLES) $(COMPUTING) tests/fuzz tests/property tests/golden tests/unit

.PHONY: network
network: setup browser  ## Run tests with the mock broker and scripted peers on loopback, and the dashboard in a browser
	$(PYTEST) $(QUICK) --hypothesis-profile=$(EXAMPLES) $(WAITING) tests/network

.PHONY: simulation
simulation: setup  ## Run tests of the simulation: lives in virtual time, and planted mistakes that they must find
	$(PYTEST) $(QUICK) $(COMPUTING) tests/simulation

.PHONY: brokers
brokers: setup  ## Run tests with a real RocketMQ: contract, spark, streams and chaos together
	$(PYTEST) $(BY_FILE) $(QUICK) tests/chaos tests/spark tests/contract

.PHONY: contract
contract: setup  ## Run tests of the client against a real RocketMQ
	$(PYTEST) $(BY_FILE) $(QUICK) tests/contract

.PHONY: spark
spark: setup  ## Run tests in a real Spark session against a real RocketMQ
	$(PYTEST) $(BY_FILE) $(QUICK) tests/spark --ignore-glob='*/test_streams_*.py'

.PHONY: streams
streams: setup  ## Run tests of stream pipelines, on a real RocketMQ where that matters
	$(PYTEST) $(BY_FILE) $(QUICK) tests/spark/test_streams_*.py

.PHONY: chaos-bounded
chaos-bounded: setup  ## Run tests that kill processes and cut connections, for minutes
	$(PYTEST) $(BY_FILE) $(QUICK) tests/chaos

.PHONY: chaos
chaos: setup  ## Run these with 20 kills of each kind, then send a million messages through every fault
	CHAOS_SEED=$(if $(filter file,$(origin SEED)),0,$(SEED)) CHAOS_KILLS=20 $(PYTEST) --timeout=3600 tests/chaos
	$(BIN)/python -m tests.chaos.run --messages 1000000 --rounds 3

.PHONY: simulate
SEEDS ?= 10000
simulate: setup  ## Live SEEDS lives (10000, or FIRST:END) in virtual time, each with faults of its own
	PYTHONPATH=.:src $(BIN)/python -m tests.simulation.run --seeds $(SEEDS)

.PHONY: fuzz
SECONDS ?= 120
fuzz: setup  ## Fuzz every parser for SECONDS each (120), and keep inputs that reach new code
	@for target in frame stream header body record batch options; do \
	  echo "== $$target"; \
	  PYTHONPATH=.:src $(BIN)/python -m tests.fuzz.run $$target --seconds $(SECONDS) --keep || exit 1; \
	done

.PHONY: mutants
MODULES ?=
mutants: setup  ## Mutate MODULES (planning/limit …), for MINUTES= at most: the tests of a module must notice
	PATH=$(CURDIR)/$(BIN):$$PATH nice -n 15 $(BIN)/python -m tests.support.mutants \
	  $(if $(filter file,$(origin MINUTES)),,--minutes $(MINUTES)) $(MODULES)

OLDEST := 4.0

.PHONY: smoke
smoke: setup .venv-spark-$(OLDEST)/.ready  ## Run a few Spark tests with PySpark 4.0
	TEST_COMPILED=1 TEST_SPARK=$(OLDEST) PYTHONPATH=$(CURDIR)/.venv-spark-$(OLDEST):$(CURDIR)/src $(PYTEST) \
	  tests/spark/test_release.py tests/spark/test_batch.py tests/spark/test_stream.py tests/spark/test_write.py \
	  tests/spark/test_docs_examples.py -k "registers_itself or every_column or tags_choose or sent_back or copies_a_topic or under_test"

# Only PySpark (450 MB): everything else is shared with .venv. Nothing, if .venv has this release.
.venv-spark-%/.ready: | $(DEV)
	@rm -rf $(@D) && mkdir $(@D)
	@$(BIN)/python -c 'import sys, pyspark; sys.exit(not pyspark.__version__.startswith("$*."))' || { \
	  echo "fetching PySpark $*"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) 'pyspark==$*.*'; }
	@touch $@

LOWEST := .venv-lowest
# What users install; the tools of the tests are those of .venv. Without opentelemetry, since the SDK of the tests needs
# the API of its own release.
EXTRAS := compression dashboard mqtt notebook prometheus spark sql state
COMPILE_LOWEST = $(LOWEST)/uv/bin/uv pip compile --quiet --python $(BIN)/python --no-header --no-annotate \
  --resolution lowest-direct $(addprefix --extra=,$(EXTRAS))

.PHONY: test-lowest
test-lowest: setup $(LOWEST)/.ready  ## Run unit and property tests with the lowest declared version of every dependency
	PYTHONPATH=$(CURDIR)/$(LOWEST):$(CURDIR)/.venv-spark-$(OLDEST) $(PYTEST) $(QUICK) --hypothesis-profile=$(EXAMPLES) \
	  -W default::DeprecationWarning --numprocesses 3 tests/unit tests/property

# The direct dependencies at their lowest; what these need, as in constraints.txt. PySpark is that of `make smoke`.
$(LOWEST)/.ready: pyproject.toml constraints.txt | .venv-spark-$(OLDEST)/.ready
	@echo "fetching the lowest version of every dependency"
	@rm -rf $(LOWEST)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --target $(LOWEST)/uv uv
	@$(COMPILE_LOWEST) --no-deps --output-file $(LOWEST)/direct.txt pyproject.toml
	@grep -viE "^($$(sed 's/==.*//; s/-/[-_]/g' $(LOWEST)/direct.txt | paste -sd '|' -))==" constraints.txt > $(LOWEST)/others.txt
	@$(COMPILE_LOWEST) --constraint $(LOWEST)/others.txt --output-file $(LOWEST)/all.txt pyproject.toml
	@grep -vE '^(pyspark|py4j)==' $(LOWEST)/all.txt > $(LOWEST)/lowest.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(LOWEST) --requirement $(LOWEST)/lowest.txt
	@touch $@

.PHONY: docs
docs: setup  ## Build the documentation into site/ with warnings as errors, and test its pages
	$(PYTEST) tests/docs

.PHONY: dist
dist: setup  ## Build wheel and sdist into dist/, reproducible for a commit
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build

.PHONY: docs-options
docs-options: setup  ## Generate docs/options.md, after an option has changed
	PYTHONPATH=src $(BIN)/python -m pyspark_rocketmq.options.reference > docs/options.md

.PHONY: docs-api
docs-api: setup  ## Refresh the entries of docs/api.md, after a docstring has changed
	$(BIN)/python -m tests.support.api_page

MATRIX_TESTS = $(QUICK) --hypothesis-profile=$(EXAMPLES) --session-timeout=$(MATRIX_SECONDS) $(BY_FILE)

.PHONY: test-matrix
test-matrix: setup $(SPARKS:%=.venv-spark-%/.ready)  ## Run unit and Spark tests with each Spark (SPARKS=), and each other Python that is found (PYTHONS=)
	@table=; failed=0; \
	row() { table="$$table$$(printf '%-12s %s' "$$1" "$$2")\n"; }; \
	judge() { if test "$$2" = 0; then row "$$1" passed; else row "$$1" FAILED; failed=1; fi; }; \
	tests() { "$$@" $(MATRIX_TESTS) tests/unit tests/property; unit=$$?; "$$@" $(MATRIX_TESTS) tests/spark && return $$unit; }; \
	for spark in $(SPARKS); do \
	  echo "== Spark $$spark"; \
	  tests env TEST_SPARK=$$spark PYTHONPATH=$(CURDIR)/.venv-spark-$$spark:$(CURDIR)/src $(PYTEST) -q; \
	  judge "Spark $$spark" $$?; \
	done; \
	for python in $(PYTHONS); do \
	  echo "== Python $$python"; \
	  if ! python$$python -c '' 2>/dev/null; then row "Python $$python" "not tested: python$$python is not on PATH"; continue; fi; \
	  place=$(CURDIR)/.venv-python-$$python; \
	  { test -x $$place/bin/python || python$$python -m venv $$place; } && \
	  $$place/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' && \
	  tests env PYSPARK_PYTHON=$$place/bin/python PYSPARK_DRIVER_PYTHON=$$place/bin/python \
	    $$place/bin/python -m pytest -q --hypothesis-seed=$(SEED); \
	  judge "Python $$python" $$?; \
	done; \
	echo "== Result"; printf "$$table"; exit $$failed

BENCH := $(VENV)/.bench-ready

$(BENCH): $(DEV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,bench]'
	@touch $@

.PHONY: bench
bench: $(BENCH)  ## Compare reading, writing and small batches with the Java clients and Kafka: up to an hour
	$(BIN)/python -m benchmarks.suite

.PHONY: nexmark
nexmark: $(BENCH)  ## Run Nexmark's queries as SQL jobs, compare each with plain Python, and time them beside Kafka
	$(BIN)/python -m benchmarks.nexmark
	$(BIN)/python -m benchmarks.nexmark.kafka --events 200000

.PHONY: soak
MINUTES ?= 10
soak: $(BENCH)  ## Write and read steadily for MINUTES (10), and check that memory, files, threads and batches stay flat
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

.PHONY: bench-quick
bench-quick: $(BENCH)  ## Measure the base case of reading, with 500,000 messages and three rounds: a few minutes
	$(BIN)/python -m benchmarks.suite --quick

.PHONY: first-minutes
first-minutes: setup  ## Measure the README's first section in a fresh clone: at most five minutes, caches warm
	$(BIN)/python -m tests.support.first_minutes

.PHONY: clean
clean:  ## Remove the output of the tools, but not the virtual environment and the jars
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
