# The few commands that people and CI share. `make demo` needs only Python 3.11+, make and a package registry.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := $(VENV)/installed

.PHONY: demo up test test-fast test-postgresql bench check format lock clean help

help:
	@echo "make demo    start everything with a demo model behind Triton   make up       start the portal"
	@echo "make test    run every test       make test-fast   without Triton, stack and browser"
	@echo "make test-postgresql   what speaks to the database, on a throw-away PostgreSQL"
	@echo "make bench   measure Shoal, Triton asked directly, and peers: see README"
	@echo "make check   format, lint, types, import contracts, templates, migrations"
	@echo "make lock    resolve requirements.lock anew         make clean    remove the virtual environment"

# The lock file is installed as it stands (--no-deps); the second line adds only what the torch
# build for this machine wants beside it (CUDA libraries, or nothing).
$(INSTALLED): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Shoal needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=python3.11.")'
	@echo "[install] creating $(VENV) and installing $$(grep -c == requirements.lock) packages"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --no-deps --progress-bar off -r requirements.lock 2>&1 | $(PYTHON) -u .ci/progress.py
	@$(PIP) install -qq --constraint requirements.lock "$$(grep '^torch==' requirements.lock)"
	@pwd > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shoal.pth"
	@touch $@

demo: $(INSTALLED)
	@exec $(BIN)/python manage.py demo

up: $(INSTALLED)
	@exec $(BIN)/python manage.py up

# Two at a time. The browser's tests keep an event loop in their process, so they run in processes
# of their own; so do those that start the whole stack, one for each process.
test: $(INSTALLED)
	$(BIN)/python -m pytest -m "not stack and not browser" -n 2 --dist loadfile
	$(BIN)/python -m pytest -m "browser and not stack" -n 2 --dist loadfile
	$(BIN)/python -m pytest -m stack -n 2 --dist loadfile

test-fast: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not triton and not stack and not browser and not gpu"

# Everything runs on SQLite; this is where the database matters most, in about a minute. All of it:
# make test-postgresql ON_POSTGRESQL=tests
ON_POSTGRESQL ?= $(addprefix tests/portal/test_,races.py registry_api.py endpoints_api.py staging.py accounts.py \
  deploy.py::test_an_optimized_endpoint_becomes_ready_on_triton_with_every_evidence \
  deploy.py::test_turning_the_switch_off_and_on_replaces_the_replicas)

test-postgresql: $(INSTALLED)
	.ci/with-postgresql $(BIN)/python -m pytest -n 2 --dist loadfile $(ON_POSTGRESQL)

# Shoal, Triton asked directly, and the peers whose virtual environments are given:
# make bench PEERS="litserve=DIR mlserver=DIR bentoml=DIR ray=DIR mlflow=DIR triton=DIR"
PEERS ?=
WORKLOADS ?= mlp encoder image device
CONCURRENCY ?= 1,16,64
SECONDS ?= 6
ROUNDS ?= 3
COPIES ?= 1
DATA ?=

bench: $(INSTALLED)
	@$(BIN)/python -m tests.bench --peers "$(PEERS)" --workloads "$(WORKLOADS)" --copies "$(COPIES)" \
	  --concurrency "$(CONCURRENCY)" --seconds "$(SECONDS)" --rounds "$(ROUNDS)" $(if $(DATA),--data "$(DATA)")

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	$(BIN)/lint-imports
	$(BIN)/djlint --quiet --lint templates
	$(BIN)/python manage.py makemigrations --check --dry-run

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:
	$(PYTHON) .ci/lock.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
