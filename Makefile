# Every task of a developer. The machine needs only Python 3.11 or newer.
# Paths are relative, so that the folder may have a space in its name.

UV_VERSION := 0.13.8
PYTHON ?=
ARGS ?=
EXHAUSTIVE_BOUND_S := 2100
STORM_S ?= 3600

PY := .venv/bin/python
# uv changes only this .venv, and never downloads a Python.
SYNC := UV_PROJECT_ENVIRONMENT=.venv $(PY) -m uv sync --locked --no-python-downloads
# Without bytecode files, each of the hundreds of processes that the tests start would compile everything again.
unexport PYTHONDONTWRITEBYTECODE
# Runs pytest, and each test that fails once more, alone: only a failure that repeats decides.
DECIDE := $(PY) tests/deciding.py
# Prevents pyright's wrapper from checking for a newer version on the network.
PYRIGHT := PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright

# Tests are not packages, and each folder has its own `conftest`, so mypy checks each folder by itself.
TESTED := $(filter-out tests/typing tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))
SHARED := docs:monitoring:tests/pages:tests/shared:tests/simulation:tests/collector:tests/collector/page:tests/exporter:tests/faults:tests/lineage:tests/marquez:tests/spark:tests/spark/truth

# Other versions of typer word, wrap and escape their output differently, which changes the pages of commands
# and mistakes.
WITHOUT_SPARK := -k "not spark and not test_the_page_is_the_help" --ignore=tests/cli/test_demo.py --ignore=tests/cli/test_dev.py \
	--ignore=tests/cli/test_wording.py --ignore=tests/cli/test_mistakes.py --ignore=tests/cli/test_snapshots.py \
	tests/facets tests/transport tests/collector tests/marquez tests/exporter tests/lineage tests/cli

CORE_ENDINGS := tests/spark/truth tests/spark/test_executions.py
ENDINGS := $(CORE_ENDINGS) tests/spark/test_class_loaders.py tests/spark/test_spark_submit.py tests/spark/test_termination.py
SPARK_PROGRAMS := tests/spark/test_packages.py tests/spark/test_quickstart.py tests/spark/test_readers.py tests/spark/test_rebuild.py \
	tests/spark/test_submit.py tests/cli/test_compact.py tests/pages/test_guides.py
CLIENTS := tests/spark/truth/clients.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-lowest test-marquez test-spark-truth test-spark-truth-35 test-spark-truth-40 test-spark-truth-newest test-endings test-ecosystem \
	simulation faults exhaustive walks explore storm sql-oracle nightly lint format bench bench-guard docs clean

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

demo: .venv/demo.stamp ## Follow a year of real flights through a PySpark pipeline (ARGS are passed on)
	@$(PY) -m waybill.cli demo $(ARGS)

# Many tests wait, so four processes keep two cores busy. In the order of their number of tests, the long files would come last.
test: .venv/dev.stamp ## Run all tests except the long ones (ARGS are passed to pytest)
	$(DECIDE) --numprocesses=4 --dist=loadfile --no-loadscope-reorder $(ARGS)

test-lowest: .venv/lowest.stamp ## Run the tests that need no Spark with the oldest dependencies that are allowed
	.venv/lowest/bin/python -m pytest $(ARGS) $(WITHOUT_SPARK)

test-spark-truth: test-spark-truth-35 test-spark-truth-40 test-spark-truth-newest ## Run Spark jobs that end in every way, on PySpark 3.5, 4.0 and the newest

test-spark-truth-35 test-spark-truth-40: test-spark-truth-%: .venv/spark%.stamp
	.venv/spark$*/bin/python -m pytest -m '' $(ARGS) $(ENDINGS)

test-spark-truth-newest: .venv/clients.stamp
	$(PY) -m pytest -m '' $(ARGS) $(ENDINGS) $(SPARK_PROGRAMS)

