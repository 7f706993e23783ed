# Two commands matter: `make demo` and `make test`. Everything lives in .venv; nothing is installed outside this folder.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup demo up test test-engines lint format bench-goodput bench-mesh bench-overhead bench-estimator clean

help: ## List the commands
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

setup: $(READY) ## Set up .venv with the locked dependencies and the real Envoy

$(READY): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Tidegate needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version)." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "Python's venv module is missing. Type: sudo apt-get install -y python3-venv" >&2; exit 1; }
	@test -x $(BIN)/uv || { echo "Creating .venv"; $(PYTHON) -m venv .venv; $(BIN)/python -m pip install --quiet 'uv>=0.9'; }
	@echo "Installing the locked dependencies"
	@$(BIN)/uv sync --quiet --locked --all-extras --python $(BIN)/python
	@touch $@

demo: setup ## Show what Tidegate does to an overloaded endpoint, in about 80 seconds
	@$(BIN)/python -m tidegate sim demo

up: setup ## Leave Envoy, Tidegate and a simulated engine running, with curl commands to try
	@$(BIN)/python -m tidegate sim up

test: setup ## Run every test, the real Envoy included
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-engines: setup ## The same questions to the real vLLM, Triton and Ray Serve; the first run installs 4.3 GB in .engines
	$(BIN)/python -m pytest -s tests/engines/engine_vllm.py tests/engines/engine_triton.py tests/engines/engine_ray_serve.py

lint: setup ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup ## Format the code
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

bench-goodput: setup ## Requests in time under overload, against other control laws, in about 15 minutes
	@$(BIN)/python -m bench.goodput

bench-mesh: setup ## Through the real Envoy, against its own filters and a p99 window, in about 15 minutes
	@$(BIN)/python -m bench.mesh $(MESH_ARGS)

bench-overhead: setup ## Latency and CPU that Tidegate adds to a request
	@$(BIN)/python -m bench.overhead

bench-estimator: setup ## Predicted against true answer lengths, ours and the baselines
	@$(BIN)/python -m bench.estimator

clean: ## Remove .venv and caches
	rm -rf .venv tests/data/tritonclient/.venv tests/data/node/node_modules .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
