# Two commands matter: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# two workers, in the order and the groups of tests/spread.py; at the end, what took longest
SPREAD := -n 2 --durations=20

.PHONY: setup demo serve test s3-ahead test-long lint stubs stubs-check docs bench figures cluster-demo test-faults test-poison soak clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing packages into $(VENV) (the first time takes about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@echo "compiling kernels"
	@$(BIN)/python -m runtime.machine.warm
	@touch $(STAMP)

demo: setup
	@$(BIN)/ajoin demo

cluster-demo: setup
	@$(BIN)/ajoin cluster-demo

serve: setup
	@$(BIN)/ajoin serve --demo-streams

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint proto

stubs: setup
	$(BIN)/python -m tests.tools.stubs --write
	$(BIN)/python -m tests.tools.sync_client --write

stubs-check: setup
	$(BIN)/python -m tests.tools.stubs --check
	$(BIN)/python -m tests.tools.sync_client --check

# the S3 server of some tests is built the first time, which takes minutes: from here on in the background
s3-ahead: setup
	@$(BIN)/python -m tests.tools.minio --ahead

test: s3-ahead lint stubs-check
	$(BIN)/python -m pytest -m "not long" $(SPREAD)

test-long: setup
	$(BIN)/python -m pytest --durations=20

# random lives with kills at random crash points; a failing seed says how to repeat it
test-faults: setup
	$(BIN)/python -m tests.faults --seeds $(or $(SEEDS),200)

# random lives with hostile queries, tuples, sinks and clients, on Spark; a failing seed says how to repeat it
test-poison: setup
	$(BIN)/python -m tests.poison --seeds $(or $(SEEDS),100)

# steady load and query churn; memory, files and epoch times must stay flat
soak: setup
	$(BIN)/python -m experiments.soak --minutes $(or $(MINUTES),30)

docs: setup
	$(BIN)/python -m tests.tools.docs --write

# results are kept, so an interrupted run goes on; docs/results is written from them
bench: setup
	$(BIN)/python -m experiments run all --quick
	$(BIN)/python -m experiments report

# everything at full length: many hours, on a machine that does nothing else
figures: setup
	$(BIN)/python -m experiments run all
	$(BIN)/python -m experiments report

clean:
	rm -rf $(VENV) .ajoin .mypy_cache .ruff_cache .pytest_cache .hypothesis
