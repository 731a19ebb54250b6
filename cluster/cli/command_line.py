"""The command line that all verbs share: a parser whose help starts with examples, exit codes, --json.

A verb is a function that takes the parsed arguments and returns what --json prints. Every option with one value can
also be set by an environment variable that is named after it, GRADWIRE_RANK_ORDER for --rank-order; the command line
wins. An empty variable is ignored, an empty option is refused.
"""

import gc
import itertools
import os
import re
import signal
import sys
import time
import traceback
from argparse import Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import cast

from cluster.base.console import Console, as_typed, eprint
from cluster.base.errors import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    ClusterError,
    UsageError,
    nearest,
    shown,
    system_error,
)
from cluster.base.json_file import json_text
from cluster.base.spec import DEFAULT_NAME
from cluster.base.stdout import Output, open_closed_streams, safe_output
from cluster.cli.parser import Parser, offered_flags

LIMIT_FLAGS = {
    "--cpus": ("N", "CPUs that a node may use: node3=0.5; `none`: no limit"),
    "--memory": ("SIZE", "memory that a node may use: node2=1g; `none`: no limit"),
    "--gpus": ("GPUS", "GPUs of a node, `all` or by number: node1=0; `none`: no GPU"),
}
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# A Ctrl-C within this time is the same key press, forwarded by a parent process.
SAME_PRESS_S = 0.5
NOT_CLEANED_UP = """\
ended at once, without cleaning up: ranks end by themselves within ten seconds; results that were not fetched, links \
that were changed for a while and nodes that were half made stay as they are
  try: python -m cluster.status
"""
NO_LINE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
DASHES = re.compile(r"(--[^=]+=|-\w)--")
Verb = Callable[[Namespace], object]


def make_parser(prog: str, description: str | None) -> ArgumentParser:
    """Return a parser for `python -m PROG`, or `gradwire VERB`; `description` is the module's docstring."""
    parser = Parser(
        prog=as_typed(f"python -m {prog}"),
        description=as_typed(description or ""),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout")
    return parser


def add_name(parser: ArgumentParser) -> None:
    """Add --name, for verbs that are about one cluster."""
    parser.add_argument(
        "--name", default=DEFAULT_NAME, help="name of the cluster (default: %(default)s)"
    )


def add_force(parser: ArgumentParser, more: str = "") -> None:
    """Add --force, for verbs that change or measure a cluster which a run may be using; `more`: what else it does."""
    parser.add_argument(
        "--force",
        action="store_true",
        help=f"proceed even if a run or another command uses the cluster{more}",
    )


def add_size(parser: ArgumentParser) -> None:
    """Add the options for the number of nodes, their image, hosts and resource limits, and the slot."""
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="number of nodes (default: unchanged, or 3)"
    )
    parser.add_argument(
        "--image", help="your own image, built FROM gradwire-node (default: gradwire-node)"
    )
    parser.add_argument(
        "--hosts",
        metavar="FILE",
        help="hosts.yml with the machines to place nodes on (default: unchanged, or this machine)",
    )
    for flag, (value, words) in LIMIT_FLAGS.items():
        parser.add_argument(
            flag,
            action="append",
            default=[],
            metavar=f"[NODE=]{value}",
            help=f"{words}; without NODE=, all nodes (repeatable; default: unchanged)",
        )
    parser.add_argument(
        "--slot",
        type=int,
        metavar="S",
        help="use ports from 22000 + 100 S on, and subnet 10.77.S.0/24 (default: first free)",
    )


def add_shape(parser: ArgumentParser, *, with_training: bool = False) -> None:
    """Add the options of the links; `with_training`: for a verb that also takes the training's options."""
    parser.add_argument("--profile", help="link profile: a shipped one, or your own file")
    parser.add_argument(
        "--topology",
        default="full",
        help="full, ring, star, or your own file (default: %(default)s)",
    )
    # launch passes --seed to the training (node.train).
    flags = ["--link-seed"] if with_training else ["--link-seed", "--seed"]
    parser.add_argument(
        *flags,
        type=int,
        default=1,
        metavar="S",
        help="seed for drawing the links (default: %(default)s)",
    )
    parser.add_argument(
        "--wire", default="auto", help="netem, nfqueue or auto (default: %(default)s)"
    )
    parser.add_argument(
        "--isolated",
        action="store_true",
        help="nodes without a link cannot reach each other (default: hop by hop)",
    )


def typed_flags(argv: Sequence[str] | None) -> list[str]:
    """Return the first parts of a verb's words: which flags were typed; others come from the environment.

    Args:
        argv: the words; None: those of this process.
    """
    return [word.partition("=")[0] for word in (sys.argv[1:] if argv is None else argv)]


def run_verb(
    parser: ArgumentParser, verb: Verb, argv: list[str] | None, *, keep_rest: bool = False
) -> int:
    """Parse the arguments, run the verb, print its document; return the exit code. Expected errors have no traceback.

    With `keep_rest`, unknown options are not refused here: the verb finds them in `args.rest`.
    """
    open_closed_streams()
    _complete(parser)
    words = sys.argv[1:] if argv is None else argv
    try:
        _refuse_odd(words)
        _take_environment(parser)
    except UsageError as error:
        Console().fail(error)
        return error.exit_code
    try:
        with safe_output() as output:
            args = _parse(parser, words, output, keep_rest=keep_rest)
            hear_signals()
            return _run(verb, args, output)
    except KeyboardInterrupt:
        eprint("interrupted")
        return EXIT_INTERRUPTED
    except Exception:
        eprint(traceback.format_exc())
        eprint("this is a bug in gradwire: please report it with the lines above")
        return EXIT_BUG
    finally:
        gc.freeze()  # the process ends here: a last garbage collection would take 40 ms


