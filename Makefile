# Everything that a developer runs. `make help` lists the targets.
#
# Two rules keep it quick. The Arrow crates take minutes to compile with optimisation, so the extension
# is built once, with --release, and the Rust tests use the dev profile: the two keep their own halves of
# target/. And no step sets RUSTFLAGS, since a change of flags compiles every dependency again: warnings
# are denied by clippy, which passes its flags to this crate only and sees all warnings of the compiler.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(abspath $(VENV)/bin)
STEP := .ci/step
CARGO := cargo
# Many tests wait for the disk.
TEST_THREADS := $(shell echo $$((2 * $$(nproc 2>/dev/null || echo 2))))

# PyO3 looks for an interpreter when it is compiled, and Spark's workers start whichever this names.
export PYO3_PYTHON := $(BIN)/python
export PYSPARK_PYTHON := $(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(BIN)/python
# What a test starts listens on the loopback address only.
export SPARK_LOCAL_IP ?= 127.0.0.1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1
export PATH := $(BIN):$(PATH)

PYTHON_READY := $(VENV)/.python-ready
DOCS_READY := $(VENV)/.docs-ready
OLD_SPARK := .venv-old-spark
OLD_SPARK_READY := $(OLD_SPARK)/.python-ready
EXTENSION_READY := $(VENV)/.extension-ready
RUST_SOURCES := $(shell find src -name '*.rs')
PYTHON_SOURCES := $(wildcard python tests benches examples)
CLIPPY := $(CARGO) clippy --locked --quiet
DENY := -- -D warnings

.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help dev demo test proof lint format bench docs clean
.PHONY: tools test-begin test-rust test-python test-compat test-faults test-examples test-stubs test-end
.PHONY: test-old-spark

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# --- set-up ---------------------------------------------------------------------------------------

dev: tools $(EXTENSION_READY)  ## make .venv with every Python dependency and the extension

tools:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.95 or later"; exit 1; }
	@command -v java >/dev/null || echo "java is missing: Spark needs a JDK 17 or later"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is too old: Python 3.11 or later is needed (make PYTHON=...)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Dependency groups need pip 25.1, and the pip that a new environment brings may be older.
$(PYTHON_READY): pyproject.toml | $(VENV)/bin/python
	@$(STEP) "pip" $(BIN)/python -m pip install --upgrade 'pip>=25.1'
	@$(STEP) "Python packages" $(BIN)/python -m pip install --group dev
	@touch $@

$(DOCS_READY): pyproject.toml | $(PYTHON_READY)
	@$(STEP) "packages for the docs" $(BIN)/python -m pip install --group docs
	@touch $@

$(OLD_SPARK_READY): pyproject.toml | $(PYTHON_READY)
	@$(PYTHON) -m venv $(OLD_SPARK)
	@$(STEP) "pip, old Spark" $(OLD_SPARK)/bin/python -m pip install --upgrade 'pip>=25.1'
	@$(STEP) "packages, old Spark" $(OLD_SPARK)/bin/python -m pip install --group test-old-spark
	@touch $@

# Another environment may have removed or replaced the library that stands beside the Python source.
ifeq ($(wildcard python/forebay/_forebay*.so),)
.PHONY: $(EXTENSION_READY)
endif
$(EXTENSION_READY): $(PYTHON_READY) Cargo.toml Cargo.lock $(RUST_SOURCES)
	@$(STEP) "the extension, release build" \
		$(BIN)/maturin develop --quiet --release --locked
	@touch $@

# --- the two commands -----------------------------------------------------------------------------

demo: dev  ## run the main job on real input, in about a minute
	$(BIN)/python -m forebay demo

test: test-begin lint test-rust test-python test-compat test-faults test-examples test-stubs \
	test-end  ## the gate

test-begin:
	@rm -f target/steps.txt

test-end:
	@printf '\n'; cat target/steps.txt

lint: tools $(PYTHON_READY)  ## check format, lints and types
	@$(STEP) "cargo fmt" $(CARGO) fmt --check
	@$(STEP) "clippy, with Python" $(CLIPPY) --all-targets --features python $(DENY)
	@$(STEP) "clippy, pure core" $(CLIPPY) --lib $(DENY)
	@$(STEP) "ruff check" $(BIN)/ruff check --quiet $(PYTHON_SOURCES)
	@$(STEP) "ruff format" $(BIN)/ruff format --quiet --check $(PYTHON_SOURCES)
	@$(STEP) "mypy" $(BIN)/mypy

test-rust: tools $(PYTHON_READY)
	@$(STEP) "cargo test, build" $(CARGO) test --locked --quiet --no-run
	@$(STEP) "cargo test" $(CARGO) test --locked --quiet -- --test-threads $(TEST_THREADS)

test-python: dev
	@$(STEP) "pytest tests/python" $(BIN)/python -m pytest --quiet tests/python

# These start the real RocketMQ, which Maven fetches.
test-compat: dev
	@if command -v mvn >/dev/null; then \
		$(STEP) "pytest tests/compat" $(BIN)/python -m pytest --quiet tests/compat; \
	else \
		echo "skipped  tests/compat: mvn is not on the path" | tee -a target/steps.txt; \
	fi

# Processes that are killed, calls that fail, disks that fill up or lose their power.
test-faults: dev
	@$(STEP) "pytest tests/faults" $(BIN)/python -m pytest --quiet tests/faults

test-examples: dev
	@set -e; for example in examples/*.py; do \
		$(STEP) "$$example" $(BIN)/python -W error "$$example"; \
	done

# The oldest Spark that is supported, in an environment of its own.
test-old-spark: export PYSPARK_PYTHON := $(abspath $(OLD_SPARK)/bin/python)
test-old-spark: export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
test-old-spark: dev $(OLD_SPARK_READY)
	@PYTHONPATH=$(CURDIR)/python $(STEP) "pytest tests/python/spark, old Spark" \
		$(OLD_SPARK)/bin/python -m pytest --quiet tests/python/spark

test-stubs: dev
	@$(STEP) "stubtest" $(BIN)/python -m mypy.stubtest forebay._forebay

# --- the rest -------------------------------------------------------------------------------------

# Tests that draw cases look at FOREBAY_PROOF and draw many more; proptest reads its own variable.
proof: dev  ## the same tests, much longer and with optimisation
	@FOREBAY_PROOF=1 PROPTEST_CASES=20000 FOREBAY_SIM_CRASHES=10000000 $(STEP) "cargo test, long" \
		$(CARGO) test --locked --release
	@FOREBAY_PROOF=1 $(STEP) "pytest tests/python, long" $(BIN)/python -m pytest tests/python
	@FOREBAY_PROOF=1 $(MAKE) --no-print-directory test-compat
	@$(MAKE) --no-print-directory test-old-spark
	@FOREBAY_PROOF=1 $(STEP) "pytest tests/faults, long" $(BIN)/python -m pytest -s tests/faults

format: $(PYTHON_READY)  ## write Rust and Python files in the house's format
	$(CARGO) fmt
	$(BIN)/ruff check --quiet --fix-only $(PYTHON_SOURCES)
	$(BIN)/ruff format --quiet $(PYTHON_SOURCES)

bench: dev  ## measure core and package against their thresholds; figures need a quiet machine
	@rm -rf target/bench
	@$(CARGO) bench --locked --quiet
	@$(BIN)/python benches/python/bench.py
	@printf '\n'; $(BIN)/python benches/summary.py

docs: dev $(DOCS_READY)  ## build docs/, the Python reference and the Rust reference into site/
	@$(STEP) "zensical" $(BIN)/zensical build --strict --clean
	@RUSTDOCFLAGS="-D warnings" $(STEP) "cargo doc" $(CARGO) doc --locked --quiet --no-deps --lib
	@rm -rf site/rust && cp -r target/doc site/rust
	@echo "open site/index.html; the Rust reference is site/rust/forebay/index.html"

clean:  ## remove everything that was built
	rm -rf target $(VENV) $(OLD_SPARK) site dist python/forebay/_forebay*.so
	rm -rf .cache .pytest_cache .ruff_cache .mypy_cache .hypothesis
