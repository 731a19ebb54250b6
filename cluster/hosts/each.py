"""Runs one action on all hosts at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cluster.base.errors import ClusterError

H = TypeVar("H")
T = TypeVar("T")


def each_host(hosts: Sequence[H], action: Callable[[H], T]) -> list[T]:
    """Return the results of `action` in the order of the hosts; waits for all hosts, even if one fails.

    Raises:
        ClusterError: that of the first host, in their order, on which `action` failed; with what the others said.
    """
    if not hosts:
        return []
    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        futures = [pool.submit(action, host) for host in hosts]
    errors = [future.exception() for future in futures]
    failed = [error for error in errors if isinstance(error, ClusterError)]
    if failed:
        in_one(failed)  # is raised below
    return [future.result() for future in futures]


def in_one(errors: Sequence[ClusterError]) -> ClusterError:
    """Return the first error, now with the words of all: of several lost hosts, each is named."""
    first = errors[0]
    first.message = "; ".join(dict.fromkeys(error.message for error in errors))
    first.hint = "; ".join(dict.fromkeys(error.hint for error in errors if error.hint))
    return first
