"""Does one thing on all hosts at once: what came of it, in their order; or what went wrong on the first that failed."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

H = TypeVar("H")
T = TypeVar("T")


def each_host(hosts: Sequence[H], action: Callable[[H], T]) -> list[T]:
    """All of them are waited for, whatever fails.

    Raises:
        ClusterError: as `action` does.
    """
    if not hosts:
        return []
    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        futures = [pool.submit(action, host) for host in hosts]
    return [future.result() for future in futures]
