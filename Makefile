# Everything that a developer runs. `make help` lists the targets.
#
# Three rules keep it quick. The Arrow crates take minutes to compile with optimisation, so all tests, in Rust and
# Python, use the dev profile, which shares them and also checks arithmetic and assertions. No step sets RUSTFLAGS, since
# a change of flags compiles every dependency again. Clippy denies warnings instead: it passes its flags to this crate
# only, sees all warnings of the compiler, and compiles what the gate runs; a separate check would also compile every
# dependency again. The gate runs in two lanes, Rust and Python.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(abspath $(VENV)/bin)
STEP := .ci/step
CARGO := cargo
# Many tests wait for the disk, for a JVM or for a child.
TEST_THREADS := $(shell echo $$((2 * $$(nproc 2>/dev/null || echo 2))))
# Seconds for all Rust tests. A single test has no limit; the runner names those that take longer than a minute.
RUST_LIMIT := 1800
# Processes of pytest. Two for each processor left a quarter of its time unused.
WORKERS := $(shell echo $$((3 * $$(nproc 2>/dev/null || echo 2))))
PYTEST := -m pytest --quiet
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# PyO3 looks for an interpreter when it is compiled.
export PYO3_PYTHON := $(BIN)/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1
# Without bytecode files, each process of the tests would compile the package from its source.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(BIN):$(PATH)

PYTHON_READY := $(VENV)/.python-ready
DOCS_READY := $(VENV)/.docs-ready
OLDEST := .venv-oldest
OLDEST_READY := $(OLDEST)/.python-ready
# The tests of optional packages.
OPTIONAL := tests/python/spark tests/python/cli/test_cli_export.py tests/python/cli/test_cli_spark.py \
	$(patsubst %,tests/python/test_%.py,archive archive_remote arrow console console_pages engines hooks metrics notebook progress serde)
# The extension for tests, and the one for people and benchmarks. Both are one file: the one built last.
CHECKED := $(VENV)/.extension-dev
OPTIMISED := $(VENV)/.extension-quick
# The one that test targets need.
EXTENSION := $(CHECKED)
# A wheel of the same library, and the tests that install it.
WHEEL := target/wheel/.ready
NEWCOMER := tests/python/test_docs.py tests/python/test_newcomer.py tests/python/test_newcomer_modules.py \
	tests/python/cli/test_cli_docs.py tests/python/cli/test_cli_newcomer.py tests/python/cli/test_cli_wrong.py \
	tests/python/cli/test_cli_errors.py
SPARK_READY := target/spark/.ready
RUST_SOURCES := $(shell find src -name '*.rs')
PYTHON_SOURCES := $(wildcard python tests benches examples)
CLIPPY := $(CARGO) clippy --locked --quiet
DENY := -- -D warnings
# Prefix of a command that compiles this crate with clippy, which takes no longer than without it.
LINTED := env RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/.ci/clippy CLIPPY_ARGS=-Dwarnings
# The same for a crate that is only checked. Its dependencies are compiled, so that the extension can use them.
ONLY_LINTED := env RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/.ci/clippy-only CLIPPY_ARGS=-Dwarnings
# Cargo for the tests: the Rust tests link what it compiles for the extension.
SHARED := $(CURDIR)/.ci/cargo

.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help dev demo test proof proof-rust proof-python lint format stub bench docs clean
.PHONY: tools packages built lane-rust lane-python lint-rust lint-core lint-python test-rust test-python test-compat test-faults
.PHONY: test-stubs test-oldest test-spark-extra test-extras docs-rust docs-python screenshots

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# --- set-up ---------------------------------------------------------------------------------------

dev: tools $(OPTIMISED)  ## make .venv with every Python dependency and the extension

tools:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.95 or later"; exit 1; }
	@command -v java >/dev/null || echo "java is missing: Spark needs a JDK 17 or later"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is too old: Python 3.11 or later is needed (make PYTHON=...)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Python compiles the few modules that are imported; pip would compile all.
# Dependency groups need pip 25.1, and a new environment may have an older pip.
# PySpark is a source archive, from which pip makes a wheel: most of it is jars, which do not compress further.
UNCOMPRESSED := --config-settings=--build-option=--compression=stored
$(PYTHON_READY): pyproject.toml | $(VENV)/bin/python
	@$(STEP) "pip" $(BIN)/python -m pip install --upgrade 'pip>=25.1'
	@$(STEP) "Python packages" $(BIN)/python -m pip install --no-compile $(UNCOMPRESSED) --group dev
	@touch $@

$(DOCS_READY): pyproject.toml | $(PYTHON_READY)
	@$(STEP) "packages for the docs" $(BIN)/python -m pip install --no-compile --group docs
	@touch $@

