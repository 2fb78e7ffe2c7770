# Automap: set-up, demo, service, tests. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
UV ?= uv
HOST ?=
PORT ?=
BIN := $(VENV)/bin
RUNTIME_STAMP := $(VENV)/.runtime-installed
TEST_STAMP := $(VENV)/.test-installed
DOCS_STAMP := $(VENV)/.docs-installed
# executor-gpu.lock on a machine with GPUs. The CPU build of torch comes from where pip is told to
# look, else from PyTorch's own index.
EXECUTOR_LOCK ?= requirements/executor-cpu.lock
# An environment is for one of the locks: their builds of torch and vLLM exclude each other.
EXECUTOR_STAMP := $(VENV)/.$(notdir $(EXECUTOR_LOCK))-installed
OTHER_EXECUTOR = $(filter-out $(EXECUTOR_STAMP),$(wildcard $(VENV)/.executor-*.lock-installed))
# The lock is for one platform; elsewhere demo and test do without the executor, and say so.
LOCKED_FOR := import platform, sys; print((sys.version_info[:2], sys.platform, platform.machine()) == ((3, 11), 'linux', 'x86_64'))
EXECUTOR_HERE = $(shell $(or $(wildcard $(BIN)/python),$(PYTHON)) -c "$(LOCKED_FOR)" 2>/dev/null)
WITH_EXECUTOR = $(if $(OTHER_EXECUTOR),,$(if $(filter True,$(EXECUTOR_HERE)),$(EXECUTOR_STAMP),without-executor))
# The frameworks that plans are exported to, over the executor's environment, which it sees.
EXPORTS_VENV ?= .venv-exports
EXPORTS_STAMP := $(EXPORTS_VENV)/.installed
# Over the executor's own lock alone; without it the exports are tested as far as they are ours.
WITH_EXPORTS = $(if $(filter $(EXECUTOR_STAMP),$(WITH_EXECUTOR)),$(EXPORTS_STAMP))
# The page of the service is built where Node is new enough; all else goes without it.
NODE_HERE = $(shell node -e 'console.log(+process.versions.node.split(".")[0] >= 20)' 2>/dev/null)
PAGE := service/page/index.html
PAGE_STAMP := page/node_modules/.installed
PAGE_SOURCES = $(wildcard page/*.* page/public/* page/scripts/*) $(shell find page/src -type f) \
	$(wildcard service/api/*.py service/api/routers/*.py service/schemas/*.py planner/plan/*.py planner/spec/*.py)
WITH_PAGE = $(if $(filter true,$(NODE_HERE)),page-if-possible,without-page)
PURELIB := import sysconfig; print(sysconfig.get_path("purelib"))
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Those that need nothing but the repository; benchmarks/README.md names the others.
BENCHMARKS ?= planning pricing strategies
EXECUTOR_BENCHMARKS ?= controller iteration reshard start_up throughput weights
# A folder of tests, from anywhere below tests/: AREA=planner/search and AREA=search are the same.
AREA ?=
TESTS = $(if $(AREA),$(or $(wildcard tests/$(AREA)),$(wildcard tests/*/$(AREA)),$(wildcard \
	tests/*/*/$(AREA)),$(error tests/ has no folder $(AREA))),tests)
# Processes that share the tests, one more than cores, as those that start others wait for them much
# of their time; 0 runs them in pytest's own, for a debugger.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 1)
# Processes that tests start need not compile anew what they import, whatever the shell says.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet
LOCK := --generate-hashes --no-emit-index-url --no-emit-find-links \
	--custom-compile-command 'make lock'
LOCK_COMMAND := $(UV) pip compile --quiet --universal --python-version 3.11 $(LOCK)
EXECUTOR_LOCK_COMMAND := $(UV) pip compile --quiet --python-version 3.11 \
	--python-platform x86_64-manylinux_2_28 $(LOCK) --constraint requirements/.shared.txt
# What is ours and runs; tests may do what it may not.
OUR_CODE := automap/__init__.py executor migrations planner profiler service
AUDITED ?= requirements/service.lock requirements/test.lock requirements/executor-cpu.lock
# Where OSV, the advisories that pip-audit asks, is out of reach, nothing is audited.
ADVISORY := https://api.osv.dev/v1/vulns/PYSEC-2018-28
ADVISORIES := import urllib.request as request; request.urlopen("$(ADVISORY)", timeout=10)

.PHONY: chaos help demo executor without-executor page page-if-possible without-page screenshots serve test test-fast test-exports test-all fuzz format lint audit docs bench \
	bench-executor loop gpu-check gpu-types reproduce lock schema clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUNTIME_STAMP) $(WITH_EXECUTOR)  ## plan PPO with 70B models through a running service, then run tiny PPO
	@PORT=$(PORT) examples/demo.sh $(BIN)

executor: $(EXECUTOR_STAMP)  ## install what running plans needs (EXECUTOR_LOCK=, TORCH_INDEX=)

serve: $(RUNTIME_STAMP)  ## run the HTTP service and, after make executor, a worker (HOST=, PORT=; AUTOMAP_…)
	@$(BIN)/automap serve --with-worker $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT))

page: $(PAGE)  ## build the service's page (needs Node 20 or newer)

screenshots: $(PAGE) $(TEST_STAMP)  ## draw the pictures of docs/guides/page.md anew (needs Chromium)
	$(BIN)/python -m docs.generate.screenshots

test-fast: $(TEST_STAMP)  ## run the planner's quick tests: a minute, without Ray and torch
	$(PYTEST) -m "not slow and not thorough" tests/planner

test: $(TEST_STAMP) $(WITH_EXECUTOR) $(WITH_EXPORTS) $(WITH_PAGE)  ## run the tests, except those marked slow (AREA=search, WORKERS=)
	$(PYTEST) -m "not slow" $(TESTS)

test-exports: $(TEST_STAMP) $(EXPORTS_STAMP)  ## pass exported launches through the frameworks' own code
	$(PYTEST) tests/exports

test-all: $(TEST_STAMP) $(WITH_EXECUTOR) $(WITH_EXPORTS) $(WITH_PAGE)  ## run the slow ones too (AREA=search, WORKERS=)
	$(PYTEST) $(TESTS)

fuzz: $(TEST_STAMP)  ## send 10,000 random requests to a service on each database (FUZZ=--minutes 60)
	@$(BIN)/python -m tests.service.fuzz $(FUZZ)

format: $(TEST_STAMP)  ## format the code, and mend what ruff can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

lint: $(TEST_STAMP)  ## style, types, import contracts, careless calls, committed secrets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive $(OUR_CODE)
	git ls-files -z | xargs -0 $(BIN)/detect-secrets-hook --cores 2 --baseline .secrets.baseline

audit: $(TEST_STAMP)  ## look for known holes in the locked dependencies (needs the network)
	@$(BIN)/python -c '$(ADVISORIES)' 2>/dev/null || { \
		echo "OSV's advisories are out of reach: the locks are not audited here"; exit 0; }; \
	for lock in $(AUDITED); do \
		echo "== $$lock"; \
		$(BIN)/pip-audit --vulnerability-service osv --disable-pip --require-hashes --progress-spinner off -r $$lock; done

docs: $(DOCS_STAMP)  ## build the documentation site into site/, strictly
	@$(BIN)/python -m docs.generate

loop: $(EXECUTOR_STAMP)  ## profile this machine, run plans of a job on it, write docs/internals/loop.md (LOOP=--profile FOLDER)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.loop $(LOOP)

bench: $(RUNTIME_STAMP)  ## run the benchmarks and print their figures
	@for name in $(BENCHMARKS); do \
		echo "== $$name"; $(BIN)/python -m "benchmarks.$$name"; done

bench-executor: $(EXECUTOR_STAMP)  ## run the executor's benchmarks and print their figures
	@for name in $(EXECUTOR_BENCHMARKS); do \
		echo "== $$name"; $(BIN)/python -m "benchmarks.$$name"; done

chaos: $(TEST_STAMP) $(WITH_EXECUTOR)  ## put a whole service under random faults and count what is lost (CHAOS=--database postgresql)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.chaos $(CHAOS)

gpu-check: $(EXECUTOR_STAMP)  ## show what only a GPU can, in ten minutes; writes docs/internals/gpu_check.md (GPU_CHECK=--on cpu)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.gpu_check $(GPU_CHECK)

gpu-types: $(TEST_STAMP) $(EXECUTOR_STAMP)  ## import the executor, and check it against the types of torch, vLLM and Megatron-core (minutes)
	@$(BIN)/python -m benchmarks.gpu_check.imports
	$(BIN)/mypy --config-file benchmarks/gpu_check/mypy.ini

reproduce: $(RUNTIME_STAMP)  ## predict what the papers measured; writes docs/internals/reproduction.md (minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reproduction

schema: $(RUNTIME_STAMP)  ## print the JSON Schema of a job spec
	@$(BIN)/automap schema job-spec