test-endings: .venv/dev.stamp ## Run the core of them, and Spark in packages, guides, spark-submit and rebuilds, on the newest PySpark
	$(DECIDE) -m spark_truth --numprocesses=2 --dist=loadfile --ignore=tests/spark/truth/test_endings_on_clusters.py \
		$(ARGS) $(CORE_ENDINGS) tests/spark/test_spark_submit.py $(SPARK_PROGRAMS)

test-marquez: .venv/dev.stamp ## Also run the delivery tests against the real Marquez at MARQUEZ_URL
	@test -n "$(MARQUEZ_URL)" || { echo "set the address of a Marquez that may be filled with test data: make test-marquez MARQUEZ_URL=http://localhost:5000" >&2; exit 1; }
	MARQUEZ_URL=$(MARQUEZ_URL) $(PY) -m pytest $(ARGS) tests/marquez tests/cli/test_demo.py

test-ecosystem: .venv/dev.stamp .venv/ecosystem.stamp ## Run the tests with real clients (dbt, Airflow and, with Maven, Java's), and the quick start in a fresh environment
	$(PY) -m pytest -m ecosystem $(ARGS) tests/ecosystem

simulation: SEEDS ?= 0 249
simulation: .venv/dev.stamp ## Run random sequences of what happens to a home beside a model, at most five minutes (SEEDS="first last")
	$(PY) tests/simulation/repeat.py $(SEEDS) --processes=2 --minutes=5

faults: .venv/dev.stamp ## Kill real processes, fill real disks, and mix all of it for half a minute
	$(DECIDE) -m 'faults and not exhaustive' --numprocesses=2 --dist=worksteal $(ARGS) tests/faults

exhaustive: .venv/dev.stamp ## Run the exhaustive tests, at most 35 minutes
	$(DECIDE) -m exhaustive --numprocesses=2 --dist=worksteal --session-timeout=$(EXHAUSTIVE_BOUND_S) $(ARGS) \
		tests/faults tests/collector tests/exporter tests/transport tests/lineage

walks: .venv/dev.stamp ## Walk through the runbook on broken collectors, and a night of them
	$(DECIDE) -m exhaustive --numprocesses=2 --dist=worksteal $(ARGS) tests/monitoring tests/pipelines

explore: MINUTES ?= 60
explore: .venv/dev.stamp ## Run the random tests with new seeds for an hour (MINUTES=n), and show those that fail
	$(PY) tests/explore.py $(MINUTES)

storm: .venv/dev.stamp ## Mix every fault for an hour (STORM_S=seconds)
	STORM_S=$(STORM_S) $(PY) -m pytest -m faults $(ARGS) tests/faults/test_storm.py

sql-oracle: .venv/dev.stamp ## Hold what is read of SQL against what PostgreSQL and SQLite say of the same texts
	$(PY) -m pytest -m '' $(ARGS) tests/sql_oracle

nightly: MINUTES ?= 120
nightly: .venv/dev.stamp ## Run all that is too long for each change, within two hours (MINUTES=n), and report in dist/nightly.md
	$(PY) tests/nightly.py $(MINUTES) $(ARGS)

lint: .venv/dev.stamp ## Check style, types, the order of the rooms, and the dependencies
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@for folder in $(TESTED); do MYPYPATH=$$folder:$(SHARED) $(PY) -m mypy $$folder || exit 1; done
	$(PY) tests/typing/write_names.py dist/typing/names.py
	$(PY) -m mypy dist/typing
	$(PYRIGHT)
	$(PY) .venv/bin/lint-imports
	$(PY) -m deptry .

format: .venv/dev.stamp ## Format the code and fix what ruff can fix
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: .venv/dev.stamp ## Measure each figure and its comparison (see docs/benchmarks.md)
	$(PY) -m benchmarks $(ARGS)

bench-guard: .venv/dev.stamp ## Check that nothing became dearer in CPU time than in the best known build, in about seven minutes
	$(PY) -m benchmarks.guard $(ARGS)

