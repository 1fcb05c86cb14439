# Everything a fresh machine with Python 3.11+ needs is set up by the first target that needs it.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test test-all lint bench clean

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(VENV)/.ready  ## Train a small BERT on built-in text and let it fill three sentences
	$(BIN)/python -m benchmarks.demo

test: $(VENV)/.ready  ## All tests but the full product, with the ten slowest
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --durations=10

test-all: $(VENV)/.ready  ## The full product of objectives and backbones too
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=10

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.ready  ## Side-by-side measurements; results go to docs/results
	$(BIN)/python -m benchmarks.all

clean:
	rm -rf $(VENV) build dist *.egg-info