$(OLDEST_READY): pyproject.toml tests/support/oldest.py | $(PYTHON_READY)
	@$(PYTHON) -m venv $(OLDEST)
	@$(BIN)/python tests/support/oldest.py >$(OLDEST)/requirements.txt
	@$(STEP) "oldest packages" $(OLDEST)/bin/python -m pip install --no-compile -r $(OLDEST)/requirements.txt
	@touch $@

# Another environment may have removed or replaced the library that stands beside the Python source.
ifeq ($(wildcard python/forebay/_forebay*.so),)
.PHONY: $(CHECKED) $(OPTIMISED)
endif
$(CHECKED) $(OPTIMISED): $(VENV)/.extension-%: $(PYTHON_READY) Cargo.toml Cargo.lock $(RUST_SOURCES)
	@rm -f $(CHECKED) $(OPTIMISED)
	@$(STEP) "the extension" $(if $(filter dev,$*),$(LINTED) CARGO=$(SHARED)) $(BIN)/maturin develop --quiet --profile $* --locked
	@touch $@

# After the extension is built, Cargo has nothing left to compile for the wheel.
$(WHEEL): $(EXTENSION) $(shell find python -name '*.py*' -not -path '*/__pycache__/*') README.md
	@rm -rf $(@D)
	@$(STEP) "the wheel" $(if $(filter $(CHECKED),$(EXTENSION)),$(LINTED) CARGO=$(SHARED)) \
		$(BIN)/maturin build --quiet --locked --compatibility linux --auditwheel skip \
		--profile $(patsubst $(VENV)/.extension-%,%,$(EXTENSION)) --interpreter $(BIN)/python --out $(@D)
	@touch $@

# Sessions of Spark start in a third of the time with this archive; they also start without it.
$(SPARK_READY): tests/support/jvm.py $(PYTHON_READY)
	@$(STEP) "an archive of Spark's classes" $(BIN)/python tests/support/jvm.py
	@touch $@

# --- the two commands -----------------------------------------------------------------------------

demo: dev  ## run the main job on real input, in about a minute
	$(BIN)/python -m forebay demo

test: tools $(VENV)/bin/python  ## the gate
	@rm -rf target/steps target/steps.txt
	@.ci/beside lane-rust lane-python
	@printf '\n'; cat target/steps.txt

# The Rust tests use only the processor, while the Python tests often wait for other things. So the Python tests have
# priority, and the Rust tests fill the gaps.
lane-rust: lint-core
	@$(MAKE) -s built
	@nice $(MAKE) -s test-rust

# Collecting compiles the tests and what they import, which otherwise each worker would do. test_package.py runs the
# newcomer's tests from the wheel.
lane-python: packages lint-python
	@$(MAKE) -s $(SPARK_READY) & $(MAKE) -s built && wait $$!
	@$(MAKE) -s test-stubs docs-python
	@$(STEP) "collecting" $(BIN)/python $(PYTEST) --collect-only
	@$(STEP) "pytest" $(BIN)/python $(PYTEST) $(SIDE_BY_SIDE) $(NEWCOMER:%=--ignore=%)

# The first lane builds what both need. Otherwise Cargo would make one lane wait for everything that the other builds.
packages: $(VENV)/bin/python
	@mkdir -p target && flock target/packages.lock $(MAKE) -s $(PYTHON_READY)

built: packages
	@flock target/built.lock $(MAKE) -s $(EXTENSION) $(WHEEL)

lint: lint-rust lint-python  ## check format, lints and types

lint-rust: lint-core $(VENV)/bin/python
	@$(STEP) "clippy, with Python" $(CLIPPY) --all-targets --features python $(DENY)

# Checks of code that the gate compiles for no other purpose.
lint-core: tools
	@$(STEP) "cargo fmt" $(CARGO) fmt --check
	@$(STEP) "clippy, pure core" $(ONLY_LINTED) $(CARGO) rustc --locked --quiet --lib

lint-python: $(PYTHON_READY)
	@$(STEP) "ruff check" $(BIN)/ruff check --quiet $(PYTHON_SOURCES)
	@$(STEP) "ruff format" $(BIN)/ruff format --quiet --check $(PYTHON_SOURCES)
	@$(STEP) "mypy" $(BIN)/mypy
	@$(STEP) "pyright" $(BIN)/pyright --pythonpath $(BIN)/python

test-rust: tools $(VENV)/bin/python
	@$(STEP) "cargo test, build" $(LINTED) $(SHARED) test --locked --quiet --no-run --all-targets
	@STEP_LIMIT=$(RUST_LIMIT) $(STEP) "cargo test" $(LINTED) RUSTDOC=$(CURDIR)/.ci/rustdoc \
		$(SHARED) test --locked --quiet -- --test-threads $(TEST_THREADS)

test-python: tools $(EXTENSION) $(WHEEL) $(SPARK_READY)
	@$(STEP) "pytest tests/python" $(BIN)/python $(PYTEST) $(SIDE_BY_SIDE) tests/python

