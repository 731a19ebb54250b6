"""A few seeded faults; tests/chaos.py plays two hundred, and docs/chaos.md lists the guarantees after each."""

import os

import pytest
from chaos_plan import Fault, plan_faults
from chaos_play import Stage
from containers import PREFIX

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("E2E_CHAOS_SEED", "1"))
# Faults that end soon, each of another kind and in another phase.
PLAYED = {
    "command killed": "up anew",
    "node killed": "verify",
    "node paused": "verify",
    "node removed": "launch starting",
    "rank killed": "launch running",
    "disk full": "shape",
}


def short_plan() -> list[Fault]:
    """Return the first fault of each kind in its phase."""
    plan = plan_faults(1000, SEED, list(PLAYED))
    return [
        next(fault for fault in plan if (fault.kind, fault.phase) == pair)
        for pair in PLAYED.items()
    ]


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    stage = Stage(PREFIX + "chaos", tmp_path_factory.mktemp("chaos"))
    yield stage
    stage.close()


@pytest.mark.parametrize("fault", short_plan(), ids=lambda fault: f"{fault.kind}, {fault.phase}")
def test_what_is_owed_after_a_fault_is_given(stage, fault):
    played = stage.play(fault)
    assert not played.violations, "\n".join(played.violations)
