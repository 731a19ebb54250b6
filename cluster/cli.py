"""What every verb shares: a parser whose help starts with examples, the exit codes, and --json.

A verb is a function that takes the parsed arguments and returns what --json prints. Every option with one value
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

from cluster.console import Console, tell, unheard
from cluster.errors import EXIT_BUG, EXIT_DONE, EXIT_INTERRUPTED, ClusterError
from cluster.spec import DEFAULT_NAME

LIMITS = {
    "--cpus": ("N", "processors that a node may use: node3=0.5"),
    "--memory": ("SIZE", "memory that a node may use: node2=1g"),
}
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
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
        return _run(verb, args)
    except KeyboardInterrupt:
        tell("interrupted")
        return EXIT_INTERRUPTED
    except Exception:
        traceback.print_exc()
        print("this is a bug in gradwire: please report it with the lines above", file=sys.stderr)
        return EXIT_BUG
    finally:
        gc.freeze()  # Python ends here: to look once more for what could be freed would take it 40 ms


def _run(verb: Verb, args: Namespace) -> int:
    """The verb, its document, and its errors that we expect; all is written when this returns."""
    exit_code, document = EXIT_DONE, None
    with unheard(sys.stdout):  # of `status | head`; cluster.ranks goes on printing to nobody
        try:
            document = verb(args)
        except ClusterError as error:
            Console().fail(error)
            document, exit_code = error.document, error.exit_code
        if args.json and (document is not None or exit_code == EXIT_DONE):
            print(json.dumps(document, indent=2))
        sys.stdout.flush()
    return exit_code


def _guess(word: str, parser: ArgumentParser) -> str:
    flags = [flag for action in parser._actions for flag in action.option_strings]
    close = difflib.get_close_matches(word.partition("=")[0], flags, n=1)
    return f": did you mean {close[0]}?" if close else ""


def hear_signals() -> None:
    """From now on a SIGTERM, or a terminal that closes, ends us as Ctrl-C does: everything cleans up on its way out.

    What we were started to ignore (`nohup`) we go on to ignore.
    """
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # A shell that ends says so twice: the second time must not end the cleaning up.
    for one in ENDING_SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


def _take_environment(parser: ArgumentParser) -> None:
    for action in parser._actions:
        value = os.environ.get(_variable(action)) if action.option_strings else None
        if value is not None and action.nargs is None and not isinstance(action.default, list):
            action.default = value  # argparse passes a text default through the option's type
            action.required = False


def _variable(action: Action) -> str:
    return "GRADWIRE_" + action.dest.upper()
