"""What every verb shares: a parser whose help starts with examples, the exit codes, and --json.

A verb is a function that takes the parsed arguments and returns what --json prints. Every option with a value
is also an environment variable, GRADWIRE_NODES for --nodes; the command line wins.
"""

import difflib
import gc
import json
import os
import signal
import sys
import traceback
from argparse import Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from types import FrameType

from cluster.console import Console
from cluster.errors import EXIT_BUG, EXIT_DONE, EXIT_INTERRUPTED, ClusterError
from cluster.spec import DEFAULT_NAME

LIMITS = {
    "--cpus": ("N", "processors that a node may use: node3=0.5"),
    "--memory": ("SIZE", "memory that a node may use: node2=1g"),
}
Verb = Callable[[Namespace], object]


def make_parser(prog: str, description: str | None) -> ArgumentParser:
    """A parser for `python -m PROG` with the module's own docstring as its help."""
    parser = ArgumentParser(
        prog=f"python -m {prog}",
        description=description,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    return parser


def add_name(parser: ArgumentParser) -> None:
    """--name, for every verb that is about one cluster."""
    parser.add_argument("--name", default=DEFAULT_NAME, help="the cluster (default: %(default)s)")


def add_size(parser: ArgumentParser) -> None:
    """How many nodes, what each may use, and where they get their addresses and ports from."""
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="default: as many as there are, or 3"
    )
    parser.add_argument(
        "--image", help="an image of your own, built FROM gradwire-node (default: gradwire-node)"
    )
    for flag, (value, words) in LIMITS.items():
        parser.add_argument(
            flag,
            action="append",
            default=[],
            metavar=f"[NODE=]{value}",
            help=f"{words}; without NODE every one; none: no limit (may be repeated; default: as it is)",
        )
    parser.add_argument(
        "--slot",
        type=int,
        metavar="S",
        help="ports 22S01…, subnet 10.77.S.0/24 (default: the first free)",
    )


def add_shape(parser: ArgumentParser) -> None:
    """What decides the links."""
    parser.add_argument("--profile", help="a shipped profile, or a file of your own")
    parser.add_argument(
        "--topology",
        default="full",
        help="full, ring, star, or a file of your own (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="draws the links (default: %(default)s)"
    )
    parser.add_argument("--wire", default="auto", help="netem, nfqueue or auto (default)")
    parser.add_argument(
        "--isolated",
        action="store_true",
        help="nodes without a link cannot reach each other (default: hop by hop)",
    )


def run_verb(
    parser: ArgumentParser, verb: Verb, argv: list[str] | None, *, keep_rest: bool = False
) -> int:
    """Parse, run, print; returns the exit code. Errors that we expect have no traceback.

    With `keep_rest` unknown options are not refused here: the verb finds them in `args.rest`.
    """
    _take_environment(parser)
    args, rest = parser.parse_known_args(argv)
    if rest and not keep_rest:
        parser.error(f"unknown argument {rest[0]}{_guess(rest[0], parser)}")
    args.rest = rest
    hear_signals()
    try:
        document = verb(args)
    except ClusterError as error:
        Console().fail(error)
        if args.json and error.document is not None:
            print(json.dumps(error.document, indent=2))
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _let_go_of_stdout()  # `launch | head`: the work is done (cluster.ranks goes on printing to nobody)
        return EXIT_DONE
    except Exception:
        traceback.print_exc()
        print("this is a bug in gradwire: please report it with the lines above", file=sys.stderr)
        return EXIT_BUG
    if args.json:
        print(json.dumps(document, indent=2))
    gc.freeze()  # Python ends here: to look once more for what could be freed would take it 40 ms
    return EXIT_DONE


def _guess(word: str, parser: ArgumentParser) -> str:
    flags = [flag for action in parser._actions for flag in action.option_strings]
    close = difflib.get_close_matches(word.partition("=")[0], flags, n=1)
    return f": did you mean {close[0]}?" if close else ""


def hear_signals() -> None:
    """From now on a SIGTERM, or a terminal that closes, ends us as Ctrl-C does: everything cleans up on its way out."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _let_go_of_stdout() -> None:
    """What is still buffered for a reader that has gone must not fail a second time when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _take_environment(parser: ArgumentParser) -> None:
    for action in parser._actions:
        value = os.environ.get(_variable(action)) if action.option_strings else None
        if value is not None and action.nargs is None and not isinstance(action.default, list):
            action.default = value  # argparse passes a text default through the option's type
            action.required = False


def _variable(action: Action) -> str:
    return "GRADWIRE_" + action.dest.upper()
