# Everything a developer does. Each target sets up what it needs on first use, in .venv and .cache.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Suites that kill and wait a lot; `make faults` runs them.
LONG := failover failover_network controllers_with_etcd replication_faults spark_faults pipelines console
NATIVE := $(wildcard src/firearrow/hot/native/*.pyx src/firearrow/hot/native/*.pxd src/firearrow/hot/native/*.h)

.DEFAULT_GOAL := help
.PHONY: help demo up test check format interop faults seeds crash bench bench-peers bench-clients constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	@echo "==> Setting up $(VENV) (a minute the first time)"
	@scripts/setup $(PYTHON) $(VENV)
	@touch $@

demo: $(STAMP) ## See the main job end to end, then exit
	@$(BIN)/python examples/demo.py

up: $(STAMP) ## Run a name server (127.0.0.1:9876) and a broker (10911) until Ctrl-C
	@$(BIN)/firearrow up

check: $(STAMP) ## Lint, format and types: ruff, mypy --strict
	@echo "==> ruff check"; $(BIN)/ruff check .
	@echo "==> ruff format"; $(BIN)/ruff format --check .
	@echo "==> mypy --strict"; $(BIN)/mypy

format: $(STAMP) ## Let ruff format and fix what it can
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

test: $(STAMP) ## The fast suite, on compiled and on plain-Python hot code
	@scripts/test $(BIN)/python

interop: $(STAMP) ## Real Apache RocketMQ brokers and clients (Java, Go, Node) against ours
	@echo "==> interop (jars and modules are fetched by name into .cache the first time)"
	@$(BIN)/python -m pytest tests/interop --timeout 600 $(LONG:%=--ignore=tests/interop/test_%.py)

faults: $(STAMP) ## What takes long: fail-over, replication and Spark under kills, browser
	@$(BIN)/python -m pytest --timeout 900 $(LONG:%=tests/interop/test_%.py)

seeds: $(STAMP) ## 500 stories of fail-over under virtual time, each from its seed
	@FIREARROW_SEEDS=500 $(BIN)/python -m pytest -n auto --timeout 900 tests/simulation/test_failover.py

crash: $(STAMP) ## Kill a writing store 200 times and look for what is missing
	@FIREARROW_CRASH_ROUNDS=200 $(BIN)/python -m pytest tests/cluster/test_store_killed.py --timeout 3000

bench: $(STAMP) ## Measure, large; results are appended to benchmarks/results
	@FIREARROW_BENCH=large $(BIN)/python -m benchmarks

bench-peers: $(STAMP) ## FireArrow beside Apache RocketMQ, the same loads on the same machine
	@$(BIN)/python -m benchmarks.peers

bench-clients: $(STAMP) ## Our client beside the Java client, the same works on our broker
	@$(BIN)/python -m benchmarks.client_peers

constraints: $(STAMP) ## Write the installed versions to constraints.txt
	@scripts/constraints $(BIN)/python

clean: ## Remove what the other targets made, except downloads in .cache
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	rm -f src/firearrow/hot/native/*.c src/firearrow/hot/native/*.so
	find . -name __pycache__ -type d -not -path './.cache/*' -prune -exec rm -rf {} +
