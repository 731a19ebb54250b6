"""A node's answer to `cluster.doctor`: standard output of `python -m node.check NAME…`."""

from typing import Annotated, NamedTuple

from protocol.reader import COUNT


class NodeCheck(NamedTuple):
    """Problems of a node; lists are empty if there are none."""

    names: list[str]
    """Problems with name resolution."""
    peers: list[str]
    """Problems with reaching other nodes."""
    torch: str
    """Version of torch; empty if it cannot be imported."""
    torch_error: str
    """Why torch cannot be imported; else empty."""
    gpus: Annotated[int, COUNT]
    """Number of GPUs that torch sees."""
