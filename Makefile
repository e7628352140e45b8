# Each target sets up .venv by itself.
#
#   make demo     train the baby model on plays, and leave it in out/
#   make test     run the tests
#   make check    format, lint, types and tests
#   make bench    time training steps
#   make format   put the code in order

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check lint bench format clean

demo: $(VENV)/.installed
	$(BIN)/llmpy train

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: lint test

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.installed
	$(BIN)/llmpy bench

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .venv-parity .venv-browser
