# Everything starts here; nothing but Python 3.11 or newer needs to be on the machine.
# Paths are relative, so that the folder may have a space in its name.

UV_VERSION := 0.13.8
PYTHON ?=
ARGS ?=
SEED ?=
FAULTS_BOUND_S := 1200

PY := .venv/bin/python
# uv works on this .venv alone and never fetches a Python of its own.
SYNC := UV_PROJECT_ENVIRONMENT=.venv $(PY) -m uv sync --locked --no-python-downloads
# Without bytecode each of the hundreds of processes that the tests start would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE
# pyright's wrapper asks the network for a newer version of itself unless told not to.
PYRIGHT := PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright

# Tests are no packages: each folder has a `conftest` of its own, so each is checked by itself.
TESTED := $(filter-out tests/typing tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))
SHARED := tests/collector:tests/exporter:tests/faults:tests/marquez

.DEFAULT_GOAL := help
.PHONY: help demo test test-marquez faults lint format bench clean

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/demo.stamp ## Follow a year of real flights through a PySpark pipeline (ARGS are passed on)
	@$(PY) -m waybill.cli demo $(ARGS)

test: .venv/dev.stamp ## Run all tests but the exhaustive ones (ARGS are passed to pytest)
	$(PY) -m pytest --numprocesses=2 --dist=loadfile $(ARGS)

test-marquez: .venv/dev.stamp ## Run the tests of delivery against the real Marquez that MARQUEZ_URL names, too
	@test -n "$(MARQUEZ_URL)" || { echo "give the address of a Marquez that may be filled with tests: make test-marquez MARQUEZ_URL=http://localhost:5000" >&2; exit 1; }
	MARQUEZ_URL=$(MARQUEZ_URL) $(PY) -m pytest $(ARGS) tests/marquez tests/cli/test_demo.py

faults: .venv/dev.stamp ## Run the exhaustive fault tests, at most 20 minutes (SEED=n repeats a run)
	$(PY) -m pytest -m exhaustive --session-timeout=$(FAULTS_BOUND_S) $(if $(SEED),--seed=$(SEED)) $(ARGS) tests/faults tests/collector

lint: .venv/dev.stamp ## Check style, types, the order of rooms and the dependencies
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@for folder in $(TESTED); do MYPYPATH=$$folder:$(SHARED) $(PY) -m mypy $$folder || exit 1; done
	$(PYRIGHT)
	$(PY) .venv/bin/lint-imports
	$(PY) -m deptry .

format: .venv/dev.stamp ## Format the code and mend what ruff can mend
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: .venv/dev.stamp ## Measure each figure beside its rival and print it (see docs/benchmarks.md)
	$(PY) -m benchmarks $(ARGS)

clean: ## Remove what these targets made
	rm -rf .venv dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -type d -name __pycache__ -prune -exec rm -rf {} +

# The demo needs no test tools; where those are, the demo's packages are too.
.venv/demo.stamp: .venv/uv-$(UV_VERSION).stamp pyproject.toml uv.lock
	$(SYNC) --extra demo --no-dev --inexact
	@touch $@

.venv/dev.stamp: .venv/uv-$(UV_VERSION).stamp pyproject.toml uv.lock
	$(SYNC) --all-extras
	@touch $@ .venv/demo.stamp

.venv/uv-$(UV_VERSION).stamp:
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Waybill needs Python 3.11 or newer, and none is here: install one (on Debian or Ubuntu: python3 python3-venv), or name yours with make PYTHON=/path/to/python." >&2; exit 1; \
	fi; \
	echo "$$found -m venv .venv"; \
	"$$found" -m venv .venv || { rm -rf .venv; echo "$$found cannot make a virtual environment: install its venv module (on Debian or Ubuntu: python3-venv)." >&2; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@
