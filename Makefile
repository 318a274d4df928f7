# llmgw: two commands matter, `make up` and `make test`; `make help` lists the rest.
.DEFAULT_GOAL := help
VENV ?= .venv
BIN := $(VENV)/bin
export VENV

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
	@echo
	@echo "variables of up: PORT=8080 LINK_PORT=7443 METRICS_PORT=9091 HOST=127.0.0.1 LLMGW_HOME=.llmgw STARTER=tiny ONCE=1"

.PHONY: up
up: ## install, start everything here, serve a chat on a real engine, stay with a live status
	@deploy/install.sh up
	@$(BIN)/python manage.py up $(if $(ONCE),--once) $(if $(STARTER),--starter $(STARTER)) $(if $(DETACH),--detach)

.PHONY: compiled
compiled: ## compile the inference path for this machine's edges (a minute or two; needs a C compiler)
	@deploy/install.sh compile
	@$(BIN)/python manage.py edge compile

.PHONY: down
down: ## end what `make up DETACH=1` started
	@$(BIN)/python manage.py down

# Where the store matters: these run on PostgreSQL too.
STORE := tests/cluster tests/fleet tests/tenancy tests/catalog $(addprefix tests/gateway/test_,api.py books.py partitions.py publishing.py upgrading.py usage.py verifying.py)

# What passes through the inference path: these run on its compiled form too.
WALK := $(addprefix tests/gateway/,admission cases core ledger reuse) $(filter-out $(STORE),$(wildcard tests/gateway/test_*.py))

.PHONY: test
test: ## install what tests need, run every test on SQLite, those of the path compiled, those of the store on PostgreSQL
	@deploy/install.sh test
	@tests/os-packages.sh
	@$(BIN)/python -m pytest -m "not slow and not e2e"
	@$(BIN)/python -m pytest -m "slow or e2e"
	@LLMGW_TEST_COMPILED=build/compiled $(BIN)/python -m pytest -m "not slow and not e2e" $(WALK)
	@LLMGW_TEST_STORE=postgresql $(BIN)/python -m pytest -m "not slow and not e2e" $(STORE)

.PHONY: quick
quick: ## the tests that take seconds
	@$(BIN)/python -m pytest -m "not slow and not e2e"

.PHONY: lint
lint: ## style, types, import contracts
	@deploy/install.sh test
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy

.PHONY: fmt
fmt: ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: bench
bench: ## measure the gateway against a direct connection, in one run
	@deploy/install.sh test
	@$(BIN)/python -m bench

MINUTES ?= 30
.PHONY: soak
soak: ## mixed load on a real edge for MINUTES (30), and whether anything stays behind
	@deploy/install.sh test
	@$(BIN)/python -m bench.soak --minutes $(MINUTES)

.PHONY: messages
messages: ## take up new strings into locales/ and compile them
	@$(BIN)/python -m llmgw.portal.messages extract
	@$(BIN)/python -m llmgw.portal.messages compile

.PHONY: pins
pins: ## pin requirements/*.in anew, with hashes and without addresses (needs uv)
	@for f in base up compile test; do uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header --no-annotate requirements/$$f.in -o requirements/$$f.txt || exit 1; done
