"""Command line of the nodes of a host: `python3 -m node.bare VERB`, with JSON in and out (protocol/bare.py)."""

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from node.bare import nodes
from node.bare.folders import RUNTIME
from node.bare.runtime import HostError
from node.wire.commands import WireError
from node.wire.commands import run as command
from protocol.bare import Done, Images, Limit, Make, Named, Nodes
from protocol.rank import EXIT_USAGE
from protocol.reader import FormatError, document, parse

USAGE = """usage: python3 -m node.bare VERB
  images            the images of this host
  list              its nodes
  make < order      make nodes, without starting them
  start < names     start nodes
  unpause < names   let paused nodes go on
  limit < order     change the limits of a node
  remove < names    end nodes and remove them
  remove-all CLUSTER FOLDER  end and remove all nodes of a checkout's cluster, and what they shared
  prune             remove the images that no node has, but the current one
  forget CLUSTER    remove what the nodes of a cluster shared
  try-wires         which wires the kernel can do"""
EXIT_FAILED = 1
LOOKING = ("images", "list", "try-wires")
LOCK_TIMEOUT_S = 60.0


def main(arguments: list[str]) -> int:
    """Run one verb. Returns the exit status: 0 done, 1 the host could not do it, 2 unknown verb or invalid order."""
    try:
        with one_at_a_time(arguments):
            answer = run(arguments)
    except FormatError as error:
        print(f"node.bare: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (HostError, WireError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"node.bare: {error}", file=sys.stderr)
        return EXIT_FAILED
    print(
        USAGE if answer is None else json.dumps(answer), file=sys.stderr if answer is None else None
    )
    return EXIT_USAGE if answer is None else 0


@contextmanager
def one_at_a_time(arguments: list[str]) -> Iterator[None]:
    """Let one program at a time change nodes; those that only look need not wait.

    Raises:
        HostError: another one takes too long.
    """
    if arguments[:1] and arguments[0] in LOOKING:
        yield
        return
    RUNTIME.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with (RUNTIME / "lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise HostError(
                        "another command has been changing nodes for too long"
                    ) from None
                time.sleep(0.05)
        yield


def run(arguments: list[str]) -> Any:  # noqa: ANN401 - a JSON value
    """Run one verb and return its answer as a JSON value; None: there is no such verb."""
    match arguments:
        case ["images"]:
            return document(Images(nodes.list_images()))
        case ["list"]:
            return document(Nodes(nodes.list_nodes()))
        case ["make"]:
            for order in parse(Make, sys.stdin.buffer.read(), "order").nodes:
                nodes.make(order)
            return document(Done())
        case ["start"]:
            return _each(nodes.start)
        case ["unpause"]:
            return _each(nodes.unpause)
        case ["remove"]:
            return _each(nodes.remove)
        case ["limit"]:
            nodes.limit(parse(Limit, sys.stdin.buffer.read(), "order"))
            return document(Done())
        case ["remove-all", cluster, folder]:
            return document(Done(nodes.remove_all(cluster, folder)))
        case ["prune"]:
            return document(Done(nodes.prune()))
        case ["try-wires"]:
            argv = ["unshare", "--net", sys.executable, "-m", "node.wire", "try"]
            return json.loads(command(argv))
        case ["forget", cluster]:
            return document(Done([cluster] if nodes.remove_shared(cluster) else []))
        case _:
            return None


def _each(action: Callable[[str], None]) -> Any:  # noqa: ANN401 - a JSON value
    for name in parse(Named, sys.stdin.buffer.read(), "order").names:
        action(name)
    return document(Done())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
