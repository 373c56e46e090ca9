# Every task of this repository. `make` alone prints this list from the `##` comments.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
UV ?= uv
# Relative and always `python -m`: works in folders with spaces and with very long paths.
PY := .venv/bin/python
# What `make demo` runs, and more arguments for `make test` and `make bench`.
DEMO ?= -m threadlog demo
ARGS ?=
COMPILE := $(UV) pip compile --quiet --universal --all-extras --generate-hashes --no-emit-index-url \
	--no-emit-find-links --python-version 3.11 --custom-compile-command 'make lock' pyproject.toml

.PHONY: help setup setup-dev jars tools demo test lint format bench cluster cluster-down schemas docs \
	chart dashboards lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## install what is needed to run, into .venv
	@PYTHON='$(PYTHON)' bash deploy/install.sh run

setup-dev: ## install what is needed to change the code, too
	@PYTHON='$(PYTHON)' bash deploy/install.sh dev

jars: ## fetch the broker that `make cluster` and the tests start, once
	@PYTHON='$(PYTHON)' bash deploy/install.sh cluster
	@$(PY) -m deploy.cluster jars

tools: ## fetch or build what checks alerts, chart and compose file; ARGS=prometheus for that alone
	@bash deploy/tools.sh $(ARGS)

demo: setup ## a scripted model repairs a small project with the real tool; no key needed
	@$(PY) $(DEMO)

test: setup-dev ## every test lane; ARGS='-k name' for some
ifeq ($(ARGS),)
	@$(PY) -m pytest --cov --cov-report=term --cov-fail-under=90
	@report=$$($(PY) -m coverage report --fail-under=100 \
		--include='services/threadlog/events/*,services/threadlog/thread/*' 2>&1) || \
		{ echo "$$report"; echo 'test: the pure core is not fully covered'; exit 1; }
else
	@$(PY) -m pytest $(ARGS)
endif

lint: setup-dev ## ruff, mypy, import contracts; all of them run, whatever the first one says
	@status=0; \
	for check in 'ruff check .' 'ruff format --check .' mypy; do \
		echo "$$check"; $(PY) -m $$check || status=1; \
	done; \
	.venv/bin/lint-imports --no-logo || status=1; \
	exit $$status

format: setup-dev ## rewrite the code as ruff likes it
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: setup-dev ## measured next to a peer, in one run; ARGS=--profile shows where the time goes
	@$(PY) -m tests.bench $(ARGS)

cluster: ## a Kafka broker and a Redis of this clone, topics included; KAFKA_PORT, REDIS_PORT
	@PYTHON='$(PYTHON)' bash deploy/install.sh cluster
	@$(PY) -m deploy.cluster up

cluster-down: ## stop what `make cluster` started; the data stay
	@$(PY) -m deploy.cluster down

schemas: setup-dev ## write schemas/ again from the types
	@$(PY) -m tests.schema.render --write

docs: setup-dev ## write features, cli, metrics, problems and doctor.md in docs/ again, from what they say
	@$(PY) tests/arch/render_features.py --write
	@$(PY) tests/arch/render_cli_docs.py --write
	@$(PY) tests/arch/render_metrics.py --write
	@$(PY) tests/arch/render_problems.py --write
	@$(PY) tests/arch/render_doctor.py --write

chart: setup-dev tools ## write what is made in helm/threadlog again, and the renders that tests compare
	@$(PY) -m tests.deploy.render_chart --write

dashboards: setup-dev ## write the Grafana dashboards in deploy/grafana again from their code
	@$(PY) -m deploy.grafana.fleet --write

lock: ## compile both locks again from pyproject.toml (needs uv)
	@command -v '$(UV)' >/dev/null || { echo 'lock: uv not found; install it or set UV=/path/to/uv' >&2; exit 1; }
	@$(COMPILE) --group build -o requirements.lock $(ARGS)
	@$(COMPILE) --group build --group dev -c requirements.lock -o requirements-dev.lock $(ARGS)

clean: ## remove all that was built here; logs, workspaces and the cluster's data stay
	@rm -rf .venv .venv-peers .tools .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.* bench-results.json build dist
	@# A broker that runs still opens its jars.
	@[ -e .cluster/kafka.pid ] || rm -rf .kafka
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