def _parse(
    parser: ArgumentParser, words: Sequence[str], output: Output, *, keep_rest: bool
) -> Namespace:
    """Return the parsed arguments; exits after --help, and after a wrong argument."""
    try:
        args, rest = parser.parse_known_args(words)
        if rest and not keep_rest:
            parser.error(f"unknown argument {shown(rest[0])}{_guess(rest[0], parser)}")
    except SystemExit as end:
        raise SystemExit(all_written(output, cast(int, end.code))) from None
    args.rest = rest
    return args


def _run(verb: Verb, args: Namespace, output: Output) -> int:
    """Run the verb, print its document or its expected error, flush the output; return the exit code."""
    exit_code, document = EXIT_DONE, None
    try:
        document = verb(args)
    except (ClusterError, OSError) as error:
        failure = error if isinstance(error, ClusterError) else system_error(error)
        Console().fail(failure)
        document, exit_code = failure.document, failure.exit_code
    if args.json and (document is not None or exit_code == EXIT_DONE):
        print(json_text(document))
    return all_written(output, exit_code)


def all_written(output: Output, exit_code: int) -> int:
    """Flush the output and report a failure to write it; return the final exit code."""
    output.flush()
    if output.failure is not None:
        Console().fail(system_error(output.failure, "standard output cannot be written"))
    return exit_code or (EXIT_DONE if output.failure is None else EXIT_FAILED)


def _complete(parser: ArgumentParser) -> None:
    """Answer a shell that asks for completions, and exit; do nothing otherwise."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete

    from cluster.links.profiles import profile_names
    from cluster.links.topology import BASES

    known = {"profile": profile_names(), "topology": BASES}
    for action in parser._actions:
        if action.dest in known:
            action.completer = partial(_offer, known[action.dest])  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _offer(names: Sequence[str], **_: object) -> Sequence[str]:
    """Return all names: a completer for argcomplete, which filters them by prefix itself."""
    return names


def _refuse_odd(words: Sequence[str]) -> None:
    """Refuse words with newlines or escapes, and an option whose value is --, or empty as from an unset shell variable.

    Raises:
        UsageError: names the word, or the option.
    """
    for word in words:
        _refuse_control(word, shown(word))
        if DASHES.fullmatch(word):  # some versions of argparse make a list of it
            raise UsageError(f"{word}: -- is no value", "leave it out, or give a value")
    for word, following in itertools.pairwise([*words, "the end"]):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and (value if equals else following) == "":
            raise UsageError(f"{flag} is empty", "leave it out, or give a value")


def _refuse_control(word: str, name: str) -> None:
    """Refuse control characters, which would break the one line of an error; a tab is allowed, for patterns."""
    if NO_LINE.search(word):
        raise UsageError(f"{name} has a line end, or another control character", "leave it out")


def _guess(word: str, parser: ArgumentParser) -> str:
    close = nearest(word.partition("=")[0], offered_flags(parser))
    return f": did you mean {close}?" if close else ""


def hear_signals() -> None:
    """Make SIGTERM and SIGHUP (a closed terminal) act as Ctrl-C does: KeyboardInterrupt, so that everything cleans up.

    Signals that were ignored at the start (`nohup`) stay ignored. A Ctrl-C during the cleanup ends us at once.
    """
    for number in (signal.SIGINT, *ENDING_SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # A shell that ends may signal twice: the second signal must not interrupt the cleanup.
    for one in ENDING_SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, partial(_end_at_once, time.monotonic()))
    raise KeyboardInterrupt


def _end_at_once(since: float, number: int, frame: FrameType | None) -> None:
    if time.monotonic() - since >= SAME_PRESS_S:
        with suppress(OSError):
            # Not with print: the interrupted code may be inside one.
            os.write(sys.stderr.fileno(), as_typed(NOT_CLEANED_UP).encode())
        os._exit(EXIT_INTERRUPTED)


def _take_environment(parser: ArgumentParser) -> None:
    """Use environment variables as defaults of options; raises UsageError for one that the option would refuse."""
    for action in parser._actions:
        has_one_value = action.option_strings and action.nargs is None
        if not has_one_value or isinstance(action.default, list):
            continue
        if value := os.environ.get(_variable(action)):
            _refuse_control(value, _variable(action))
            action.default = _converted(action, value)
            action.required = False


def _converted(action: Action, value: str) -> object:
    """Return the value of an environment variable, converted and checked as the option (argparse checks no default)."""
    convert = cast(Callable[[str], object], action.type or str)
    given = f"{_variable(action)}={shown(value)} in the environment"
    hint = f"unset it, or see {action.option_strings[0]}"
    try:
        found = convert(value)
    except ValueError:
        raise UsageError(f"{given}: no {convert.__name__}", hint) from None
    if action.choices is not None and found not in action.choices:
        raise UsageError(f"{given}: none of {', '.join(map(str, action.choices))}", hint)
    return found


def _variable(action: Action) -> str:
    """Return the variable of an option, named after its first long flag: GRADWIRE_LINK_SEED for --link-seed, --seed."""
    flag = next(flag for flag in action.option_strings if flag.startswith("--"))
    return "GRADWIRE_" + flag[2:].replace("-", "_").upper()
