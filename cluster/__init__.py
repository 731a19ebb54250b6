"""The host side of gradwire: brings clusters up, shapes and proves their links, launches programs on them."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.api import Cluster
    from cluster.base.console import Console
    from cluster.base.errors import ClusterError
    from cluster.launch import load_experiment
    from cluster.run.experiment import Experiment
    from cluster.run.program import training, user_program
    from cluster.run.request import Request
    from protocol.link import Link

__all__ = [
    "Cluster",
    "ClusterError",
    "Console",
    "Experiment",
    "Link",
    "Request",
    "load_experiment",
    "training",
    "user_program",
]

_HOMES = {
    "Cluster": "cluster.api",
    "ClusterError": "cluster.base.errors",
    "Console": "cluster.base.console",
    "Experiment": "cluster.run.experiment",
    "Link": "cluster.links.link",
    "Request": "cluster.run.request",
    "load_experiment": "cluster.launch",
    "training": "cluster.run.program",
    "user_program": "cluster.run.program",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use: `python -m cluster.profiles` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
