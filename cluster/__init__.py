"""The host side of gradwire: brings clusters up, shapes and proves their links, launches programs on them.

Each verb, such as `launch`, is a module here; `__main__` lists them. `api` has the main verbs as methods for Python.
Reading order: `base` (errors, names, files, output), `cli` (code that verbs share), `links` (the requested links),
`engine` (Docker), `hosts` (clusters on other machines), `ssh` (reaches the nodes), `shaping` (the links in force),
`lifecycle` (creates, changes, removes clusters), `contract` (measures and judges links), `run` (a launch), `schedule`
(changes during a run), `live` (the view of a run in progress), `accounting` (where bytes and seconds went), `reporting`
(the report of a run), `sweeps` (many runs, ranked), `kubernetes` (a run as a manifest).
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.api import Cluster
    from cluster.base.console import Console
    from cluster.base.errors import ClusterError
    from cluster.contract.verdicts import Contract
    from cluster.launch import load_experiment
    from cluster.links.changes import Change
    from cluster.links.link_spec import LinkSpec, make_link_spec
    from cluster.links.traces import Playback, load_trace
    from cluster.live.live_run import LiveOptions
    from cluster.run.experiment import Experiment
    from cluster.run.program import Program, training, user_program
    from cluster.run.request import Request
    from cluster.run.runner import Run
    from cluster.schedule.events import Event
    from cluster.schedule.schedule_file import load_schedule
    from cluster.shaping.link_state import LinkState
    from protocol.link import Link

__all__ = [
    "Change",
    "Cluster",
    "ClusterError",
    "Console",
    "Contract",
    "Event",
    "Experiment",
    "Link",
    "LinkSpec",
    "LinkState",
    "LiveOptions",
    "Playback",
    "Program",
    "Request",
    "Run",
    "load_experiment",
    "load_schedule",
    "load_trace",
    "make_link_spec",
    "training",
    "user_program",
]

_HOMES = {
    "Change": "cluster.links.changes",
    "Cluster": "cluster.api",
    "ClusterError": "cluster.base.errors",
    "Console": "cluster.base.console",
    "Contract": "cluster.contract.verdicts",
    "Event": "cluster.schedule.events",
    "Experiment": "cluster.run.experiment",
    "Link": "protocol.link",
    "LinkSpec": "cluster.links.link_spec",
    "LinkState": "cluster.shaping.link_state",
    "LiveOptions": "cluster.live.live_run",
    "Playback": "cluster.links.traces",
    "Program": "cluster.run.program",
    "Request": "cluster.run.request",
    "Run": "cluster.run.runner",
    "load_experiment": "cluster.launch",
    "load_schedule": "cluster.schedule.schedule_file",
    "load_trace": "cluster.links.traces",
    "make_link_spec": "cluster.links.link_spec",
    "training": "cluster.run.program",
    "user_program": "cluster.run.program",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use: `python -m cluster.profiles` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
