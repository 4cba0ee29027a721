# QCCL's commands. `make help` lists them; each does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
ARGS ?=
PROGRAMS ?= 10000
VENV_PYTHON := .venv/bin/python

.PHONY: help build build-tests demo test test-torch test-integration lint asan tsan fuzz mutants soak chaos bench
.PHONY: gpu clean setup wheel test-wheel docs

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile
	@echo
	@echo '  make demo ARGS="--quick"    the demo in about a minute; ARGS="--device cuda" on GPUs; ARGS="--help" lists all'
	@echo '  make test ARGS="Frame"      only tests whose name contains Frame (also asan, tsan; bench: programs)'
	@echo '  make test-torch TORCH=2.15.0     all tests with that release of torch (up to 6 GB)'
	@echo '  PYTHON=python3.13 make test-torch TORCH=2.15.0   the same with that Python (also test-wheel)'
	@echo '  make fuzz ARGS="-runs=1000000"   libFuzzer flags in place of a minute; FUZZ=NAME one target'
	@echo '  make soak PROGRAMS=100000   so many programs; CHAOS_SECONDS=3600 make chaos   so long over each transport'
	@echo '  make mutants ARGS="--count 20 src/wire"    20 changes in that folder; ARGS="--help" lists the options'
	@echo '  make gpu ARGS="--first-contact"   with what scripts/pack_gpu.sh packed elsewhere; installs nothing'
	@echo '  QCCL_VENV=DIR make demo     with the torch of that environment (also gpu): docs/gpu.md'
	@echo '  JOBS=2 make ...             compile and test with so many processes (default: all cores)'

# What every command needs, once: packages by apt-get, Python in .venv. Milliseconds when it is there.
setup:
	@scripts/install_packages.sh
	@scripts/install_python.sh

build/build.ninja: CMakePresets.json scripts/packages.txt requirements.txt $(wildcard .venv-cuda/installed) | setup
	@cmake --preset default
	@touch $@

build: setup build/build.ninja ## Build library, program (build/qccl), examples and Python package
	@JOBS=$(JOBS) scripts/build_python.sh all

build-tests: setup build/build.ninja
	@JOBS=$(JOBS) scripts/build_python.sh all qccl_tests qccl_benchmarks

wheel: setup ## Build a wheel for torch 2.11 to 2.15 in dist/ (fetches 2.6 GB once; ARGS: pythons to build for)
	@JOBS=$(JOBS) scripts/build_wheel.sh $(ARGS)

test-wheel: setup ## Test the wheel of `make wheel` with torch 2.11, 2.13 and 2.15 (ARGS: other releases), 3 GB each
	@scripts/test_wheel.sh $(ARGS)

demo: setup build/build.ninja ## Train a small GPT on 4 ranks, uncompressed and compressed; table and plot
	@JOBS=$(JOBS) scripts/build_python.sh qccl_program
	@$(or $(QCCL_VENV),.venv)/bin/python demo/demo.py $(ARGS)

test: setup ## Lint, build, all tests (about 10 minutes); CI runs this and test-torch
	@JOBS=$(JOBS) $(VENV_PYTHON) scripts/run_tests.py $(ARGS)

test-torch: build ## PyTorch's own tests of a backend, in every configuration (about 10 minutes at most)
	@$(if $(TORCH),,JOBS=$(JOBS) scripts/build_python.sh qccl_fake_device)
	@$(if $(TORCH),,$(VENV_PYTHON) tests/torch/suite/run.py $(or $(ARGS),--all))
	@$(if $(TORCH),scripts/test_torch_release.sh $(TORCH) $(ARGS))

test-integration: setup build/build.ninja ## DeepSpeed, Megatron, Accelerate, Ray and others themselves (ARGS: pytest's)
	@JOBS=$(JOBS) scripts/run_integration.sh $(ARGS)

docs: setup ## Build the site of all pages and of the C++ and Python reference: build/site/index.html
	@scripts/build_site.sh

lint: setup ## Check layers, kept absences, sizes and formatting
	@scripts/lint.sh

asan: setup ## Run the C++ tests under address and undefined-behaviour sanitizers
	@scripts/run_sanitizer.sh asan $(ARGS)

tsan: setup ## Run the C++ tests under the thread sanitizer
	@scripts/run_sanitizer.sh tsan $(ARGS)

fuzz: setup ## Feed decoders and parsers what clang's libFuzzer makes up, a minute each
	@scripts/run_fuzz.sh $(ARGS)

mutants: setup ## Change 100 operators, constants and conditions, one at a time; list what no test notices (hours)
	@JOBS=$(JOBS) $(VENV_PYTHON) scripts/mutants.py $(ARGS)

soak: build-tests ## Run 10,000 random programs of mixed operations and of faults, 200 kills in each phase (hours)
	@RANDOM_PROGRAMS=$(PROGRAMS) build/tests/qccl_test_threads --gtest_filter='*RandomPrograms*'
	@REPEAT_PROGRAMS=$(PROGRAMS) SHRINK_PROGRAMS=$(PROGRAMS) build/tests/qccl_test_sim \
	  --gtest_filter='Repeat.*:ShrinkProgram.*'
	@KILLS=200 build/tests/qccl_test_faults --gtest_filter='*Kills*'

chaos: build-tests ## Kill and stop ranks of a job every second for 5 minutes, while new ones come; check every result
	@CHAOS_SECONDS=$(or $(CHAOS_SECONDS),150) build/tests/qccl_test_chaos

bench: setup build/build.ninja ## Build all benchmarks and run the small ones; results stay in build/bench
	@JOBS=$(JOBS) scripts/build_python.sh all qccl_benchmarks
	@scripts/run_benchmarks.sh $(ARGS)

# Its --first-contact installs and builds nothing.
GPU_SETUP := $(if $(findstring --first-contact,$(ARGS)),,setup)
gpu: $(GPU_SETUP) ## On a machine with a GPU: compare bytes with the host's, measure, in ten minutes (docs/gpu-check.md)
	@$(if $(GPU_SETUP),$(VENV_PYTHON),python3) scripts/run_gpu.py $(ARGS)

clean: ## Remove everything that was built (.venv* and .torch-headers stay: rm -r)
	rm -rf build build-* dist python/qccl/torch_* .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
