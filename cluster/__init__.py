"""gradwire's host side: brings clusters up, shapes and proves their links, launches programs on them."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.console import Console
    from cluster.errors import ClusterError
    from cluster.links import Link
    from cluster.program import training, user_program
    from cluster.testbed import Cluster

__all__ = ["Cluster", "ClusterError", "Console", "Link", "training", "user_program"]

_HOMES = {
    "Cluster": "cluster.testbed",
    "ClusterError": "cluster.errors",
    "Console": "cluster.console",
    "Link": "cluster.links",
    "training": "cluster.program",
    "user_program": "cluster.program",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for: `python -m cluster.profiles` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
