# `make` alone prints this list.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UPSTREAM := .cache/upstream
CHECKS := .cache/checks
PEERS := .cache/peers
SITE := .cache/docs
TESTS ?= tests
DECIDING := tests/unit/ledger tests/unit/modelclaim tests/acceptance
JOBS ?= 2
SEEDS ?= 2000
FIRST ?= 0
MINUTES ?= 10

.PHONY: help setup binaries upstream checks demo demo-vllm test simulate coverage mutate e2e rights lint format docs pictures manifests image verify lock bench-controller bench-fleet bench-gateway bench-statesync peers chaos soak steady-state clean

help: ## Print this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.done ## Make the virtual environment from the locked dependencies

$(VENV)/.done: requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with PYTHON=…" >&2; exit 1; }
	@echo "installing the locked dependencies into $(VENV)"
	@if [ -L $(VENV) ]; then rm $(VENV); fi # what a link points to is somebody else's, and would be emptied
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

binaries: setup ## Find, unpack or build the Kubernetes control plane (once, into the user cache)
	@$(BIN)/aibrix-operator sandbox binaries >/dev/null

upstream: $(UPSTREAM)/.done ## Install AIBrix's own sidecar beside ours, for the contract tests

$(UPSTREAM)/.done: requirements/upstream.lock
	@echo "installing aibrix 0.8.0 into $(UPSTREAM)"
	@$(PYTHON) -m venv --clear $(UPSTREAM)
	@$(UPSTREAM)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/upstream.lock
	@touch $@

checks: $(CHECKS)/.done ## Install checkov and pip-audit beside ours, for the chart and the dependencies

$(CHECKS)/.done: requirements/checks.lock
	@echo "installing checkov and pip-audit into $(CHECKS)"
	@$(PYTHON) -m venv --clear $(CHECKS)
	@$(CHECKS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/checks.lock
	@touch $@

demo: setup ## The main job in a minute: two claims share a card, a third is told why it waits
	@$(BIN)/aibrix-operator sandbox demo

demo-vllm: setup ## The same with two real vLLM processes on the CPU (downloads 8 GB once)
	@$(BIN)/aibrix-operator sandbox demo-vllm

test: setup binaries upstream checks ## All tests but the end-to-end ones
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -q $(TESTS)

coverage: setup ## Every branch of the ledger and of what decides is covered by a test that is named for it
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -q --cov --ignore-glob='*_fuzzed_*.py' $(DECIDING)

mutate: setup ## The ledger's own tests notice nine of ten faults put into it (takes minutes)
	@JOBS=$(JOBS) $(BIN)/python tests/mutation.py

simulate: setup ## Play SEEDS random schedules of faults from FIRST on against the controllers, in virtual time
	@$(BIN)/aibrix-operator simulate --first $(FIRST) --seeds $(SEEDS) --jobs $(JOBS)

e2e: setup binaries upstream ## End-to-end tests: real processes, one file a user story
	@$(BIN)/python -m pytest -q e2e # one process: two would wait for the lock of upstream's sidecar

rights: setup ## What the sandboxes of `AIBRIX_AUDIT_DIR=.cache/audit make test e2e` were granted, asked and were denied
	@$(BIN)/python -m aibrix_operator.sandbox.rights_audit .cache/audit/*.log

lint: setup checks ## Formatter, linter, types, layers, licences, known holes
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m supply.licences
	@$(BIN)/python -m supply.audit $(CHECKS)/bin/pip-audit

format: setup ## Format and mend what can be mended
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

image: setup ## The images as archives in dist/, without Docker (what the end-to-end tests import)
	@$(BIN)/python -m image

docs: $(SITE)/.done ## Build the documentation's site into .cache/site, strictly
	@$(SITE)/bin/mkdocs build --strict --quiet --site-dir .cache/site

$(SITE)/.done: requirements/docs.lock
	@echo "installing mkdocs into $(SITE)"
	@if [ -L $(SITE) ]; then rm $(SITE); fi
	@$(PYTHON) -m venv --clear $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.lock
	@touch $@

pictures: setup ## Draw the pictures of the page in docs/pictures/ anew (needs Chromium)
	@AIBRIX_WRITE_PICTURES=1 $(BIN)/python -m pytest -q tests/page -k pictures

manifests: setup ## Write crds/ and what the chart has of it, from the models and the grants
	@$(BIN)/python -m aibrix_operator.manifests

verify: setup ## Fail when crds/, docs/reference/ or the chart differ from the models, the grants and the version
	@$(BIN)/python -m aibrix_operator.manifests --check

lock: setup ## Lock the dependencies anew
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 pyproject.toml -o requirements/runtime.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 --group dev --extra local pyproject.toml -c requirements/runtime.lock -o requirements/dev.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 requirements/upstream.in -o requirements/upstream.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 requirements/peers.in -o requirements/peers.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 requirements/docs.in -o requirements/docs.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 requirements/checks.in -o requirements/checks.lock

bench-controller: setup binaries ## Our controller beside controller-runtime and kopf, 3,000 objects each
	@$(BIN)/python -m bench.controller

bench-fleet: setup binaries ## What 100, 300 and 1,000 claims cost the operator, and StormServices beside Deployments
	@$(BIN)/python -m bench.fleet
	@$(BIN)/python -m bench.fleet.storms
	@$(BIN)/python -m bench.fleet.adapters

bench-gateway: setup peers ## The gateway beside Envoy alone, vllm-router, sglang-router and LiteLLM (needs wrk)
	@$(BIN)/python -m bench.gateway --peers $(PEERS)

peers: $(PEERS)/.done ## Install the gateways that ours is measured beside, in an environment of their own

$(PEERS)/.done: requirements/peers.lock
	@echo "installing vllm-router, sglang-router and litellm into $(PEERS)"
	@if [ -L $(PEERS) ]; then rm $(PEERS); fi
	@$(PYTHON) -m venv --clear $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/peers.lock
	@touch $@

bench-statesync: setup ## How soon one replica knows what another learned, and what that costs Redis
	@$(BIN)/python -m bench.statesync

chaos: setup binaries ## Kill operators, sidecars, engines and Pods at random for 10 minutes while clients ask
	@$(BIN)/python -m bench.chaos

soak: setup binaries ## Three gateways at half their peak for MINUTES; then operator, API server and Redis dead as long
	@$(BIN)/python -m bench.soak --minutes $(MINUTES)
	@AIBRIX_OUTAGE_S=$$(( $(MINUTES) * 60 )) $(BIN)/python -m pytest -q -s e2e/test_gateway_outages.py

steady-state: setup binaries ## 10 idle minutes of 300 claims, in which nothing may be written
	@AIBRIX_STEADY_S=600 $(BIN)/python -m pytest -q -s e2e/test_steady_state.py

clean: ## Remove what make made here (the user cache stays)
	@rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
