.DEFAULT_GOAL := help
PYTHON ?= python3
CONFIG ?= configs/quickstart.yaml
VENV := .venv
READY := $(VENV)/.ready
RUN := $(VENV)/bin
BENCH := .venv-bench
BENCH_READY := $(BENCH)/.ready

# Made anew when what is to be installed changes. The packages themselves are used as they stand in this folder.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --upgrade pip
	$(RUN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

.PHONY: help env train tokenize sweep verify report bench test cluster-up cluster-down test-cluster lint types check clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(READY)  ## make the environment in .venv

train: $(READY)  ## job 1: learn a tokenizer; CONFIG=file.yaml, ARGS="--section.setting value"
	$(RUN)/tokenmill train --config $(CONFIG) $(ARGS)

tokenize: $(READY)  ## job 2: write training shards; CONFIG=file.yaml, ARGS="--section.setting value"
	$(RUN)/tokenmill tokenize --config $(CONFIG) $(ARGS) || test $$? -eq 3  # 3: there is nothing to do

sweep: $(READY)  ## compare vocabulary sizes; CONFIG=file.yaml, ARGS="--section.setting value"
	$(RUN)/tokenmill sweep --config $(CONFIG) $(ARGS)

verify: $(READY)  ## check a tokenizer, its corpus and settings; CONFIG=file.yaml, ARGS="--positives word word"
	$(RUN)/tokenmill verify --config $(CONFIG) $(ARGS)

report: $(READY)  ## a page about the tokenizer; CONFIG=file.yaml, ARGS="--section.setting value"
	$(RUN)/tokenmill report --config $(CONFIG) $(ARGS)

# The peers live in an environment of their own.
$(BENCH_READY): pyproject.toml benchmarks/requirements.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --upgrade pip
	$(BENCH)/bin/python -m pip install --quiet --editable . --requirement benchmarks/requirements.txt
	touch $@

bench: $(BENCH_READY)  ## time us beside the peers; CORPUS="files", ARGS="--rounds 5 --sections encode"
	$(BENCH)/bin/python benchmarks/bench.py --corpus $(CORPUS) $(ARGS)

test: $(READY)  ## run the tests; ARGS="-k name"
	$(RUN)/python -m pytest -rs $(ARGS)

cluster-up: $(READY)  ## start Dask, Prism and Flink on this machine, print the flags to run jobs there; ARGS="prism"
	$(RUN)/python tests/support/cluster.py up $(ARGS)

cluster-down: $(READY)  ## stop what cluster-up started
	$(RUN)/python tests/support/cluster.py down

test-cluster: $(READY)  ## run the tests on clusters only; ARGS="-k prism"
	$(RUN)/python -m pytest -rs tests/running/test_cluster.py $(ARGS)

lint: $(READY)
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .

types: $(READY)
	$(RUN)/mypy

check: lint types test  ## lint, types and tests: what CI runs

clean:  ## delete the environment, the outputs of the configs and all caches
	rm -rf $(VENV) $(BENCH) build .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find bpe_core pipelines tests -name __pycache__ -prune -exec rm -rf {} +
