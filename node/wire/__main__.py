"""Command line of the wire: `python3 -m node.wire apply < plan.json`, `replay`, `show`, `inspect`, `clear`, `try`."""

import json
import sys

from node.wire.apply import apply, clear, show, trial
from node.wire.commands import WireError
from node.wire.playback.player import replay
from protocol.reader import FormatError, document

USAGE = """usage: python3 -m node.wire VERB
  apply < plan.json   make this node's links what the plan says, and report it; again: change them in place
  replay              change links as traces say, by orders on standard input, until that ends
  show                what is in force, and what the kernel has counted
  inspect             that, and digests by which to see later whether anything was changed
  clear               remove all that apply made
  try                 which wires this kernel can do, and why not the others"""
EXIT_FAILED, EXIT_USAGE = 1, 2


def main(arguments: list[str]) -> int:
    """Run one verb. Returns the exit status: 0 done, 1 the node could not do it, 2 unknown verb or invalid plan."""
    try:
        match arguments:
            case ["apply"]:
                print(json.dumps(document(apply(sys.stdin.read()))))
            case ["replay"]:
                replay(sys.stdin.fileno())
            case ["show"]:
                print(json.dumps(document(show())))
            case ["inspect"]:
                from node.wire.marks import inspect  # noqa: PLC0415 - its imports cost `show` time

                print(json.dumps(document(inspect())))
            case ["clear"]:
                clear()
            case ["try"]:
                print(json.dumps(trial()))
            case ["-h" | "--help"]:
                print(USAGE)
            case _:
                print(USAGE, file=sys.stderr)
                return EXIT_USAGE
    except FormatError as error:
        print(f"node.wire: {error}", file=sys.stderr)
        return EXIT_USAGE
    except WireError as error:
        print(f"node.wire: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
