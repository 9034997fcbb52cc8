# Every target sets up what it needs in .venv; the machine only has to have Python >= 3.11, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test lint clean

demo: $(VENV)/.installed  ## the idea in two minutes: a table and a picture in out/
	@$(BIN)/bcol demo --output out

test: $(VENV)/.installed-dev  ## all tests, on all cores
	@$(BIN)/python -m pytest -n auto

lint: $(VENV)/.installed-dev  ## style and types
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

clean:
	rm -rf $(VENV) out

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bcol needs Python 3.11 or newer: run make PYTHON=python3.12")'
	@echo "Setting up $(VENV) (about a minute, once)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed
