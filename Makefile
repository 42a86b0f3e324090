# `make help` lists the targets. Everything is built in build/ and installed in .venv/; nothing outside is touched,
# but for the system packages that `make setup` names.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
# One compiler of torch's headers takes about 2 GiB.
JOBS ?= $(shell awk -v cores="$$(nproc)" '/^MemAvailable/ { fit = int($$2 / 2097152); \
  print (fit < 1 ? 1 : fit < cores ? fit : cores) }' /proc/meminfo)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

BUILD := build/editable
GENERATOR := -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(VENV)/bin/ninja
CXX_FILES = $(shell find csrc tests examples -name '*.h' -o -name '*.cpp')
# Processes that run Python tests, a file each.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 4 ? cores : 4)))
# Threads of each: idle ones of a process that has more than its share of the cores wait busily.
WORKER_THREADS ?= $(shell cores=$$(nproc); workers=$$(echo '$(WORKERS)' | grep -xE '[1-9][0-9]*' || echo $$cores); \
  share=$$((cores / workers)); echo $$((share < 1 ? 1 : share < 4 ? share : 4)))
# Extra arguments: make train ARGS='--epochs 1', make test ARGS='-k einsum'.
ARGS ?=

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- environment ------------------------------------------------------------------------------------------------------
SETUP_DONE := $(VENV)/.joinsum-setup

.PHONY: setup
setup: $(SETUP_DONE) ## Make .venv with all that building and testing needs (as root also installs system packages)

# Written last: an interrupted setup starts again and finds what it already has.
$(SETUP_DONE): requirements-dev.txt tools/setup.sh
	PYTHON=$(PYTHON) tools/setup.sh
	@touch $@

# --- build ------------------------------------------------------------------------------------------------------------
BUILD_DONE := $(VENV)/.joinsum-build
BUILD_INPUTS = $(shell find csrc cmake -type f 2>/dev/null) CMakeLists.txt pyproject.toml

.PHONY: build
build: $(BUILD_DONE) ## Compile and install joinsum in .venv; edits of Python files then show without another build

# An editable install knows its Python files by name, so a new or removed one counts as a change.
build/files.txt: FORCE
	@mkdir -p build
	@find csrc cmake python -type f -not -path '*/__pycache__/*' | LC_ALL=C sort > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
.PHONY: FORCE
FORCE:

$(BUILD_DONE): $(SETUP_DONE) build/files.txt $(BUILD_INPUTS)
	@echo "==> compiling with $(JOBS) jobs and installing into $(VENV)"
	$(PY) -m pip install --disable-pip-version-check --verbose --no-build-isolation --no-deps --editable . \
	  --config-settings=build-dir=$(BUILD) \
	  --config-settings=cmake.define.JOINSUM_BUILD_TESTS=ON \
	  --config-settings=cmake.define.JOINSUM_WERROR=ON
	@touch $@

# --- checks and tests -------------------------------------------------------------------------------------------------
.PHONY: fmt
fmt: $(SETUP_DONE) ## Format C++ and Python
	$(VENV)/bin/clang-format -i $(CXX_FILES)
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .

LINT_PARTS = \
  clang-format "$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)" \
  ruff-check "$(PY) -m ruff check ." \
  ruff-format "$(PY) -m ruff format --check ." \
  layers "$(PY) tools/check_layers.py" \
  tests-of-sources "$(PY) tools/list_untested.py"

.PHONY: lint
lint: $(SETUP_DONE) ## Check format, lint and the include rules
	@tools/run_parts.sh build/logs $(LINT_PARTS)

.PHONY: types
types: $(SETUP_DONE) ## Check Python's types
	$(PY) -m mypy

.PHONY: check
check: build ## lint, types, generated docs that are up to date, and links of documents
	@tools/run_parts.sh build/logs $(LINT_PARTS) \
	  types "$(PY) -m mypy" \
	  docs "$(PY) tools/generate_docs.py --check" \
	  links "$(PY) tools/check_links.py"

# A file of each room whose tests run plans: they pass on a store that moves and poisons every block without a pin.
# `make nightly` runs all files so.
RELOCATED_TESTS = $(addprefix tests/python/, \
  algebra/test_plan.py \
  cluster/test_context.py \
  planner/test_graph_plan.py \
  execution/test_relation.py \
  distributed/test_distributed_tensor.py \
  capture/test_single_site.py \
  frontend/training/test_step_plans.py \
  explanation/test_analyze.py \
  nn/test_functional.py \
  extreme/test_classifier.py \
  cli/test_main.py)

.PHONY: test
test: build ## Run the C++ and the Python tests; all of them, also after a failure
	@tools/run_parts.sh build/logs \
	  joinsum_plan_tests "cmake --build $(BUILD) --target joinsum_plan_tests && \
	    tools/run_shards.sh $(BUILD)/joinsum_plan_tests" \
	  joinsum_runtime_tests "cmake --build $(BUILD) --target joinsum_runtime_tests && $(BUILD)/joinsum_runtime_tests" \
	  relocating_runtime_tests "cmake --build $(BUILD) --target joinsum_runtime_tests && \
	    JOINSUM_STORE=relocating $(BUILD)/joinsum_runtime_tests" \
	  pytest "OMP_NUM_THREADS=$(WORKER_THREADS) $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
    $(ARGS)" \
	  relocating_pytest "JOINSUM_STORE=relocating $(PY) -m pytest -n $(WORKERS) --dist loadfile $(RELOCATED_TESTS)"