docs: .venv/docs.stamp ## Build the documentation as a site in dist/site; warnings are errors
	@rm -rf .venv/docs/wheel
	@$(PY) -m uv pip install --quiet --no-deps --target .venv/docs/wheel .
	NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build --quiet --strict --site-dir dist/site

clean: ## Remove the files that these targets created
	rm -rf .venv dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -type d -name __pycache__ -prune -exec rm -rf {} +

# The demo needs no test tools. The development environment includes the demo's packages.
.venv/demo.stamp: .venv/uv-$(UV_VERSION).stamp pyproject.toml uv.lock
	$(SYNC) --extra demo --no-dev --inexact
	@touch $@

.venv/dev.stamp: .venv/uv-$(UV_VERSION).stamp pyproject.toml uv.lock
	$(SYNC) --all-extras
	@touch $@ .venv/demo.stamp

# The oldest version of each package that the project names; any version of their own dependencies.
.venv/lowest.stamp: .venv/uv-$(UV_VERSION).stamp pyproject.toml
	$(PY) -m uv venv --quiet --clear --no-python-downloads --python $(PY) .venv/lowest
	$(PY) -m uv pip install --quiet --python .venv/lowest/bin/python --resolution lowest-direct --group test \
		--editable '.[collector,export,kafka,mcp,postgres,sql]'
	@touch $@

# Each client has a separate environment that also contains this project, as beside a user's pipelines.
.venv/ecosystem.stamp: .venv/uv-$(UV_VERSION).stamp pyproject.toml tests/ecosystem/dbt.txt tests/ecosystem/airflow.txt
	@for client in dbt airflow; do \
		$(PY) -m uv venv --quiet --clear --no-python-downloads --python $(PY) .venv/ecosystem/$$client && \
		$(PY) -m uv pip install --quiet --python .venv/ecosystem/$$client/bin/python \
			--requirements tests/ecosystem/$$client.txt --editable . || exit 1; \
	done
	@touch $@

# The tools that build the site are not in uv.lock: they never meet the project's own packages.
.venv/docs.stamp: .venv/uv-$(UV_VERSION).stamp docs/requirements.txt
	$(PY) -m uv venv --quiet --clear --no-python-downloads --python $(PY) .venv/docs
	$(PY) -m uv pip install --quiet --python .venv/docs/bin/python --requirements docs/requirements.txt
	@touch $@

# Delta and Iceberg are released for each PySpark, but some time after the newest comes out.
.venv/spark35.stamp: SPARK_VERSION := 3.5.9
.venv/spark40.stamp: SPARK_VERSION := 4.0.5
.venv/spark%.stamp: .venv/uv-$(UV_VERSION).stamp pyproject.toml $(CLIENTS)
	$(PY) -m uv venv --quiet --clear --no-python-downloads --python $(PY) .venv/spark$*
	$(PY) -m uv pip install --quiet --python .venv/spark$*/bin/python \
		--editable '.[collector,spark]' pyspark==$(SPARK_VERSION) 'pandas<3' hypothesis pytest pytest-timeout --requirements $(CLIENTS)
	@touch $@

# Spark Connect's clients and Jupyter's kernel are only for the tests of endings.
.venv/clients.stamp: .venv/dev.stamp $(CLIENTS)
	$(PY) -m uv pip install --quiet --python $(PY) --requirements $(CLIENTS)
	@touch $@

.venv/uv-$(UV_VERSION).stamp:
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Waybill needs Python 3.11 or newer, and none was found: install one (on Debian or Ubuntu: python3 python3-venv), or name yours with make PYTHON=/path/to/python." >&2; exit 1; \
	fi; \
	echo "$$found -m venv .venv"; \
	"$$found" -m venv .venv || { rm -rf .venv; echo "$$found cannot create a virtual environment: install its venv module (on Debian or Ubuntu: python3-venv)." >&2; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@
