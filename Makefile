# Every target is a thin alias of a command that you can also type: `make help` shows them.
# Variables: NAME NODES PROFILE TOPOLOGY SEED, as in `make cluster-up NODES=4 PROFILE=wan`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROFILE ?= mobile
NAME_FLAG := $(if $(NAME),--name $(NAME))
FLAGS := $(NAME_FLAG) $(if $(NODES),--nodes $(NODES)) --profile $(PROFILE) \
  $(if $(TOPOLOGY),--topology $(TOPOLOGY)) $(if $(SEED),--seed $(SEED))

# What shaping needs of a container, and what ends a daemon: see docker-compose.yml.
WIRE_CAPABILITIES := NET_ADMIN NET_RAW SYS_NICE SETUID SETGID KILL

.PHONY: help demo prerequisites venv image cluster-up cluster-down cluster-status train logs verify doctor \
  test test-first lint test-unit test-node test-cluster test-links test-netem test-beside conformance clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: venv ## everything, once: three nodes, shaped as mobile, proved, and Fashion-MNIST trained on them
	@$(BIN)/python -m cluster.launch $(FLAGS) --strategy fedavg --set H=20 --steps 120
	@echo "the nodes stay up: make cluster-status, make cluster-down$(if $(NAME), NAME=$(NAME))"

prerequisites: # names at once what is missing, with the command that installs it
	@command -v $(PYTHON) >/dev/null || { echo "missing: $(PYTHON)"; echo "  try: sudo apt-get install python3 python3-venv"; exit 2; } >&2
	@$(PYTHON) cluster/prerequisites.py

venv: prerequisites $(VENV)/ready ## make .venv with what the host side needs

$(VENV)/ready: pyproject.toml
	@echo "making $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

image: venv ## build the node image if anything changed
	@$(BIN)/python -m cluster.image

cluster-up: venv ## bring a cluster up, or to what is asked for, and shape its links
	@$(BIN)/python -m cluster.up $(FLAGS)

cluster-down: venv ## remove the cluster: containers, network, keys
	@$(BIN)/python -m cluster.down $(NAME_FLAG)

cluster-status: venv ## the nodes and their links
	@$(BIN)/python -m cluster.status $(NAME_FLAG)

train: venv ## launch a training on the cluster
	@$(BIN)/python -m cluster.launch $(FLAGS)

logs: venv ## follow what the nodes print
	@$(BIN)/python -m cluster.logs --follow $(NAME_FLAG)

verify: venv ## measure every link against what was asked
	@$(BIN)/python -m cluster.verify $(NAME_FLAG)

doctor: venv ## check everything a run needs
	@$(BIN)/python -m cluster.doctor $(NAME_FLAG)

test: test-first test-beside test-cluster test-links ## all tests

# These want no image, and so need not wait until it is built.
test-first: venv $(VENV)/readers
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=line lint test-unit image

# The guest of test-netem keeps to the last processor; what measures nothing has the others.
OTHER_PROCESSORS = $(shell last=$$(($$(nproc) - 1)); [ $$last -eq 0 ] || echo 0-$$((last - 1)))
test-beside: image
	@echo "test-netem and test-node, side by side: some minutes, and each tells what it found when it is done"
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target test-netem test-node \
	  NODE_TEST_PROCESSORS=$(OTHER_PROCESSORS)

lint: venv ## ruff and mypy
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

test-unit: venv $(VENV)/readers ## pure tests: no Docker, seconds
	@$(BIN)/pytest tests/unit

# TensorBoard itself reads what we write for it. Only tests want it; a demo does without.
$(VENV)/readers: $(VENV)/ready
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[tensorboard]' tensorboard
	@touch $@

test-node: image ## training in real gloo processes, and the wire, inside the image
	@said=$$(docker build --quiet --tag gradwire-node-test tests/node 2>&1) || { echo "$$said" >&2; exit 1; }
	@docker run --rm --init --cap-drop ALL $(addprefix --cap-add ,$(WIRE_CAPABILITIES)) \
	  $(if $(NODE_TEST_PROCESSORS),--cpuset-cpus $(NODE_TEST_PROCESSORS)) \
	  --volume $(CURDIR)/tests/node:/root/tests:ro gradwire-node-test python3 -m pytest -q -p no:cacheprovider tests

test-cluster: venv ## real containers, one obligation a file
	@$(BIN)/pytest tests/cluster

test-links: venv ## links on real containers, measured: the machine should have nothing else to do
	@$(BIN)/pytest tests/links

test-netem: venv ## the whole stack inside user-mode Linux, whose kernel has netem
	@$(BIN)/pytest tests/netem

conformance: image ## every profile on every topology, links of all kinds: asked, expected, measured
	@$(BIN)/python tests/conformance.py

clean: cluster-down ## cluster, virtual environment, caches; runs/ stays
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache *.egg-info
