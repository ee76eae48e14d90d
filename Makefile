# Every target sets up what it needs: a fresh machine with Python >= 3.10 is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TIER   ?= not slow

.PHONY: demo test test-slow test-all coverage mutants step-size test-faults sanitize bench figures format clean network browser

demo: $(VENV)/.demo network ## four hosts on slow links train a byte-level GPT five ways; a page, and the sentence that matters
	$(BIN)/lioncub demo

test: $(VENV)/.dev network browser ## lint, types, imports and every fast test
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -n 3 $(PYTEST_ARGS)

test-slow: $(VENV)/.dev network browser ## what is slow by nature: every codec on every collective, soak, storms of kills, fuzz, labs
	$(BIN)/python -m pytest -m slow -n 3 --durations 20 $(PYTEST_ARGS)

test-all: test test-slow ## all of it

coverage: $(VENV)/.dev network ## lines and branches of the library that the fast tests run, subprocesses included; TIER= for all tests
	mkdir -p build/coverage && rm -f build/coverage/*
	$(BIN)/coverage run -m pytest -n 3 -m "$(TIER)" $(PYTEST_ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing

mutants: $(VENV)/.dev     ## small wrong changes to the library, one at a time, and the fast test that notices each
	$(BIN)/python -m tests.mutants $(MUTANTS)

step-size: $(VENV)/.dev   ## the files and functions that one step on two workers runs through
	$(BIN)/python -m tests.support.step_size

test-faults: $(VENV)/.dev network ## kills, crashes, damage, forgery, other numbers of workers; LIONCUB_FAULT_SEED=… replays a failure
	$(BIN)/python -m pytest -m '' tests/wire tests/distributed tests/checkpoint $(PYTEST_ARGS)

sanitize: $(VENV)/.dev   ## the tests of what is in C++ under Address-, UndefinedBehavior- and ThreadSanitizer
	$(MAKE) sanitized SANITIZER=address,undefined RUNTIMES="asan ubsan"
	$(MAKE) sanitized SANITIZER=thread RUNTIMES=tsan SELECT='-k "threads or bad_number or test_sockets"'

bench: $(VENV)/.dev      ## the kernels against the memory, the step against other optimizers
	$(BIN)/lioncub bench kernels

STUDY := $(BIN)/lioncub study --no-run --docs docs/convergence.md --out build/figures
figures: $(VENV)/.dev browser ## every table and picture of docs/convergence.md, from its records
	$(STUDY) --preset quick --records docs/records/study/quick.jsonl
	$(STUDY) --preset full --records docs/records/study/full.jsonl

format: $(VENV)/.dev     ## rewrite the sources the way `make test` wants them
	$(BIN)/ruff check --fix src tests
	$(BIN)/ruff format src tests

clean:                ## remove what these targets made
	rm -rf $(VENV) build demo-out compare-out bench-out study-out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# Programs of the system, where they are missing and can be installed; without them the hosts share loopback, and the
# pages are not tested in a browser. Both say so.
INSTALL = test `id -u` = 0 && command -v apt-get >/dev/null && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y

network:
	@command -v ip >/dev/null && command -v tc >/dev/null || { $(INSTALL) iproute2 >/dev/null; } || true

browser:
	@command -v chromium >/dev/null || { $(INSTALL) chromium >/dev/null; } || true

# torch goes first and pinned: anything else that depends on it would pull another build.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	touch $@

NATIVE := pyproject.toml CMakeLists.txt $(wildcard native/*)

$(VENV)/.demo: $(VENV)/.torch $(NATIVE)
	$(PIP) -e '.[report]'
	touch $@

$(VENV)/.dev: $(VENV)/.torch $(NATIVE)
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.demo

# A sanitized build lives in a virtual environment of its own, which borrows the packages of the other one. Leaks are not
# looked for: Python and torch never free all they have.
.PHONY: sanitized
sanitized: SANDBOX := build/sanitized-$(firstword $(RUNTIMES))
sanitized:
	$(PYTHON) -m venv --clear $(SANDBOX)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > `echo $(SANDBOX)/lib/python3*/site-packages`/borrowed.pth
	$(SANDBOX)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps . -C cmake.define.LIONCUB_SANITIZE=$(SANITIZER)
	LD_PRELOAD="$(foreach name,$(RUNTIMES),$(shell $(CXX) -print-file-name=lib$(name).so))" \
	  ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=ignore_noninstrumented_modules=1 \
	  $(SANDBOX)/bin/python -m pytest -p no:cacheprovider tests/kernels/test_kernels.py tests/transport/test_sockets.py $(SELECT)
