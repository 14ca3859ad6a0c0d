.DEFAULT_GOAL := help
PYTHON ?= python3
CONFIG ?= configs/quickstart.yaml
VENV := .venv
READY := $(VENV)/.ready
RUN := $(VENV)/bin
BENCH := .venv-bench
BENCH_READY := $(BENCH)/.ready
BENCH_1 := .venv-bench-1
BENCH_1_READY := $(BENCH_1)/.ready

# Rebuilt when the dependencies change. The packages are installed in editable mode: they run from this folder.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --upgrade pip
	$(RUN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

.PHONY: help env train tokenize sweep verify report bench bench-new test test-all test-cluster cluster-up cluster-down lint types \
	check clean

help:  ## list all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(READY)  ## create the environment in .venv

train: $(READY)  ## job 1: learn a tokenizer; CONFIG=file.yaml, ARGS="--section.setting value"
	$(RUN)/tokenmill train --config $(CONFIG) $(ARGS)

tokenize: $(READY)  ## job 2: write training shards; CONFIG=file.yaml, ARGS="--section.setting value"
	$(RUN)/tokenmill tokenize --config $(CONFIG) $(ARGS) || test $$? -eq 3  # 3: nothing to do

sweep: $(READY)  ## compare vocabulary sizes; CONFIG=file.yaml, ARGS="--section.setting value"
	$(RUN)/tokenmill sweep --config $(CONFIG) $(ARGS)

verify: $(READY)  ## check a tokenizer, its corpus and settings; CONFIG=file.yaml, ARGS="--positives word word"
	$(RUN)/tokenmill verify --config $(CONFIG) $(ARGS)

report: $(READY)  ## write an HTML report about the tokenizer; CONFIG=file.yaml, ARGS="--section.setting value"
	$(RUN)/tokenmill report --config $(CONFIG) $(ARGS)

# The other libraries are installed in a separate environment.
$(BENCH_READY): pyproject.toml benchmarks/requirements.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --upgrade pip
	$(BENCH)/bin/python -m pip install --quiet --editable . --requirement benchmarks/requirements.txt
	touch $@

# Version 1.0 of tokenizers cannot be in one environment with the version that the other benchmarks use.
$(BENCH_1_READY): Makefile
	$(PYTHON) -m venv $(BENCH_1)
	$(BENCH_1)/bin/python -m pip install --quiet --pre 'tokenizers>=1.0.0rc3' numpy pyarrow
	touch $@

bench-new: $(BENCH_READY) $(BENCH_1_READY)  ## time text not seen before; CORPUS="files" (lang, text), ARGS="--groups en zh+ja"
	$(BENCH)/bin/python benchmarks/new_text.py --corpus $(CORPUS) --tokenizers-1-python $(BENCH_1)/bin/python $(ARGS)

bench: $(BENCH_READY)  ## time tokenmill and other libraries; CORPUS="files", ARGS="--rounds 5 --sections encode"
	$(BENCH)/bin/python benchmarks/bench.py --corpus $(CORPUS) $(ARGS)

test: $(READY)  ## run the fast tests and the doctests; ARGS="-k name"
	$(RUN)/python -m pytest -rs -m "not slow" $(ARGS)

test-all: $(READY)  ## run all tests, also on clusters, an object store and in a browser; ARGS="-k name"
	$(RUN)/python -m pytest -rs $(ARGS)

cluster-up: $(READY)  ## start Dask, Prism and Flink on this machine and print the flags to use them; ARGS="prism"
	$(RUN)/python tests/support/cluster.py up $(ARGS)

cluster-down: $(READY)  ## stop the processes that cluster-up started
	$(RUN)/python tests/support/cluster.py down

test-cluster: $(READY)  ## run only the tests on clusters; ARGS="-k prism"
	$(RUN)/python -m pytest -rs tests/running/test_cluster.py $(ARGS)

lint: $(READY)  ## check format, style and docstrings
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .

types: $(READY)  ## check types
	$(RUN)/mypy

check: lint types test-all  ## everything that CI runs: lint, types, all tests

clean:  ## delete the environments, build/ and all caches
	rm -rf $(VENV) $(BENCH) .venv-other build .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find bpe_core pipelines tests -name __pycache__ -prune -exec rm -rf {} +
