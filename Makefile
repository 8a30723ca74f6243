# Two commands do everything: `make run` starts it, `make test` proves it.
# `make help` lists the rest.

PYTHON ?= python3 python3.13 python3.12 python3.11
VENV := .venv/bin
# What the linters and the type checker read, as far as it exists.
CODE := $(wildcard adapter/hermes_mobile proxy/hermes_client_proxy sdk/python/hermes_client.py \
	demo bench scripts/setup.py scripts/make_schema.py)

# The Node packages that exist, where Node.js does.
NODE := $(if $(shell command -v npm),$(patsubst %/package.json,%,$(wildcard \
	sdk/typescript/package.json web/package.json)))

.DEFAULT_GOAL := help
.PHONY: help setup setup-run run test check bench fuzz load clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## make every environment (both Hermes versions, linters, Node packages)
	@python=$$(PYTHON="$(PYTHON)" scripts/find-python) && "$$python" scripts/setup.py

setup-run:
	@python=$$(PYTHON="$(PYTHON)" scripts/find-python) && "$$python" scripts/setup.py run

run: setup-run ## start a real Hermes Agent with both doors and an offline model
	@exec $(VENV)/python -m demo

test: setup ## run every test, the real Hermes Agents included
	@# Real agents on a busy machine now and then miss a deadline: what failed is tried once more,
	@# by itself, and said. What fails twice fails.
	@$(VENV)/python -m pytest -q || { \
		echo "Trying once more what failed (see above): a test that needs this is to be mended."; \
		$(VENV)/python -m pytest -q --last-failed --last-failed-no-failures none; }
	@for folder in $(NODE); do (cd $$folder && npm test --if-present --silent) || exit 1; done

check: setup ## linters, types and import rules: everything but the tests
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/mypy $(CODE)
	@$(VENV)/lint-imports --no-cache
	@for folder in $(NODE); do (cd $$folder && npm run --if-present --silent check) || exit 1; done

bench: setup ## measure both doors beside their bare counterparts
	@$(VENV)/python -m bench

load: setup ## put both doors under load for a quarter of an hour
	@$(VENV)/python -m bench.load

fuzz: setup ## fuzz each parser for two minutes (first: .venv/bin/pip install atheris)
	@for t in frames uploads textsplit sse session_ids origins; do \
		PYTHONPATH=adapter:proxy:. nice $(VENV)/python -m tests.fuzz.run $$t 120 || exit 1; done

clean: ## remove the environments, the demo's home and all caches
	@rm -rf .venv .hermes-env .setup .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz
	@rm -rf .import_linter_cache sdk/typescript/node_modules sdk/typescript/dist
	@rm -rf adapter/*.egg-info proxy/*.egg-info sdk/python/*.egg-info
	@rm -rf web/node_modules web/dist adapter/hermes_mobile/pages proxy/hermes_client_proxy/pages
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
