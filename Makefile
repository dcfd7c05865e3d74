# ddtree-console: `make run` opens the console on the embedded engine, `make test` runs everything that CI runs.
# Both set up .venv first; the second time that takes under two seconds.

PYTHON ?= python3.11
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
SGLANG_VENV := .venv-sglang
STAMPS := $(VENV)/.stamps
CONSTRAINTS := requirements/constraints.txt
# Needed by tests and pictures only: tmux drives the real program, libcairo2 draws SVG as PNG, systemd checks printed units.
DEBIAN := tmux libcairo2 systemd
# Needed by tests on real hosts only, so `make run` does not install an SSH server: containers, login shells that are no bash, and
# a wrong clock.
DEBIAN_HOSTS := systemd-container dbus openssh-server openssh-client nftables sudo polkitd fish tcsh zsh faketime
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Operations on stand-in engines: the half of the waiting tests that has a lane of its own.
APPLYING := test_apply or test_console_killed or test_false_confirmations or test_strangers

.DEFAULT_GOAL := help
.PHONY: help setup model run test check format lint types contracts unit tests computing screens panels waiting applying changes hosts sglang links units remote faults bench pictures keys build clean
ifndef IN_LANES
.NOTPARALLEL:
endif

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: $(STAMPS)/packages $(STAMPS)/debian model ## Put everything that is needed into .venv

run: setup ## Open the console on the embedded engine (a small model on this CPU)
	@$(BIN)/ddtree-console --host embedded

test: check $(STAMPS)/debian-hosts tests ## Everything that CI runs

check: setup format lint types contracts unit ## Format, lint, types, import contracts, unit tests

format:
	$(BIN)/ruff format --check .

lint:
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

contracts:
	$(BIN)/lint-imports --no-cache

unit:
	$(BIN)/pytest tests/unit

# The unit tests have run in `check`. The others go in lanes: one of those that compute, two of the screens, two of those that mostly
# wait for processes, and one of those that break real hosts, with the checks for GPUs after them; each lane's output comes whole when
# it ends. What tries SSH, systemd, the journal and changes one by one takes as long again and runs with `make hosts`.
tests:
	@echo "Tests in six lanes, some minutes; the output of each comes when it ends …"
	@$(MAKE) --no-print-directory --jobs=6 --keep-going --output-sync=target IN_LANES=1 computing screens panels waiting applying changes

# In an environment of its own: SGLang pins another torch than the embedded engine has. Its CUDA libraries are left out, so nothing
# but import, arguments and the kernels (in Triton's interpreter) can be tried; the rest needs a GPU, see docs/sglang.md.
sglang: $(SGLANG_VENV)/.ready ## Test the plugin against SGLang's own sources (a gigabyte the first time)
	$(SGLANG_VENV)/bin/python -m pytest tests/sglang -W default --disable-warnings --durations=5

hosts: setup $(STAMPS)/debian-hosts ## Try SSH, systemd, the journal and changes one by one on real hosts
	@$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target IN_LANES=1 links units remote

computing:
	$(BIN)/pytest tests/engine tests/sglang --durations=10

# Two halves by the time that they take.
screens:
	$(BIN)/pytest tests/tui --ignore-glob='*/test_[i-z]*.py' --durations=10

panels:
	$(BIN)/pytest tests/tui --ignore-glob='*/test_[a-h]*.py' --durations=10

waiting:
	$(BIN)/pytest tests/hosts tests/packaging tests/terminal -m "not realhost" -k "not ($(APPLYING))" --durations=10

applying:
	$(BIN)/pytest tests/hosts -m "not realhost" -k "$(APPLYING)" --durations=10

links:
	$(BIN)/pytest tests/hosts -m realhost -k "test_ssh" --durations=10

units:
	$(BIN)/pytest tests/hosts -m realhost -k "not test_ssh and not test_remote" --durations=10

changes:
	$(BIN)/pytest tests/terminal tests/faults -m realhost --durations=10
	$(BIN)/pytest tests/gpu --durations=5

remote:
	$(BIN)/pytest tests/hosts -m realhost -k "test_remote" --durations=10

faults: setup $(STAMPS)/debian-hosts ## Break things on real hosts, judge what the console says, write docs/faults.md
	$(BIN)/python -m tests.faults

bench: setup ## Measure start, idling, speed and equality on this machine, which should be quiet
	@for name in console_start remote_start journal_follow engine_start engine_speed budgets automatic streams simultaneous \
		draft_memory memory equality bf16_margin; do \
	echo "== $$name"; $(BIN)/python -m tests.benchmarks.$$name || exit 1; done

pictures: setup $(STAMPS)/debian-hosts ## Make the README's pictures from the running program
	$(BIN)/python -m docs.make_pictures

keys: setup ## Write docs/keys.md anew from the program
	$(BIN)/python docs/make_keys.py

build: setup ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

clean: ## Remove .venv and everything that was built
	rm -rf $(VENV) $(SGLANG_VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || sh requirements/debian.sh $(notdir $(PYTHON))-venv || true
	@# A folder that was only half made would pass for a whole one the next time.
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "make: cannot make $(VENV) with $(PYTHON). Install Python 3.11 with its venv module \
	(Debian: apt-get install python3.11-venv), or name another interpreter: make setup PYTHON=/path/to/python3.12" >&2; exit 1; }

# torch first and by itself: whatever else asks for torch then finds it there and fetches no other build.
$(STAMPS)/packages: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@mkdir -p $(STAMPS)
	@echo "Setting up $(VENV) (once; a few minutes, mostly torch) …"
	@$(PIP) install --constraint $(CONSTRAINTS) '$(TORCH)'
	@$(PIP) install --constraint $(CONSTRAINTS) --editable '.[embedded,dev]'
	@touch $@

$(SGLANG_VENV)/.ready: pyproject.toml requirements/sglang.txt
	@$(PYTHON) -m venv --clear $(SGLANG_VENV)
	@$(SGLANG_VENV)/bin/pip install --quiet torch==2.11.0 torchvision==0.26.0 triton==3.6.0
	@$(SGLANG_VENV)/bin/pip install --quiet pytest pytest-asyncio pytest-timeout pytest-textual-snapshot hypothesis hatchling editables
	@$(SGLANG_VENV)/bin/pip install --quiet --no-deps --requirement requirements/sglang.txt
	@$(SGLANG_VENV)/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/debian: requirements/debian.sh Makefile | $(BIN)/python
	@mkdir -p $(STAMPS)
	@if sh requirements/debian.sh $(DEBIAN); then touch $@; else \
	echo "make: going on without them: the tests that need them are skipped, and the next make tries again" >&2; fi

$(STAMPS)/debian-hosts: requirements/debian.sh Makefile | $(BIN)/python
	@mkdir -p $(STAMPS)
	@if sh requirements/debian.sh $(DEBIAN_HOSTS); then touch $@; else \
	echo "make: going on without them: the tests that need them are skipped, and the next make tries again" >&2; fi

# No stamp: looking for the file in the user's cache takes a third of a second, and sees when the cache was cleared.
model: $(STAMPS)/packages
	@$(BIN)/ddtree-launch model get >/dev/null