# These start the real RocketMQ and Kafka, which Maven fetches; they are skipped where there is no Maven.
test-compat: tools $(EXTENSION) $(SPARK_READY)
	@$(STEP) "pytest tests/compat" $(BIN)/python $(PYTEST) $(SIDE_BY_SIDE) tests/compat

# Killed processes, failing calls, full disks and power losses.
test-faults: tools $(EXTENSION)
	@$(STEP) "pytest tests/faults" $(BIN)/python $(PYTEST) $(SIDE_BY_SIDE) tests/faults

# The oldest versions of all optional packages that are supported, Spark among them, in an environment of their own.
test-oldest: tools $(EXTENSION) $(OLDEST_READY)
	@PYTHONPATH=$(CURDIR)/python $(STEP) "pytest, oldest packages" $(OLDEST)/bin/python $(PYTEST) \
		-p pytest_forebay $(SIDE_BY_SIDE) $(OPTIONAL)

# `pip install 'forebay[spark]'` in an empty environment runs the tutorial.
test-spark-extra: tools $(EXTENSION) $(WHEEL)
	@rm -rf target/spark-extra && $(PYTHON) -m venv target/spark-extra
	@$(STEP) "forebay[spark]" target/spark-extra/bin/python -m pip install "$$(ls target/wheel/*.whl)[spark]"
	@FOREBAY_TUTORIAL=$(CURDIR)/target/spark-extra/bin/python $(STEP) "the tutorial" \
		$(BIN)/python $(PYTEST) tests/python/spark/test_spark_docs.py -k tutorial

# The same for all other extras, each with a small program.
test-extras: tools $(EXTENSION) $(WHEEL)
	@$(STEP) "the extras" $(BIN)/python tests/support/extras.py target/wheel/*.whl

test-stubs: tools $(EXTENSION)
	@$(STEP) "stubtest" $(BIN)/python -m mypy.stubtest forebay._forebay

stub: tools $(EXTENSION)  ## write the docstrings of the built module into python/forebay/_forebay.pyi
	@$(BIN)/python tests/support/stub.py
	@$(BIN)/ruff format --quiet python/forebay/_forebay.pyi

# --- the rest -------------------------------------------------------------------------------------

# With FOREBAY_PROOF, randomised tests draw many more cases; proptest takes its number of cases from a variable of its
# own. They take hours, so no step and no test has a limit here.
proof proof-rust proof-python: export FOREBAY_PROOF := 1
proof proof-rust proof-python: export STEP_LIMIT := 0
proof proof-rust proof-python: export PYTEST_TIMEOUT := 0
proof: proof-rust proof-python  ## the same tests, much longer and with optimisation (make -k goes on after a failure)

# The logs have what each harness did, and its seeds.
proof-rust: tools
	@PROPTEST_CASES=20000 FOREBAY_SIM_CRASHES=10000000 FOREBAY_SIM_STORIES=10000 $(STEP) "cargo test, long" \
		$(CARGO) test --locked --release -- --show-output

proof-python: dev $(SPARK_READY)
	@$(MAKE) --no-print-directory EXTENSION=$(OPTIMISED) $(WHEEL)
	@$(STEP) "pytest, long" $(BIN)/python $(PYTEST) $(SIDE_BY_SIDE) -rA
	@$(MAKE) --no-print-directory EXTENSION=$(OPTIMISED) test-oldest test-spark-extra test-extras

format: $(PYTHON_READY)  ## write Rust and Python files in the house's format
	$(CARGO) fmt
	$(BIN)/ruff check --quiet --fix-only $(PYTHON_SOURCES)
	$(BIN)/ruff format --quiet $(PYTHON_SOURCES)

bench: dev  ## measure core and package against their thresholds; figures need a quiet machine
	@rm -rf target/bench
	@$(CARGO) bench --locked --quiet
	@$(BIN)/python benches/python/bench.py
	@printf '\n'; $(BIN)/python benches/summary.py

docs: docs-rust docs-python  ## build docs/, the Python reference and the Rust reference into site/
	@rm -rf site/rust && cp -r target/doc site/rust
	@echo "open site/index.html; the Rust reference is site/rust/forebay/index.html"

docs-rust: tools
	@RUSTDOCFLAGS="-D warnings" $(STEP) "cargo doc" $(CARGO) doc --locked --quiet --no-deps --lib

docs-python: tools $(EXTENSION) $(DOCS_READY)
	@$(STEP) "zensical" $(BIN)/zensical build --strict --clean
	@$(STEP) "the reference" $(BIN)/python tests/support/reference.py

# The console's pages as the documentation shows them. Needs Chromium.
screenshots: tools $(EXTENSION)
	@$(STEP) "screenshots" $(BIN)/python tests/support/screenshots.py

clean:  ## remove everything that was built
	rm -rf target $(VENV) $(OLDEST) site dist python/forebay/_forebay*.so
	rm -rf .cache .pytest_cache .ruff_cache .mypy_cache .hypothesis
