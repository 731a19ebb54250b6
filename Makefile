# Every target is a thin alias of a command that you can also type; `make help` lists them.
# Variables: NAME NODES PROFILE TOPOLOGY SEED, e.g. `make cluster-up NODES=4 PROFILE=wan` (PROFILE: mobile); the links are
# drawn from SEED.
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
  $(if $(TOPOLOGY),--topology $(TOPOLOGY)) $(if $(SEED),--link-seed $(SEED))

# Capabilities for shaping, and for ending a daemon: see docker-compose.yml.
WIRE_CAPABILITIES := NET_ADMIN NET_RAW SYS_NICE SETUID SETGID KILL

.PHONY: help demo prerequisites venv image cluster-up cluster-down cluster-status train logs verify doctor \
  test test-all test-nightly lint test-unit test-pythons test-browser test-node test-cluster test-links test-netem conformance clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: venv ## bring up three nodes with mobile links, measure the links, train Fashion-MNIST
	@$(BIN)/python -m cluster.launch $(FLAGS) --strategy fedavg --set H=20 --steps 120
	@echo "the nodes stay up: make cluster-status, make cluster-down$(if $(NAME), NAME=$(NAME))"

prerequisites: # reports everything that is missing, with the commands that install it
	@command -v $(PYTHON) >/dev/null || { echo "missing: $(PYTHON)"; echo "  try: sudo apt-get install python3 python3-venv"; exit 2; } >&2
	@$(PYTHON) cluster/cli/prerequisites.py

venv: prerequisites $(VENV)/ready ## create .venv with the packages of the host side

$(VENV)/ready: pyproject.toml
	@echo "making $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,report]'
	@touch $@

image: venv ## build the node image, if anything changed
	@$(BIN)/python -m cluster.image

cluster-up: venv ## bring up a cluster, or change it to match the variables, and shape its links
	@$(BIN)/python -m cluster.up $(FLAGS)

cluster-down: venv ## remove the cluster: containers, network, keys
	@$(BIN)/python -m cluster.down $(NAME_FLAG)

cluster-status: venv ## show the nodes and their links
	@$(BIN)/python -m cluster.status $(NAME_FLAG)

train: venv ## launch a training on the cluster
	@$(BIN)/python -m cluster.launch $(FLAGS)

logs: venv ## follow the logs of all nodes
	@$(BIN)/python -m cluster.logs --follow $(NAME_FLAG)

verify: venv ## measure every link and compare it with what was asked for
	@$(BIN)/python -m cluster.verify $(NAME_FLAG)

doctor: venv ## check everything a run needs
	@$(BIN)/python -m cluster.doctor $(NAME_FLAG)

# Which tests, as pytest's marker expression: those without a mark by default, all by FORM="".
FORM ?= not slow and not nightly
test-all: FORM = not nightly
test-nightly: FORM = nightly

# Each $(SIDE_BY_SIDE) line is a phase: its targets run in parallel, and each prints its output when it is done.
SIDE_BY_SIDE = $(MAKE) --no-print-directory --jobs 4 --output-sync=target FORM="$(FORM)"
test: ## run all tests in their short form
test-all: ## run the slow tests as well, and unit tests on other Pythons: what CI runs
test-all: OTHER_PYTHONS = test-pythons
test test-all: venv $(VENV)/readers
	@echo "1 of 3: lint, unit tests, the node image"
	@$(SIDE_BY_SIDE) lint test-unit $(OTHER_PYTHONS) image
	@echo "2 of 3, some minutes: clusters; netem in a virtual machine, pinned to the last processor"
	@$(SIDE_BY_SIDE) test-netem test-cluster
	@echo "3 of 3, some minutes: links, which mostly wait; meanwhile training and reports inside the image"
	@$(SIDE_BY_SIDE) test-links test-node test-browser

test-nightly: venv ## run the tests of many minutes, which both leave out
	@$(SIDE_BY_SIDE) test-netem test-cluster
	@$(SIDE_BY_SIDE) test-links

lint: venv ## run ruff and mypy
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# Hundreds of short processes import our modules: without bytecode each would compile them anew.
test-unit test-pythons: export PYTHONDONTWRITEBYTECODE :=

test-unit: venv $(VENV)/readers ## run the unit tests: no Docker, two minutes
	@$(BIN)/pytest $(SPREAD) tests/unit

# TensorBoard reads our event files in a test. Only tests need it, so the demo does not install it.
$(VENV)/readers: $(VENV)/ready
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[report,tensorboard]' tensorboard
	@touch $@

# The oldest and the newest supported Python, if this machine has them: tests/pythons.py.
test-pythons: venv ## run the unit tests on other Pythons of this machine
	@$(BIN)/python tests/pythons.py

# Low CPU shares: like ranks, these tests take the processor time that others leave.
test-node: image ## test training with real gloo processes, and the wire, inside the image
	@image=$$($(BIN)/python -c 'from cluster.base.spec import IMAGE; print(IMAGE)'); \
	  said=$$(docker build --quiet --tag "$$image-test" --build-arg "IMAGE=$$image" tests/node 2>&1) || { echo "$$said" >&2; exit 1; }; \
	  docker run --rm --init --cap-drop ALL $(addprefix --cap-add ,$(WIRE_CAPABILITIES)) --cpu-shares 128 \
	  --volume $(CURDIR)/tests/node:/root/tests:ro "$$image-test" python3 -m pytest -q -ra -p no:cacheprovider -m "$(FORM)" tests

# Reports are written on the host and opened in a container, without a network.
test-browser: image ## test reports in a headless browser
	@reports=$$(mktemp -d) && trap 'rm -rf "$$reports"' EXIT && chmod 755 "$$reports"; \
	  $(BIN)/python tests/browser/make_reports.py "$$reports" >/dev/null; \
	  image=$$($(BIN)/python -c 'from cluster.base.spec import IMAGE; print(IMAGE)'); \
	  said=$$(docker build --quiet --tag "$$image-browser" --build-arg "IMAGE=$$image" tests/browser 2>&1) || { echo "$$said" >&2; exit 1; }; \
	  docker run --rm --init --network none --cap-drop ALL --cpu-shares 128 --shm-size 256m --env GRADWIRE_REPORTS=/reports \
	  --volume "$$reports:/reports:ro" --volume $(CURDIR)/tests/browser:/root/tests:ro "$$image-browser" \
	  python3 -m pytest -q -ra -p no:cacheprovider /root/tests

# Two files at a time: tests on clusters mostly wait, each on its own nodes. AT_A_TIME=0 runs all one after the other.
AT_A_TIME ?= 2
SPREAD := --numprocesses $(AT_A_TIME) --dist loadfile

test-cluster: image ## test real containers, one subject per file
	@$(BIN)/pytest -m "$(FORM)" $(SPREAD) tests/cluster

test-links: image ## measure links between real containers
	@$(BIN)/pytest -m "$(FORM)" $(SPREAD) tests/links

test-netem: image ## test the whole stack inside user-mode Linux, whose kernel has netem
	@$(BIN)/pytest -m "$(FORM)" tests/netem

conformance: image ## measure every profile on every topology: asked, expected, measured
	@$(BIN)/python tests/conformance.py

clean: cluster-down ## remove the cluster, the virtual environment and caches; runs/ stays
	@rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache *.egg-info
