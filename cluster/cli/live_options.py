"""Code that verbs which show a run share: --http and the page behind it."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cluster.base.console import eprint
from cluster.base.errors import UsageError

if TYPE_CHECKING:
    from cluster.live.http_page import HttpPage


def add_http(parser: ArgumentParser) -> None:
    """Add --http, for verbs that show a run."""
    parser.add_argument(
        "--http",
        type=int,
        metavar="PORT",
        help="also serve the run as a web page on 127.0.0.1 while it lasts; 0: any free port",
    )


def check_port(port: int | None) -> None:
    """Refuse a port that does not exist; None is no page at all.

    Raises:
        UsageError: it does not.
    """
    if port is not None and not 0 <= port <= 65535:
        raise UsageError(f"--http {port}", "0 to 65535; 0 chooses a free port")


@contextmanager
def served_page(port: int | None) -> Iterator[HttpPage | None]:
    """Serve the page while the block lasts, and print its address; yields None if `port` is None (see `check_port`).

    Raises:
        ClusterError: the port is taken, or not permitted.
    """
    if port is None:
        yield None
        return
    from cluster.live.http_page import HttpPage  # imports http.server, which few runs need

    page = HttpPage(port)
    eprint(f"the run as a page: {page.url}")
    try:
        yield page
    finally:
        page.close()
