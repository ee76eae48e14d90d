# Every target sets up what it needs: a fresh machine with Python >= 3.10 is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test format clean

demo: $(VENV)/.demo       ## four workers train a byte-level GPT three ways; a table and a plot
	$(BIN)/lioncub demo

test: $(VENV)/.dev       ## lint, types and every test
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/python -m pytest $(PYTEST_ARGS)

format: $(VENV)/.dev     ## rewrite the sources the way `make test` wants them
	$(BIN)/ruff check --fix src tests
	$(BIN)/ruff format src tests

clean:                ## remove what these targets made
	rm -rf $(VENV) demo-out .pytest_cache .mypy_cache .ruff_cache

# torch goes first and pinned: anything else that depends on it would pull another build.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(PIP) -e '.[cli]'
	touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.demo
