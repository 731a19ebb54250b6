# Every target is a thin alias of a command that you can also type: `make help` shows them.
# Variables: NAME NODES PROFILE TOPOLOGY SEED, as in `make cluster-up NODES=4 PROFILE=wan`; SEED draws the links.
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

# What shaping needs of a container, and what ends a daemon: see docker-compose.yml.
WIRE_CAPABILITIES := NET_ADMIN NET_RAW SYS_NICE SETUID SETGID KILL

.PHONY: help demo prerequisites venv image cluster-up cluster-down cluster-status train logs verify doctor \
  test test-slow lint test-unit test-pythons test-browser test-node test-cluster test-links test-netem conformance clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: venv ## everything, once: three nodes, shaped as mobile, proved, and Fashion-MNIST trained on them
	@$(BIN)/python -m cluster.launch $(FLAGS) --strategy fedavg --set H=20 --steps 120
	@echo "the nodes stay up: make cluster-status, make cluster-down$(if $(NAME), NAME=$(NAME))"

prerequisites: # names at once what is missing, with the command that installs it
	@command -v $(PYTHON) >/dev/null || { echo "missing: $(PYTHON)"; echo "  try: sudo apt-get install python3 python3-venv"; exit 2; } >&2
	@$(PYTHON) cluster/cli/prerequisites.py

venv: prerequisites $(VENV)/ready ## make .venv with what the host side needs

$(VENV)/ready: pyproject.toml
	@echo "making $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,report]'
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

# Each line is a phase: what it names runs side by side, and tells what it found when it is done.
SIDE_BY_SIDE = $(MAKE) --no-print-directory --jobs 4 --output-sync=target
test: venv $(VENV)/readers ## every obligation, in short
	@echo "1 of 3: lint, unit tests on each Python that is here, the node image"
	@$(SIDE_BY_SIDE) lint test-unit test-pythons image
	@echo "2 of 3: some minutes: netem in a machine of its own, which keeps to the last processor; clusters"
	@$(SIDE_BY_SIDE) test-netem test-cluster
	@echo "3 of 3: some minutes: links, which wait more than they compute; the training and the report inside the image, for which they leave time"
	@$(SIDE_BY_SIDE) test-links test-node test-browser

test-slow: venv ## the long forms, which `make test` leaves out
	@$(SIDE_BY_SIDE) FORM=slow test-netem test-cluster
	@$(MAKE) --no-print-directory FORM=slow test-links

lint: venv ## ruff and mypy
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

test-unit: venv $(VENV)/readers ## pure tests: no Docker, two minutes
	@$(BIN)/pytest tests/unit

# TensorBoard itself reads what we write for it. Only tests want it; a demo does without.
$(VENV)/readers: $(VENV)/ready
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[report,tensorboard]' tensorboard
	@touch $@

# The oldest and the newest Python that a user may have, where this machine has them: tests/pythons.py.
test-pythons: venv ## the unit tests on other Pythons of this machine
	@$(BIN)/python tests/pythons.py

# They take what others leave of the processors, as ranks do: their weight is small.
test-node: image ## training in real gloo processes, and the wire, inside the image
	@image=$$($(BIN)/python -c 'from cluster.base.spec import IMAGE; print(IMAGE)'); \
	  said=$$(docker build --quiet --tag "$$image-test" --build-arg "IMAGE=$$image" tests/node 2>&1) || { echo "$$said" >&2; exit 1; }; \
	  docker run --rm --init --cap-drop ALL $(addprefix --cap-add ,$(WIRE_CAPABILITIES)) --cpu-shares 128 \
	  --volume $(CURDIR)/tests/node:/root/tests:ro "$$image-test" python3 -m pytest -q -ra -p no:cacheprovider tests

# Reports are written here and looked at there: no browser of this machine's, and no network.
test-browser: image ## reports in a headless browser
	@reports=$$(mktemp -d) && trap 'rm -rf "$$reports"' EXIT && chmod 755 "$$reports"; \
	  $(BIN)/python tests/browser/make_reports.py "$$reports" >/dev/null; \
	  image=$$($(BIN)/python -c 'from cluster.base.spec import IMAGE; print(IMAGE)'); \
	  said=$$(docker build --quiet --tag "$$image-browser" --build-arg "IMAGE=$$image" tests/browser 2>&1) || { echo "$$said" >&2; exit 1; }; \
	  docker run --rm --init --network none --cap-drop ALL --cpu-shares 128 --shm-size 256m --env GRADWIRE_REPORTS=/reports \
	  --volume "$$reports:/reports:ro" --volume $(CURDIR)/tests/browser:/root/tests:ro "$$image-browser" \
	  python3 -m pytest -q -ra -p no:cacheprovider /root/tests

# Of tests on real parts: all but those marked slow; `slow`, these alone; `slow or not slow`, all.
FORM ?= not slow

# Clusters wait more than they compute: two at a time, each on nodes of its own; AT_A_TIME=0 is one after the other.
AT_A_TIME ?= 2
SPREAD := --numprocesses $(AT_A_TIME) --dist loadfile

test-cluster: image ## real containers, one obligation a file
	@$(BIN)/pytest -m "$(FORM)" $(SPREAD) tests/cluster

test-links: image ## links on real containers, measured
	@$(BIN)/pytest -m "$(FORM)" $(SPREAD) tests/links

test-netem: image ## the whole stack inside user-mode Linux, whose kernel has netem
	@$(BIN)/pytest -m "$(FORM)" tests/netem

conformance: image ## every profile on every topology, links of all kinds: asked, expected, measured
	@$(BIN)/python tests/conformance.py

clean: cluster-down ## cluster, virtual environment, caches; runs/ stays
	@rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache *.egg-info
