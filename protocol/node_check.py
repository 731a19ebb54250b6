"""What a node says when the doctor asks: standard output of `python -m node.check NAME…`."""

from typing import Annotated, NamedTuple

from protocol.reader import COUNT


class NodeCheck(NamedTuple):
    """What is wrong with a node; lists are empty where nothing is."""

    names: list[str]
    """Problems with the resolution of names."""
    peers: list[str]
    """Problems with reaching other nodes."""
    torch: str
    """Its version; empty where there is none."""
    torch_error: str
    """Why torch cannot be imported; else empty."""
    gpus: Annotated[int, COUNT]
    """How many GPUs torch sees."""
