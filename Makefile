# Everything a fresh machine with Python 3.11+ needs is set up by the first target that needs it.
PYTHON ?= python3
VENV   ?= .venv
FORMATS ?= .venv-formats
BIN     = $(VENV)/bin
INTEGRATIONS ?= .venv-integrations
LOWEST  ?= .venv-lowest
DOCS    ?= .venv-docs
CORE_TESTS = tests/blocks tests/tokenizers tests/checkpoint tests/inputs tests/test_recipe.py tests/test_api.py
export TOKENIZERS_PARALLELISM ?= false
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
BROWSERS = chromium chromium-browser google-chrome google-chrome-stable
BROWSER  = $(firstword $(foreach name,$(BROWSERS),$(shell command -v $(name))))

.PHONY: demo docs test test-all test-integrations test-docs test-formats lowest package browser browser-test federated-test lint bench clean

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

$(INTEGRATIONS)/.ready: pyproject.toml constraints.txt tests/integrations/requirements.txt
	$(PYTHON) -m venv $(INTEGRATIONS)
	grep -vE '^(pillow|protobuf|pyarrow)==' constraints.txt > $(INTEGRATIONS)/constraints.txt
	$(INTEGRATIONS)/bin/pip install --quiet --constraint $(INTEGRATIONS)/constraints.txt \
		--requirement tests/integrations/requirements.txt --editable ".[track,hf,serve]" pytest pytest-timeout
	touch $@

test-integrations: test-formats test-docs $(INTEGRATIONS)/.ready  ## The programs Meristem works with: trackers, Ray, Slurm, uv, hadolint
	$(INTEGRATIONS)/bin/python -m pytest tests/integrations --durations=10

lowest: $(INTEGRATIONS)/.ready  ## Core tests with the oldest version of every dependency that pyproject.toml allows
	$(INTEGRATIONS)/bin/uv venv --quiet --clear --python $(PYTHON) $(LOWEST)
	$(INTEGRATIONS)/bin/pip freeze | grep '^torch==' > $(LOWEST)/constraints.txt  # the same build of torch
	$(INTEGRATIONS)/bin/uv pip compile --quiet --resolution lowest-direct --python $(LOWEST)/bin/python \
		--constraint $(LOWEST)/constraints.txt --extra all --no-header --no-annotate --output-file $(LOWEST)/requirements.txt pyproject.toml
	$(INTEGRATIONS)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --requirement $(LOWEST)/requirements.txt \
		pytest pytest-timeout hypothesis
	$(INTEGRATIONS)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --editable .
	$(LOWEST)/bin/python -m pytest $(CORE_TESTS)

package: $(INTEGRATIONS)/.ready  ## Wheel and sdist in dist/, installed and used in clean environments
	rm -rf dist
	$(INTEGRATIONS)/bin/uv build --quiet --python $(PYTHON)
	$(INTEGRATIONS)/bin/python -m pytest tests/integrations/test_package_installed.py --durations=5

$(FORMATS)/.ready: pyproject.toml constraints.txt tests/integrations/formats-requirements.txt
	$(PYTHON) -m venv $(FORMATS)
	CMAKE_ARGS="-DLLAVA_BUILD=OFF $(CMAKE_ARGS)" $(FORMATS)/bin/pip install --quiet --constraint constraints.txt \
		--requirement tests/integrations/formats-requirements.txt --editable ".[dev]"  # llama.cpp without its picture reader
	touch $@

test-formats: $(FORMATS)/.ready  ## Exports opened by llama.cpp (built once, minutes), ctranslate2, sentence-transformers, spaCy
	$(FORMATS)/bin/python -m pytest tests/integrations/test_format_consumers.py --durations=5

$(DOCS)/.ready: pyproject.toml constraints.txt website/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --constraint constraints.txt --requirement website/requirements.txt \
		--editable ".[data,metrics]" pytest pytest-timeout
	touch $@

docs: $(DOCS)/.ready  ## The documentation as a site, in site/index.html; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict  # with --quiet, strict sees no warnings
	@echo "Open site/index.html, or see changes live: $(DOCS)/bin/python -m mkdocs serve"

test-docs: $(DOCS)/.ready  ## The site: links, structure, widths in a browser; the notebooks
	$(DOCS)/bin/python -m pytest tests/integrations/test_site.py tests/integrations/test_notebooks.py --durations=5

browser:  ## A browser for the studio's tests, where there is none
	@test -n "$(BROWSER)" || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null; } \
		|| { echo "These tests need chromium: install it (Debian: sudo apt-get install -y chromium), then try again."; exit 1; }
	@test -n "$(BROWSER)" || { apt-get update -qq && apt-get install -y -qq chromium; }

browser-test: browser $(VENV)/.ready  ## The studio's page in a real browser
	$(BIN)/python -m pytest tests/browser --durations=5

# Flower 1.41 asks for an older FastAPI than `serve`: an environment of its own, without extras. 1.42 cannot be installed.
FEDERATED = .venv-federated
$(FEDERATED)/.ready: pyproject.toml
	$(PYTHON) -m venv $(FEDERATED)
	$(FEDERATED)/bin/pip install --quiet torch==2.13.0
	$(FEDERATED)/bin/pip install --quiet "flwr==1.41.*" --editable . pytest pytest-timeout
	touch $@

federated-test: $(FEDERATED)/.ready  ## Federated training on Flower, in an environment of its own
	$(FEDERATED)/bin/python -m pytest tests/integrations/test_federated.py --durations=5

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready  ## Side-by-side measurements; results go to docs/results
	$(BIN)/python -m benchmarks.all

clean:
	rm -rf $(VENV) $(INTEGRATIONS) $(FORMATS) $(LOWEST) $(FEDERATED) $(DOCS) build site dist *.egg-info
