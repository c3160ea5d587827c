# Everything starts here. Needs Python 3.11 or newer (with venv and pip) and make; the rest is installed into .venv and
# node_modules by the first target that needs it. `make help` lists the targets.

VENV ?= .venv
# The virtual environment's own `python3` must not be what makes it: it is looked for on the caller's PATH.
CALLER_PATH := $(PATH)
export PATH := $(abspath $(VENV))/bin:$(abspath node_modules)/.bin:$(PATH)
# Nothing is sent anywhere by the tools.
export CDK_DISABLE_CLI_TELEMETRY := 1
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION := 1

CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11 python
SUPPORTED := import sys; sys.exit(sys.version_info < (3, 11))
ifeq ($(origin PYTHON),undefined)
FOUND := $(shell PATH="$(CALLER_PATH)"; for p in $(CANDIDATES); do \
	if "$$p" -c '$(SUPPORTED)' >/dev/null 2>&1; then command -v "$$p"; break; fi; done)
PINNED :=
else
FOUND := $(shell PATH="$(CALLER_PATH)"; if "$(PYTHON)" -c '$(SUPPORTED)' >/dev/null 2>&1; then command -v "$(PYTHON)"; fi)
PINNED := --pinned-python
endif

PATHS := $(wildcard benchmarks constructs_lib lambda_src examples tests tools app.py hatch_build.py)

# `make check` runs one file of tests in 15.
FILES ?= 15

.DEFAULT_GOAL := help
.PHONY: help python setup demo demo-wallet demo-migration gallery test prove check lint types format synth up down deploy docs wheel spec-full samples simulate parity soak browser bench verify-aws lock clean clean-all

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

python:
ifeq ($(FOUND),)
	@echo 'error: $(if $(PYTHON),PYTHON=$(PYTHON) is not Python 3.11 or newer,no python3 on the PATH is 3.11 or newer);' \
		'install one, or set PYTHON=/path/to/python3.11' >&2; exit 1
endif

setup: python ## install what the other targets need (they call it themselves)
	@"$(FOUND)" tools/setup.py --venv "$(VENV)" $(PINNED)

demo: setup ## move money on local AWS: hundreds of transfers, duplicates and crashes
	@python -m examples.funds_transfer.demo

demo-wallet: setup ## four faces and Stripe move a wallet's money on local AWS, answered at once (SEED=n repeats)
	@python -m examples.wallet.demo $(if $(SEED),--seed $(SEED))

demo-migration: setup ## split a wallet's records while payments run and everything crashes (SEED=n repeats); build/migration-report.html
	@python -m examples.wallet.migration_demo $(if $(SEED),--seed $(SEED))

gallery: demo demo-wallet demo-migration ## all demos, one after another

test: setup ## lint, types, all tests, and 20,000 simulated sagas
	@python tools/run_checks.py

prove: setup ## the proofs behind the tests: every call broken, every condition removed, every order, the models, a soak
	@python tools/run_checks.py --proofs

check: setup ## lint, types, and one file in 15 of the fast tests, drawn in each run (FILES=all: every one)
	@python tools/run_checks.py --fast $(FILES)

lint: setup ## ruff: rules and format; layers of the rooms; plain English
	@ruff check $(PATHS)
	@ruff format --check --quiet $(PATHS) || { echo 'error: run `make format`' >&2; exit 1; }
	@lint-imports
	@python tools/plain_english.py --check

types: setup ## mypy --strict
	@mypy

format: setup ## let ruff fix what it can
	@ruff check --fix-only --quiet $(PATHS)
	@ruff format $(PATHS)

synth: setup ## write the reference app's templates to cdk.out
	@cdk synth --quiet

up: synth ## start local AWS with every stack of app.py, and leave it running (addresses in build/local.json)
	@cdk-sagas local up

down: setup ## stop local AWS
	@cdk-sagas local down

deploy: setup ## deploy a stack to AWS with your own credentials: make deploy STACK=name (APPROVAL=never in a pipeline)
	@test -n "$(STACK)" || { echo 'error: no stack named; run `make deploy STACK=name`; the names are in app.py' >&2; exit 1; }
	@cdk deploy "$(STACK)" $(if $(APPROVAL),--require-approval $(APPROVAL))

