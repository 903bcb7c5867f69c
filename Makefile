# Everything starts from nothing: the first call makes .venv, later ones find its stamps and go straight to work.
PYTHON ?= python3
BIN := .venv/bin
INSTALL = $(BIN)/pip install -qq -c constraints.txt
# -c binds what is installed; these bind the build backend that pip fetches for itself (old pips, new pips).
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt

# mkdocs-material would speak of its successor at every build.
export NO_MKDOCS_2_WARNING := 1

# The quick form shows in CI that the demo works; its numbers are too rough to draw conclusions from.
DEMO_FLAGS := $(if $(QUICK),--seeds 2 --epochs 5,--seeds 8 --epochs 200)
CONFIGURATIONS := proposed-1 proposed-2 proposed-3 proposed-4

# An editable install compiles when it is made: a change here makes it again.
KERNELS := CMakeLists.txt $(wildcard src/peephole/nn/csrc/*)

.DEFAULT_GOAL := help
.PHONY: help demo test sanitize lint format types contracts docs docs-serve figures reproduction bench accuracy wheel constraints clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.light ## the paper's comparison, 8 seeds of 200 epochs, as a page (QUICK=1: a rough one in seconds)
	$(BIN)/peephole reproduce $(DEMO_FLAGS) --out demo

test: .venv/.full ## run every test, the code blocks of README and docs among them
	$(BIN)/pytest

sanitize: .venv/.full ## run the kernels' tests under the address and undefined-behaviour sanitisers
	bash tools/sanitize.sh

lint: .venv/.full ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: .venv/.full ## let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: .venv/.full ## mypy, strict
	$(BIN)/mypy

contracts: .venv/.full ## import-linter: which room may import which
	$(BIN)/lint-imports --no-logo

docs: .venv/.full ## build the documentation into site/; fails on a public name without its entry
	$(BIN)/pytest -q tests/test_reference.py
	$(BIN)/mkdocs build --strict --quiet

docs-serve: .venv/.full ## serve the documentation while writing it
	$(BIN)/mkdocs serve

figures: .venv/.full ## redraw the documentation's figures
	$(BIN)/python docs/figures/architecture.py
	$(BIN)/peephole check $(CONFIGURATIONS) --plot docs/figures/check.svg

bench: .venv/.full ## the speed of PeepholeLSTM against its peers
	$(BIN)/peephole bench

reproduction: .venv/.full ## the paper's comparison in full, and its page docs/reproduction.md (a quarter of an hour)
	$(BIN)/peephole reproduce --docs docs/reproduction.md

accuracy: .venv/.full ## the theory against simulated networks, as a table
	$(BIN)/python benchmarks/theory_accuracy.py

wheel: .venv/.full ## build the wheel into dist/ and try it where src is out of reach
	bash tools/smoke.sh

constraints: ## renew constraints.txt from the ranges in pyproject.toml
	bash tools/constraints.sh

clean: ## remove everything that make has made, .venv too
	rm -rf .venv build dist site demo reproduction .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find src tests docs tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.venv/.created:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "peephole needs Python 3.11 or later with its venv module, and '$(PYTHON)' is not that: try make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.light: pyproject.toml constraints.txt $(KERNELS) | .venv/.created
	@echo "Installing into .venv (a minute or so, once)"
	@$(INSTALL) -e '.[reproduce]'
	@touch $@

.venv/.full: pyproject.toml constraints.txt $(KERNELS) | .venv/.created
	@echo "Installing into .venv (a minute or so, once)"
	@$(INSTALL) -e '.[all]'
	@touch .venv/.light $@
