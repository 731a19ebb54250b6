"""A stream of an engine's events that is opened where it is read: an engine may take for ever to open one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker.types import CancellableStream


@contextmanager
def event_stream(
    open_stream: Callable[[], CancellableStream],
) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield an iterator of events, to be read in another thread, until the `with` block is left.

    Leaving the block does not wait: a stream that is opened only later is closed at once.

    Args:
        open_stream: called by the first `next`; opens the stream.
    """
    has_left = threading.Event()
    opened: list[CancellableStream] = []

    def events() -> Iterator[dict[str, Any]]:
        if has_left.is_set():
            return
        stream = open_stream()
        # Appended before the look: else the stream might be closed neither here nor by who leaves the block.
        opened.append(stream)
        if has_left.is_set():
            _close(stream)
            return
        yield from stream

    try:
        yield events()
    finally:
        has_left.set()
        for stream in opened:
            _close(stream)


def _close(stream: CancellableStream) -> None:
    # The stream of an engine behind SSH cannot be closed: it ends with our process. Others may just have ended.
    with suppress(Exception):
        stream.close()