docs: setup ## build the documentation site into build/site (mkdocs serve: while you write)
	@NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	@echo build/site/index.html

wheel: python ## build wheel and source distribution into dist/ (needs neither Node nor the other targets' packages)
	@"$(FOUND)" tools/setup.py --venv build/venv $(PINNED) --build-only
	@$(if $(CDK_SAGAS_REPOSITORY),CDK_SAGAS_REPOSITORY="$(CDK_SAGAS_REPOSITORY)") build/venv/bin/python -m build --no-isolation --wheel --sdist --outdir dist . >build/wheel.log 2>&1 || { tail -20 build/wheel.log >&2; exit 1; }
	@ls -l dist

spec-full: setup ## check the specification in its large configurations (some minutes)
	@CDK_SAGAS_SPECIFICATION=full python -m pytest tests/specification

samples: setup ## every case of which the tests draw a sample in each run: all calls of the examples (an hour)
	@CDK_SAGAS_SAMPLE=all python -m pytest tests/simulator/test_each_call.py tests/simulator/test_inline.py \
		tests/unit/packages/test_pydantic.py \
		tests/constructs/saga/test_every_rule.py tests/constructs/saga/test_changed_in_flight.py \
		tests/local/test_proven_examples.py tests/local/test_reconciler.py tests/local/test_recovery.py \
		tests/local/test_redrive.py

simulate: setup ## sagas under random faults, in virtual time (SAGAS=n SEED=s EXAMPLES="names"); build/simulation-report.json
ifneq ($(REVERTED),)
	@python -m tests.simulator.reverted $(REVERTED) $(if $(SEED),--seed $(SEED)) $(if $(SHRINK),--shrink)
else
	@python -m tests.simulator $(if $(SAGAS),--sagas $(SAGAS)) $(if $(SEED),--seed $(SEED)) $(if $(EXAMPLES),--examples $(EXAMPLES)) $(if $(RECORD),--record)
endif

parity: setup ## compare the fake DynamoDB with DynamoDB Local (Java 17; Maven fetches it): unit tests, limits, drawn requests
	@python -m tests.parity $(TESTS)

verify-aws: setup ## check claims about AWS in a real account; shows the cost and asks (ACCOUNT=id confirms, DESTROY=1 only deletes)
	@python -m tests.on_aws $(if $(ACCOUNT),--account $(ACCOUNT)) $(if $(DESTROY),--destroy)

soak: setup ## sagas of all examples for 10 minutes while everything fails (SEED=n repeats); build/soak-report.html
	@python -m tests.soak $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS))

browser: setup ## look at the approval page, reports and site in Chromium (Debian's package); pictures in build/browser (TESTS=files)
	@python -m tests.browser $(TESTS)

bench: setup ## measure; results in build/benchmarks (docs/benchmarks.md says what they mean)
	@python -m benchmarks.gatekeeper
	@python -m benchmarks.direct
	@python -m benchmarks.hot_accounts
	@python -m benchmarks.transfers
	@python -m benchmarks.transfer_calls
	@python -m benchmarks.callbacks
	@python -m benchmarks.reconciler
	@python -m benchmarks.reconciler_open
	@python -m benchmarks.synth

lock: setup ## resolve the locks anew (requirements/*.txt, package-lock.json)
	@for name in bundle build dev durable paddle; do \
		uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
			--no-emit-find-links --custom-compile-command 'make lock' \
			requirements/$$name.in --output-file requirements/$$name.txt || exit 1; \
	done
	@npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund
	@python tools/strip_lock.py package-lock.json

clean: ## stop local AWS and remove what was generated
	@test ! -f build/local.json || cdk-sagas local down
	@rm -rf build dist cdk.out constructs_lib/_bundle __pycache__ .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find constructs_lib lambda_src examples tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

clean-all: clean ## remove what was installed too
	@rm -rf "$(VENV)" node_modules
