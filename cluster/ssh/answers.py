"""Validates answers of nodes: JSON objects, which may be hostile, as users' code runs there as root."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from cluster.base.errors import NodeError, UsageError, shown
from protocol.reader import read

T = TypeVar("T")

HINT = (
    "python -m cluster.up brings nodes to this version; python -m cluster.logs shows what they said"
)


def parse_answer(node: str, text: bytes | str) -> dict[str, object]:
    """A node's answer.

    Raises:
        NodeError: it is no JSON object.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _not_understood(node, f"it said {shown(text)}")
    return answer


def read_answer(kind: type[T], node: str, text: bytes | str) -> T:
    """A node's answer, as one of the types of `protocol`.

    Raises:
        NodeError: it is no JSON, or not of this type; the message names the key.
    """
    answer = parse_answer(node, text)
    with understood(node):
        return read(kind, answer)


@contextmanager
def understood(node: str) -> Iterator[None]:
    """Read an answer: where something is missing in it, or of another kind, that is the node's.

    Raises:
        NodeError: names the node.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise _not_understood(node, shown(str(error))) from error


def _not_understood(node: str, words: str) -> NodeError:
    return NodeError("an answer cannot be understood", {node: words}, HINT)
