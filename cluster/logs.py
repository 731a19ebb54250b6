"""Print the logs of all nodes, as `docker logs` does, each line prefixed with its node.

    python -m cluster.logs                     # everything
    python -m cluster.logs -f node2 node3      # follow two nodes only
    python -m cluster.logs --grep 'loss [0-9]'
    python -m cluster.logs --tail 20

Ctrl-C ends --follow.
"""

import queue
import re
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence

from cluster.api import Cluster
from cluster.base.console import LinePrinter
from cluster.base.errors import UsageError
from cluster.base.spec import select_nodes
from cluster.base.stdout import is_read
from cluster.cli.command_line import add_name, make_parser, run_verb
from cluster.engine.client import Engine
from cluster.engine.container import Container


def main(argv: list[str] | None = None) -> int:
    """Show or follow the nodes' logs."""
    parser = make_parser("cluster.logs", __doc__)
    add_name(parser)
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="nodes to show (default: all)")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new lines")
    parser.add_argument(
        "--grep", metavar="RE", help="only lines that match this regular expression anywhere"
    )
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each node")
    return run_verb(parser, logs, argv)


def logs(args: Namespace) -> list[dict[str, str]]:
    """Run the verb; with --json, return the lines as a list at the end."""
    pattern = _pattern(args.grep)
    if args.tail is not None and args.tail < 0:  # Docker's client would take it for all lines
        raise UsageError(f"--tail {args.tail}", "--tail 20; left out: all lines")
    if args.json and args.follow:
        raise UsageError(
            "--json and --follow exclude each other: --json prints one document, at the end",
            "leave one of them out",
        )
    cluster = Cluster(args.name)
    chosen = {node.name for node in select_nodes(cluster.spec.nodes, args.nodes)}
    containers = [c for c in cluster.engine.containers(args.name) if c.node in chosen]
    printer = LinePrinter([c.node for c in containers], sys.stderr if args.json else sys.stdout)
    found = []
    for node, line in _read(
        cluster.engine,
        containers,
        follow=args.follow,
        lines="all" if args.tail is None else args.tail,
    ):
        if pattern.search(line) is None:
            continue
        if args.json:
            found.append({"node": node, "line": line})
        else:
            printer.print(node, line)
            if not is_read(sys.stdout):  # `logs --follow | head`
                break
    return found


def _pattern(text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(text or "")
    except re.error as error:
        raise UsageError(
            f"--grep {text!r} is no regular expression: {error}",
            "--grep 'loss [0-9]', with \\ in front of a character that stands for itself",
        ) from error


def _read(
    engine: Engine, containers: Sequence[Container], *, follow: bool, lines: int | str
) -> Iterator[tuple[str, str]]:
    """Yield the lines of all containers as they arrive; one thread reads each container."""
    news: queue.Queue[tuple[str, str] | Exception | None] = queue.Queue(maxsize=1000)
    for container in containers:
        reader = threading.Thread(
            target=_read_one, args=(engine, container, follow, lines, news), daemon=True
        )
        reader.start()
    open_logs = len(containers)
    while open_logs:
        item = news.get()
        if isinstance(item, Exception):
            raise item
        if item is None:
            open_logs -= 1
        else:
            yield item


def _read_one(
    engine: Engine,
    container: Container,
    follow: bool,
    lines: int | str,
    news: "queue.Queue[tuple[str, str] | Exception | None]",
) -> None:
    try:
        for line in engine.again().follow_log(container.id, follow=follow, lines=lines):
            news.put((container.node, line))
    except Exception as error:  # of any kind: `_read` must not wait for this log forever
        news.put(error)
    news.put(None)


if __name__ == "__main__":
    sys.exit(main())
