"""Runs one action on all hosts at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

H = TypeVar("H")
T = TypeVar("T")


def each_host(hosts: Sequence[H], action: Callable[[H], T]) -> list[T]:
    """Return the results of `action` in the order of the hosts; waits for all hosts, even if one fails.

    Raises:
        ClusterError: that of the first host, in their order, on which `action` failed.
    """
    if not hosts:
        return []
    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        futures = [pool.submit(action, host) for host in hosts]
    return [future.result() for future in futures]
