# Everything happens in .venv; a second call does only what is left to do. No compiler is needed.
PYTHON ?= python3
VENV   ?= .venv
CONFIG ?= configs/digits.yaml
# PYTEST=... passes arguments on and runs the tests alone, e.g. make test PYTEST="tests/ops -k lstm"; docs/architecture.md says what is fast
# What stands together shares fixtures and kernels: each process has a stretch of the tests, and takes of another's when it is through.
PYTEST ?= -n auto --dist worksteal
# BENCH=... passes arguments on to benchmarks/run.py, e.g. make bench BENCH="--only mlp --resume"
BENCH  ?=
# MUTANTS=... passes arguments on to tests.mutants, e.g. make mutants MUTANTS="--count 20 --only pe_cli/execute"
MUTANTS ?=

# Python keeps its bytecode, also where the environment says no: without it every call compiles 300 files, for 0.4 s.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' pe_cli/__init__.py)

.DEFAULT_GOAL := help
.PHONY: help train test suite peers check check-deep proof mutants bench docs site dist clean
.DELETE_ON_ERROR:

help: ## show what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile
	@echo "Variables: PYTHON=$(PYTHON) VENV=$(VENV) CONFIG=$(CONFIG) KEY=FILE (sign dist/)"

train: $(VENV)/.run ## install pe and train the model of CONFIG
	$(BIN)/pe train $(CONFIG)
	@echo "Results are in $$(ls -td runs/*/ | head -n 1)"

# Types are checked on the core that the tests leave idle while they are collected.
test: $(VENV)/.test ## check, and run all tests; what they cannot use here is told at the end
	$(MAKE) --no-print-directory -j2 $(if $(filter file,$(origin PYTEST)),check) suite

suite: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST)

peers: $(VENV)/.peers ## install PyTorch and what else tests can use (4 GB), and run the tests that make test has skipped for want of it
	$(BIN)/python -m pytest $(PYTEST) --skipped-for-want

check: $(VENV)/.test ## lint, types and the layers of the packages
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check-deep: $(VENV)/.test ## run the tests of every day, those of ops with every address looked at, those of the executor with guarded memory, those of the tape and pool with every access looked up in a shadow, kill processes over MPI, try all ops and train all configs on PTX; build the site and the wheel, install each extra
	PE_WHOLE=1 PE_CHECK_BOUNDS=1 $(BIN)/python -m pytest $(PYTEST) tests/ops tests/execute/regions/test_calls.py
	PE_WHOLE=1 $(BIN)/python -m pytest $(PYTEST) -p tests.guarded tests/execute tests/devices
	PE_WHOLE=1 $(BIN)/python -m pytest $(PYTEST) -p tests.sanitized tests/devices
	PE_WHOLE=1 PE_KILLS=60 $(BIN)/python -m pytest $(PYTEST) tests/session/test_killed_processes.py
	PE_WHOLE=1 $(BIN)/python -m pytest $(PYTEST)
	$(BIN)/python -m tests.cuda.ptx.models
	$(BIN)/python -m tests.cuda.ptx.models --tf32
	$(BIN)/python -m tests.cuda.ptx.models --bf16
	$(BIN)/python benchmarks/gpu.py --rehearse
	$(MAKE) --no-print-directory site dist
	$(BIN)/python -m tests.installs

proof: $(VENV)/.test ## kill, cut off, damage and crowd it at the scale of docs/proof.md (hours)
	PE_WHOLE=1 PE_KILLS=1000 $(BIN)/python -m pytest $(PYTEST) tests/session/test_killed.py
	PE_WHOLE=1 PE_CROWD=10000 $(BIN)/python -m pytest $(PYTEST) -p no:xdist tests/session/test_many_connections.py
	PE_WHOLE=1 PE_SOAK=45500 $(BIN)/python -m pytest $(PYTEST) -p no:xdist tests/session/test_soak.py
	PE_WHOLE=1 PE_FUZZ=40000 $(BIN)/python -m pytest $(PYTEST) tests/fuzz

mutants: $(VENV)/.test ## change 100 small things in the code, one at a time, and tell which no test notices (an hour)
	$(BIN)/python -m tests.mutants $(MUTANTS)

bench: $(VENV)/.dev ## measure speed, beside PyTorch and the other peers that BENCH="--python jax=PATH" tells
	$(BIN)/python benchmarks/growth.py --write
	$(BIN)/python benchmarks/run.py --write $(BENCH)

docs: $(VENV)/.docs ## write what the code knows into docs/: ops, commands, tables, pictures
	rm -f docs/ops/*.md
	$(BIN)/pe ops --write docs/ops
	$(BIN)/python docs/make_config.py
	$(BIN)/python docs/make_commands.py
	$(BIN)/python docs/make_coverage.py
	$(BIN)/python docs/make_stubs.py
	$(BIN)/python docs/make_house.py
	$(BIN)/python docs/make_inside.py
	$(BIN)/python docs/make_pictures.py

site: $(VENV)/.docs ## build docs/ as a site in build/site; any warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Open build/site/index.html: its search needs no server"

dist: $(VENV)/.created ## pack the sources of the last commit and a wheel into dist/ with their hashes; KEY=FILE signs these with an SSH key
	rm -rf dist && mkdir dist
	git archive --format=tar --prefix=pe-$(VERSION)/ HEAD | gzip -n9 > dist/pe-$(VERSION).tar.gz
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist dist/pe-$(VERSION).tar.gz
	cd dist && sha256sum *.tar.gz *.whl > SHA256SUMS
	@if [ -n "$(KEY)" ]; then ssh-keygen -Y sign -f "$(KEY)" -n file dist/SHA256SUMS; else echo "not signed: make dist KEY=FILE"; fi

clean: ## remove the environment and all caches, keep runs/
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "error: no '$(PYTHON)' found. hint: install Python 3.11 or newer, or say where it is: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: pe needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V 2>&1). hint: make PYTHON=/path/to/a/newer/python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) has no venv module. hint: install it (Debian and Ubuntu: the package python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# Of what is installed here, a fifth is ever imported, and Python compiles that then.
$(VENV)/.test $(VENV)/.dev $(VENV)/.peers $(VENV)/.docs: $(VENV)/.%: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@
