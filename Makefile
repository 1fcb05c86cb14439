# Everything a fresh machine with Python 3.11+ needs is set up by the first target that needs it.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
export TOKENIZERS_PARALLELISM ?= false
BROWSERS = chromium chromium-browser google-chrome google-chrome-stable
BROWSER  = $(firstword $(foreach name,$(BROWSERS),$(shell command -v $(name))))

.PHONY: demo test test-all browser browser-test lint bench clean

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(VENV)/.ready  ## Train a writer, an entity tagger and a BERT on built-in text, and show what they do
	$(BIN)/python -m benchmarks.demo

test: lint  ## Lint, types, and all tests but the full product, with the ten slowest
	@test -n "$(BROWSER)" || echo "No chromium here: the studio's tests in a browser are skipped; make browser-test installs one."
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --durations=10

test-all: $(VENV)/.ready  ## The full product of objectives and backbones too
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=10

browser:  ## A browser for the studio's tests, where there is none
	@test -n "$(BROWSER)" || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null; } \
		|| { echo "These tests need chromium: install it (Debian: sudo apt-get install -y chromium), then try again."; exit 1; }
	@test -n "$(BROWSER)" || { apt-get update -qq && apt-get install -y -qq chromium; }

browser-test: browser $(VENV)/.ready  ## The studio's page in a real browser
	$(BIN)/python -m pytest tests/browser --durations=5

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready  ## Side-by-side measurements; results go to docs/results
	$(BIN)/python -m benchmarks.all

clean:
	rm -rf $(VENV) build dist *.egg-info
