"""Validates the nodes' JSON answers, which may be hostile because users' code runs there as root."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from cluster.base.errors import NodeError, UsageError, shown
from protocol.reader import read

T = TypeVar("T")

HINT = "bring nodes to this version: python -m cluster.up; read their logs: python -m cluster.logs"


def parse_answer(node: str, text: bytes | str) -> dict[str, object]:
    """Parse a node's answer.

    Raises:
        NodeError: it is not a JSON object.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _not_understood(node, f"it said {shown(text)}")
    return answer


def read_answer(kind: type[T], node: str, text: bytes | str) -> T:
    """Parse a node's answer as one of the types of `protocol`.

    Raises:
        NodeError: it is not JSON, or not of this type; the message names the key.
    """
    answer = parse_answer(node, text)
    with understood(node):
        return read(kind, answer)


@contextmanager
def understood(node: str) -> Iterator[None]:
    """Turn errors of reading an answer (a missing key, a wrong type) into errors of the node.

    Raises:
        NodeError: names the node.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise _not_understood(node, shown(str(error))) from error


def _not_understood(node: str, words: str) -> NodeError:
    return NodeError("an answer cannot be understood", {node: words}, HINT)
