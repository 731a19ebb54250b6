"""What `apply` must remember: the plan in force, and the settings from before.

If this file and the kernel disagree, the kernel is right.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

from node.wire.commands import Device
from node.wire.layout import Layout
from node.wire.segmentation import Offloads
from protocol.link_report import LinkReport
from protocol.node_plan import read_plan
from protocol.places import STATE_FOLDER
from protocol.reader import document, read

FOLDER = Path(STATE_FOLDER)
FILE = FOLDER / "wire.json"


class State(NamedTuple):
    """A plan in force."""

    report: LinkReport
    layout: Layout
    wire: str
    offloads: Offloads
    """The device's offloads before the first `apply`."""
    laying: str
    """An id that is new each time that the links are laid, or traces begin to change them."""


def new_laying() -> str:
    """Return an id that no laying had before."""
    return os.urandom(8).hex()


def save(state: State) -> None:
    """Write the file atomically."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    draft = FILE.with_suffix(".new")
    draft.write_text(
        json.dumps(
            {
                "plan": document(state.layout.plan),
                "report": document(state.report),
                "device": state.layout.device,
                "slots": state.layout.slots,
                "changes": state.layout.changes,
                "wire": state.wire,
                "offloads": state.offloads,
                "laying": state.laying,
            }
        )
    )
    draft.replace(FILE)


def load() -> State | None:
    """Read the file; None if there is none, or if this version of the code cannot read it."""
    if not FILE.exists():
        return None
    try:
        fields = json.loads(FILE.read_text())
        device, changes = Device(*fields["device"]), int(fields["changes"])
        layout = Layout(read_plan(fields["plan"]), device, fields["slots"], changes)
        report = read(LinkReport, fields["report"])
        offloads = Offloads(*fields["offloads"])
        return State(report, layout, fields["wire"], offloads, str(fields["laying"]))
    except (KeyError, TypeError, ValueError):
        return None


def forget() -> None:
    """Remove the file."""
    FILE.unlink(missing_ok=True)
