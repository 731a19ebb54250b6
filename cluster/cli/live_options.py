"""What verbs that show a run share: --http and the page behind it."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cluster.base.console import eprint

if TYPE_CHECKING:
    from cluster.live.http_page import HttpPage


def add_http(parser: ArgumentParser) -> None:
    """--http, for verbs that show a run."""
    parser.add_argument(
        "--http",
        type=int,
        metavar="PORT",
        help="show the run also as a page on 127.0.0.1, as long as it lasts; 0: any port that is free",
    )


@contextmanager
def served_page(port: int | None) -> Iterator[HttpPage | None]:
    """A page as long as the block lasts, and where it is; None where none was asked for.

    Raises:
        UsageError: no such port. ClusterError: it is taken.
    """
    if port is None:
        yield None
        return
    from cluster.live.http_page import HttpPage  # and http.server: few ask for it

    page = HttpPage(port)
    eprint(f"the run as a page: {page.url}")
    try:
        yield page
    finally:
        page.close()