lock:  ## resolve the dependencies again and write requirements/*.lock (needs uv)
	@command -v $(UV) >/dev/null || { echo "make lock needs uv: pip install uv, or set UV=/path/to/uv" >&2; exit 2; }
	$(LOCK_COMMAND) pyproject.toml requirements/build.in --output-file requirements/service.lock
	$(LOCK_COMMAND) --extra test --constraint requirements/service.lock \
		pyproject.toml requirements/build.in --output-file requirements/test.lock
	$(LOCK_COMMAND) --extra docs --constraint requirements/test.lock \
		pyproject.toml requirements/build.in --output-file requirements/docs.lock
	grep -oE '^[][a-zA-Z0-9._-]+==[^\\]+' requirements/test.lock | grep -v '^setuptools=' \
		> requirements/.shared.txt
	$(EXECUTOR_LOCK_COMMAND) --excludes requirements/executor-excluded.txt \
		--extra-index-url $(TORCH_INDEX) --index-strategy unsafe-best-match $(UV_OPTIONS) \
		--extra executor-cpu pyproject.toml --output-file requirements/executor-cpu.lock
	$(EXECUTOR_LOCK_COMMAND) --no-deps requirements/exports.in \
		--output-file requirements/exports.lock
	$(EXECUTOR_LOCK_COMMAND) --extra executor-gpu pyproject.toml \
		--output-file requirements/executor-gpu.lock
	rm requirements/.shared.txt

clean:  ## remove the environment and caches
	rm -rf $(VENV) $(EXPORTS_VENV) .automap build site page/node_modules page/generated service/page .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "Automap needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1 || true)." >&2; \
		echo "Name a newer one, for example: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { \
		echo "Cannot create a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; \
		rm -rf $(VENV); exit 2; }

# A stamp is as new as the last installation, so a second run installs nothing. The locked build
# tool is in the environment by then; without build isolation pip fetches nothing that is unlocked.
$(RUNTIME_STAMP): requirements/service.lock pyproject.toml | $(BIN)/python
	@$(BIN)/python -c '$(NEW_ENOUGH)' || { \
		echo "$(VENV) holds a Python older than 3.11: remove it and run make again" >&2; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	@echo "Installing the locked runtime dependencies (under a minute)"
	@$(PIP_INSTALL) --require-hashes -r requirements/service.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(TEST_STAMP): requirements/test.lock $(RUNTIME_STAMP)
	@echo "Installing the locked test dependencies"
	@$(PIP_INSTALL) --require-hashes -r requirements/test.lock
	@touch $@

$(DOCS_STAMP): requirements/docs.lock $(RUNTIME_STAMP)
	@echo "Installing the locked tools of the documentation"
	@$(PIP_INSTALL) --require-hashes -r requirements/docs.lock
	@touch $@

# --no-deps: the lock is the whole truth, less what executor-excluded.txt says.
$(EXECUTOR_STAMP): $(EXECUTOR_LOCK) $(RUNTIME_STAMP)
	@test -z "$(OTHER_EXECUTOR)" || { \
		echo "$(VENV) holds the executor of another lock: use another environment, VENV=.venv-gpu for example" >&2; exit 2; }
	@echo "Installing the locked executor dependencies (torch, Ray, vLLM, Megatron-core: 2.5 GB)"
	@$(PIP_INSTALL) --no-deps --require-hashes -r $(EXECUTOR_LOCK) 2>/dev/null || { \
		echo "Looking for torch at $(TORCH_INDEX) too"; \
		$(PIP_INSTALL) --no-deps --require-hashes --extra-index-url $(TORCH_INDEX) -r $(EXECUTOR_LOCK); }
	@touch $@

# --no-deps: the rest is the executor's, which is not touched.
$(EXPORTS_STAMP): requirements/exports.lock $(EXECUTOR_STAMP)
	@echo "Installing the locked frameworks that plans are exported to (40 MB)"
	@$(BIN)/python -m venv --clear --without-pip $(EXPORTS_VENV)
	@$(BIN)/python -c '$(PURELIB)' > "$$($(EXPORTS_VENV)/bin/python -c '$(PURELIB)')/executor.pth"
	@$(BIN)/python -m pip --python $(EXPORTS_VENV)/bin/python install --disable-pip-version-check \
		--quiet --ignore-installed --no-deps --no-build-isolation --require-hashes \
		-r requirements/exports.lock
	@touch $@

$(PAGE_STAMP): page/package-lock.json
	@command -v npm >/dev/null || { \
		echo "make page needs Node 20 or newer with npm: https://nodejs.org" >&2; exit 2; }
	@echo "Installing the locked packages of the page"
	@cd page && npm ci --silent --no-audit --no-fund
	@touch $@

$(PAGE): $(PAGE_SOURCES) $(PAGE_STAMP) $(RUNTIME_STAMP)
	@echo "Building the page into service/page/"
	@$(BIN)/python page/scripts/documents.py page/generated
	@cd page && npm run --silent build
	@touch $@

# Packages may be out of reach; what is wrong with the page's own code is an error.
page-if-possible: $(RUNTIME_STAMP)
	@if $(MAKE) --no-print-directory $(PAGE_STAMP); then $(MAKE) --no-print-directory $(PAGE); \
		else echo "Without the page: its packages cannot be installed here" >&2; fi

without-page:
	@echo "Without the page: it is built with Node 20 or newer (make page)"

without-executor:
	@echo "Without the executor: its lock is for Python 3.11 on Linux x86-64 (PYTHON= names another Python)"
