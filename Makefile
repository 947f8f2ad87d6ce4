# Every command does all the set-up from a fresh clone: Python 3.10 or later and make are enough.
#   make demo       install, then run the main job on the embedded dataset
#   make test       install, then lint, types, the docs site and the first ring of tests (minutes)
#   make test-all   the same with every case of every test, before a release
#   make docs       install, then build the docs site into site/
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-all install lint types oldest docs tests bench fuzz mutants faults clean

demo: $(VENV)/.installed
	$(BIN)/hierlearn demo --out demo

# What takes one core goes two at a time, before the tests, which take two.
test: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory -j 2 lint docs types oldest
	$(MAKE) --no-print-directory tests DOCS_BUILT=1

test-all: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory test RING=--all

install: $(VENV)/.installed

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

oldest: $(VENV)/.installed-dev
	$(BIN)/mypy --python-version 3.10

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Tests start many processes, which must not compile the package again.
tests: $(VENV)/.installed-dev $(if $(DOCS_BUILT),,docs)
	HIERLEARN_SITE=$(CURDIR)/site OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 -q $(RING)

# For an hour, with inputs that nobody has seen: HIERLEARN_FUZZ_SECONDS=600 make fuzz
fuzz: $(VENV)/.installed-dev
	HIERLEARN_FUZZ_SECONDS=$${HIERLEARN_FUZZ_SECONDS:-3600} HIERLEARN_FUZZ_SEED=$${HIERLEARN_FUZZ_SEED:-$$(date +%s)} \
	  OMP_NUM_THREADS=1 $(BIN)/pytest -q tests/fuzz

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench_hierarchy.py

# Breaks the core on purpose, in thirty ways; both rings of tests must notice every one.
mutants: $(VENV)/.installed-dev
	$(BIN)/python tests/mutants/run.py

faults: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/fault_matrix.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "hierlearn needs Python 3.10 or later; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]' -c constraints.txt
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis demo site dist
