# Every target sets up what it needs; `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.duallgd-ready
DEMO := out/demo.csv
PLUGIN := plugins/authors_network
# Test processes; each file of tests is one process's, so that what its tests share is made once.
JOBS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Idle OpenMP threads sleep: spinning ones cost far more than they save on a shared machine.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: help env lint test quick check slow fuzz oldest newest bench-check gpu parity demo pictures docs dist clean

help:     ## list the targets
	@grep -hE '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  \1\t/' | expand -t 16

env: $(READY)  ## virtual environment in .venv (3.2 GB, some minutes), editable install, git hook

# PyTorch first, so that a CPU build at hand is kept instead of gigabytes of CUDA libraries.
$(READY): pyproject.toml constraints.txt $(PLUGIN)/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@echo "Setting up $(VENV): some minutes, and 3 GB with the CPU build of PyTorch (docs/install.md)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --root-user-action=ignore -c constraints.txt torch
	$(BIN)/python -m pip install --root-user-action=ignore -c constraints.txt -e '.[dev]' -e ./$(PLUGIN)
	if git rev-parse --git-dir > /dev/null 2>&1; then git config core.hooksPath .githooks; fi
	touch $@

lint: env  ## ruff check, ruff format --check, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: env  ## every test that needs no GPU; make test JOBS=8 on a larger machine
	$(PYTEST) -m "not gpu" --durations=15

quick: env  ## the fast tests
	$(PYTEST) -m "not slow and not gpu" --durations=10

check: lint quick  ## what to run before a commit

slow: env  ## the property tests with 1,000 examples each
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -q tests/property

fuzz: env  ## broken inputs of every kind (files, archives) and 60 kills, counts printed
	DUALLGD_FUZZ=25 $(BIN)/python -m pytest -q tests/fuzz -rP --show-capture=stdout

# Paths, archives and the printed page are where libraries differ most from version to version.
OLDEST := import tomllib; \
  about = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  wanted = sum((about["optional-dependencies"][extra] for extra in ("plots", "evaluate")), about["dependencies"]); \
  print(*(name.replace(">=", "==") for name in wanted if not name.startswith("duallgd")))

tried := -m pytest -q -o filterwarnings= -m "not slow and not gpu" tests/cli tests/unit

oldest:   ## the fast tests of commands and modules, with the oldest versions that pyproject.toml allows
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/python -m pip install -q --root-user-action=ignore -e . pytest hypothesis $$($(PYTHON) -c '$(OLDEST)')
	build/oldest/bin/python $(tried)

newest:   ## the same with the newest, as a user's installation gets them; make newest PYTHON=python3.13
	$(PYTHON) -m venv build/newest
	build/newest/bin/python -m pip install -q --root-user-action=ignore -e '.[plots,evaluate,library]' pytest hypothesis
	build/newest/bin/python $(tried)

bench-check: env  ## how much work a prediction is, in counts; fails where one grew by a tenth
	PYTHONPATH=. $(BIN)/python examples/benchmarks/counts.py

gpu:      ## the GPU tests; needs only torch, numpy and pytest
	PYTHONPATH=. $(PYTHON) -m pytest -q -m gpu tests/gpu

parity: env  ## the authors' network against the reference arrays beside the checkout
	$(BIN)/python -m pytest -q -m parity $(PLUGIN)/tests

demo: env  ## predict structures for the example spectra with the shipped weights and a small database
	@echo "Predicting structures for the twelve example spectra: a minute on an idle core."
	mkdir -p $(dir $(DEMO))
	$(BIN)/duallgd predict examples/spectra.mgf --formulas examples/formulas.csv --database examples/structures.csv -o $(DEMO) --report $(DEMO:.csv=.html) --force
	@PYTHONPATH=. $(BIN)/python examples/demo.py $(DEMO)
	@echo "All candidates: $(DEMO), with versions, settings and counts in $(DEMO).run.json"
	@echo "To look at: open $(DEMO:.csv=.html) in a browser"

pictures: demo  ## docs/img: the demo's report, which needs Chromium, and the plot of calibration
	$(BIN)/python docs/img/make.py $(DEMO:.csv=.html)
	$(BIN)/python docs/img/calibration.py

docs: env  ## the documents as a site, build/site, with the help of every command
	rm -rf build/docs build/site
	mkdir -p build
	cp -r docs build/docs
	$(BIN)/typer duallgd_cli.cli utils docs --name duallgd --output build/docs/commands.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q

dist: env  ## wheel, installed into a fresh environment and tried there
	rm -rf dist build/wheel-venv
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist .
	$(PYTHON) -m venv build/wheel-venv
	build/wheel-venv/bin/python -m pip install -q --root-user-action=ignore -c constraints.txt torch
	build/wheel-venv/bin/python -m pip install -q --root-user-action=ignore -c constraints.txt dist/*.whl
	du -sm build/wheel-venv
	cd build && wheel-venv/bin/duallgd --help > /dev/null && wheel-venv/bin/duallgd selftest
	cd build && wheel-venv/bin/duallgd predict ../examples/spectra.mzML --samples 2 -q -o - > /dev/null

clean:    ## remove what the other targets made
	rm -rf $(VENV) dist build out .pytest_cache .mypy_cache .ruff_cache .hypothesis