# Files of which every change runs a part.
ALL_MODELS = $(shell grep -rlw -e EVERYTHING -e takes_long -e rare --include='test_*.py' tests; \
  sed -n 's/[.]py::.*/.py/p' tests/nightly.txt)

.PHONY: nightly
nightly: build ## Run what takes hours: 10,000 random graphs, all operators and models, all tests on the relocating store
	JOINSUM_RANDOM_GRAPHS=10000 $(PY) -m pytest tests/python/package/test_random_graphs.py $(ARGS)
	JOINSUM_OPERATOR_SAMPLES=1000 JOINSUM_OPERATOR_SITES=1,2,3,4,5,6,7,8 \
	  $(PY) -m pytest tests/python/capture/operators/test_operators.py $(ARGS)
	JOINSUM_STORE=relocating $(PY) -m pytest -n $(WORKERS) --dist loadfile tests/python $(ARGS)
	JOINSUM_ALL_OPERATORS=1 $(PY) -m pytest tests/python/capture/operators/test_all_operators.py $(ARGS)
	JOINSUM_ALL_MODELS=1 $(PY) -m pytest $(sort $(ALL_MODELS)) $(ARGS)
	$(MAKE) sanitize SANITIZED='*'

.PHONY: sweep
sweep: build ## Compare 40 Hugging Face families with torch; writes docs/families.md: make sweep ARGS='llama t5'
	$(PY) tools/sweep.py $(ARGS)

# Tests that compare a search with all alternatives run for minutes under sanitizers; `make nightly` runs them so.
COMPARISONS_WITH_ALL = \
  BranchAndBound.FindsTheCheapestOfAllPlacementsThatFit:Search.TheDirectWayIsAtLeastAsCheap*:Objectives/EveryPlan.*:$\
  Verify.RefutesPlansWithAMistake:ContractionOrder.IsTheCheapestOfAllOrders
SANITIZED ?= -$(strip $(COMPARISONS_WITH_ALL))

.PHONY: sanitize
sanitize: $(SETUP_DONE) ## Run the C++ tests under the address and undefined-behaviour sanitizers
	@echo "==> configuring build/dev"
	cmake --preset dev $(GENERATOR)
	@tools/run_parts.sh build/logs/sanitize \
	  joinsum_plan_tests "cmake --build --preset dev --target joinsum_plan_tests && \
	    tools/run_shards.sh build/dev/joinsum_plan_tests --gtest_filter='$(SANITIZED)'" \
	  joinsum_runtime_tests "cmake --build --preset dev --target joinsum_runtime_tests && \
	    ASAN_OPTIONS=detect_leaks=0 build/dev/joinsum_runtime_tests" \
	  threads "$(MAKE) --no-print-directory sanitize-threads"

# A test with two of torch's threads, whose OpenMP the thread sanitizer does not know.
THREADS_OF_TORCH = TiledRecomputation.GoesThroughLargeArraysByBlocks
# The compiler that the editable build uses: the plan side's objects are found in its cache.
CXX_OF_PYTHON = $(shell $(PY) -c "import sysconfig; print(sysconfig.get_config_var('CXX').split()[0])")

.PHONY: sanitize-threads
sanitize-threads: $(SETUP_DONE) ## Run the runtime's C++ tests under the thread sanitizer, with one OpenMP thread
	CXX=$(CXX_OF_PYTHON) cmake --preset threads $(GENERATOR)
	cmake --build --preset threads --target joinsum_runtime_tests
	OMP_NUM_THREADS=1 TSAN_OPTIONS='halt_on_error=1 suppressions=tools/thread_sanitizer.txt' \
	  build/threads/joinsum_runtime_tests --gtest_filter='-$(THREADS_OF_TORCH)'

.PHONY: plan-test
plan-test: $(SETUP_DONE) ## Build the plan side without torch, and run its tests
	cmake --preset plan-only $(GENERATOR)
	cmake --build --preset plan-only
	build/plan-only/joinsum_plan_tests $(ARGS)

# --- use --------------------------------------------------------------------------------------------------------------
.PHONY: train
train: build ## Train on the example data: make train ARGS='--sites 2'
	$(VENV)/bin/joinsum train --data data/debian-xml --sites 4 --epochs 4 $(ARGS)

.PHONY: bench-quick bench bench-full
BENCH = $(PY) benchmarks/bench.py --json benchmarks/results/$(1).json --suite $(1) $(ARGS)
bench-quick: build ## Compare joinsum with DDP, FSDP2, tensor parallelism and hand-coded plans, in minutes
	$(call BENCH,quick)
bench: build ## The same for every workload; as root also on emulated networks: make bench ARGS='--against FILE'
	$(call BENCH,standard)
bench-full: build ## The same for every size on every network; leaves out the cells that an earlier run has measured
	$(call BENCH,full) --resume
	$(PY) benchmarks/choice.py --json benchmarks/results/choice.json --suite full --resume

.PHONY: docs
docs: build ## Generate the docs that list rules, kernels, operators and errors
	$(PY) tools/generate_docs.py

.PHONY: golden
golden: build ## Rewrite what commands print in tests/plans and docs
	$(PY) tools/golden.py

.PHONY: screenshots
screenshots: build ## Take the pictures of explain pages in docs; needs Chromium
	$(PY) tools/screenshots.py

.PHONY: pictures
pictures: build ## Draw the pictures of docs/einsum_examples.md again
	$(PY) tools/pictures.py

.PHONY: clean
clean: ## Remove build outputs; keeps .venv
	rm -rf build dist $(BUILD_DONE)
