"""What `apply` has to remember: what is in force, and how it was before us.

Where this file and the kernel disagree, the kernel is believed.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from node.wire.offload import Offloads
from node.wire.plan import plan_of
from node.wire.shape import Shape
from node.wire.system import Device

FOLDER = Path("/run/gradwire")
FILE = FOLDER / "wire.json"


class State(NamedTuple):
    """A plan in force."""

    report: dict[str, Any]
    shape: Shape
    wire: str
    offloads: Offloads
    """As they were before the first `apply`."""


def save(state: State) -> None:
    """Write the file whole or not at all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    draft = FILE.with_suffix(".new")
    draft.write_text(
        json.dumps(
            {
                "plan": state.shape.plan.document(),
                "report": state.report,
                "device": state.shape.device,
                "slots": state.shape.slots,
                "wire": state.wire,
                "offloads": state.offloads,
            }
        )
    )
    draft.replace(FILE)


def load() -> State | None:
    """Read the file; None if there is none, or none that this version of the code can read."""
    if not FILE.exists():
        return None
    try:
        fields = json.loads(FILE.read_text())
        shape = Shape(plan_of(fields["plan"]), Device(*fields["device"]), fields["slots"])
        return State(fields["report"], shape, fields["wire"], fields["offloads"])
    except (KeyError, TypeError, ValueError):
        return None


def forget() -> None:
    """Remove the file."""
    FILE.unlink(missing_ok=True)
