# make demo · make test · make test-all · make lint · make conformance · make seeds · make bench · make costs · make docs · make format
# The first of them creates .venv and installs everything into it; from then on that takes no time until a pyproject file changes.

VENV := .venv
LANE_PYTHON := $(PYTHON)
override PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check --no-input
DISTRIBUTIONS := . plugins/torch_exec plugins/apex_xentropy plugins/llvm_exec plugins/onednn_exec conformance
# Executors that are not yet installed for the tests of everything else; their own tests find them in their folders.
YOUNG := plugins/inductor_exec:plugins/nvfuser_exec:plugins/triton_exec
EDITABLE := $(addprefix --editable ,$(DISTRIBUTIONS))
PROJECTS := $(patsubst ./%,%,$(addsuffix /pyproject.toml,$(DISTRIBUTIONS)))
# Tests start many processes, which read the bytecode that the first of them wrote.
export PYTHONDONTWRITEBYTECODE :=
COSTS := import_time trace_cost trial_cost discovery arrays decision_cost small_training several_ranks
BENCH ?=
TESTS ?=
WORKERS ?= 3
EXECUTORS ?= torch apex_xentropy llvm onednn

.PHONY: demo test test-all lint conformance seeds bench costs docs format install clean dist lane ecosystem nvfuser-lane triton-lane
.DELETE_ON_ERROR:
.NOTPARALLEL:

demo: install
	@$(PYTHON) examples/gpt.py

# All but the slow tests, at level quick of the conformance suite.  One thread for each of the workers, which are one more than the usual two cores:
# a test that waits for another process leaves its core to them.
test: install
	@OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n $(WORKERS) --dist loadgroup --conformance-level quick $(TESTS)

# The slow tests as well, and level core of the conformance suite.
test-all: install
	@OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n $(WORKERS) --dist loadgroup -m "" $(TESTS)

# The executors of this repository against the whole suite; `make test` does it at level quick.
conformance: install
	@mkdir -p out
	@OMP_NUM_THREADS=1 $(VENV)/bin/dovetail conformance $(EXECUTORS) --level full -n $(WORKERS) --html out/conformance.html --json out/conformance.json

# The same at level quick with ten seeds: a check that fails with some of them is flaky.
seeds: install
	@mkdir -p out
	@OMP_NUM_THREADS=1 $(VENV)/bin/dovetail conformance $(EXECUTORS) --level quick --seeds 10 -n $(WORKERS) --html out/seeds.html --json out/seeds.json

lint: install
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@PYTHONPATH=$(YOUNG) $(VENV)/bin/lint-imports --no-logo --cache-dir $(VENV)/.import_linter_cache

# Puts imports and line breaks in order; `make lint` only says what is not.
format: install
	@$(PYTHON) -m ruff check --quiet --fix . || true
	@$(PYTHON) -m ruff format .

# Everything beside its peers, three quarters of an hour on two quiet cores; BENCH=--quick takes four minutes, BENCH="--quick --keep" writes benchmarks/results.
bench: install
	@$(PYTHON) benchmarks/bench.py $(BENCH)
	@$(PYTHON) benchmarks/load.py $(filter --keep,$(BENCH))
	@$(if $(filter --quick,$(BENCH)),,$(PYTHON) benchmarks/dynamic_shapes.py $(filter --keep,$(BENCH)))

# What Dovetail alone costs: importing, tracing, finding plugins; and functions of NumPy arrays beside NumPy.
costs: install
	@set -e; for name in $(COSTS); do $(PYTHON) benchmarks/$$name.py; done

# The tests with any pair of Python and torch, from wheels, in an environment of its own below .lanes:
# make lane PYTHON=3.13 TORCH=2.15.0, with PYTHON=/path/to/python where it is not on the PATH, TESTS=smoke, core or all.
lane: install
	@DISTRIBUTIONS="$(DISTRIBUTIONS)" $(PYTHON) release/lane.py --python "$(LANE_PYTHON)" --torch "$(TORCH)" --tests "$(or $(TESTS),smoke)" --workers $(WORKERS)

# Models and functions of other libraries beside eager mode, in an environment of its own: 3 GB, an hour; ONLY="timm .* train" tries a part.
ecosystem: install
	@DISTRIBUTIONS="$(DISTRIBUTIONS)" $(PYTHON) release/ecosystem.py --workers $(WORKERS) --only "$(ONLY)"

# The sdists and wheels of all distributions, into dist.
dist: install
	@$(PYTHON) release/dist.py

# The nvFuser plugin where nvFuser exists: Python 3.12 (on the PATH, or LANE_PYTHON=...) and torch 2.10; 8 GB in .nvfuser-lane.
nvfuser-lane:
	@plugins/nvfuser_exec/lane.sh

# The Triton plugin without a GPU, in Triton's interpreter, and its kernels compiled: 700 MB in .triton-lane.
triton-lane:
	@plugins/triton_exec/lane.sh

docs: install
	@$(PYTHON) docs/build.py

install: $(VENV)/.installed

$(VENV)/.installed: $(PROJECTS) constraints.txt | $(VENV)/.created
	@echo "Installing into $(VENV): PyTorch is large, so the first time takes a few minutes."
	@$(PIP) install --quiet --quiet --constraint constraints.txt --group dev
	@$(PIP) install --quiet --quiet --constraint constraints.txt --no-build-isolation $(EDITABLE)
	@touch $@

# pip 25.1 is the first that knows dependency groups.
$(VENV)/.created:
	@found=; for python in $(BASE_PYTHON) python3.11 python3.12 python3.13 python3.14 python3 python; do \
	    if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "Dovetail needs Python 3.11, 3.12, 3.13 or 3.14, and none is on the PATH; name one with BASE_PYTHON=..." >&2; exit 1; fi; \
	echo "Creating $(VENV) with $$($$found --version)."; \
	$$found -m venv $(VENV)
	@$(PIP) install --quiet --quiet --upgrade "pip>=25.1"
	@touch $@

clean:
	rm -rf $(VENV) .lanes .nvfuser-lane .triton-lane build dist out .pytest_cache .ruff_cache .hypothesis
