"""The program that a launch's words ask for: the user's own after `--`, or node.train with the options left."""

import itertools
import re
import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from cluster.base.errors import UsageError, nearest, unknown
from cluster.base.yaml_file import is_file
from cluster.run.command_words import is_interpreter
from cluster.run.launch_words import parse_essential_ranks
from cluster.run.program import OWN_FLAGS, Program, fit_program, training, user_program

BOTH_HELPS = (
    "python -m cluster.launch --help, or for the training's options python -m node.train --help"
)


def launch_program(
    args: Namespace,
    rest: Sequence[str],
    program: Sequence[str],
    flags: Sequence[str],
    ranks: int,
) -> Program:
    """Return the program, checked before anything starts.

    Args:
        args: the parsed arguments.
        rest: options that are not ours, for the training.
        program: the words after `--`.
        flags: all flags of launch that its help shows.
        ranks: how many ranks run it.

    Raises:
        UsageError: see `user_program` and `training`.
    """
    return _user_program(args, program) if program else _training(args, rest, flags, ranks)


def _user_program(args: Namespace, words: Sequence[str]) -> Program:
    """Return the user's program, from the words after `--`."""
    if args.fit:
        _refuse_essential_ranks(args)
        return fit_program(words, args.folder, args.fit)
    essential = parse_essential_ranks(args.essential_ranks) if args.essential_ranks else None
    return user_program(words, args.folder, essential)


def _refuse_essential_ranks(args: Namespace) -> None:
    if args.essential_ranks:
        raise UsageError(
            f"--essential-ranks {args.essential_ranks} is for programs of your own",
            "leave it out: for node.train the task decides it",
        )


def _training(args: Namespace, rest: Sequence[str], flags: Sequence[str], ranks: int) -> Program:
    """Return node.train with the options that are not ours; what it does not know may be a misspelt one of ours."""
    _refuse_essential_ranks(args)
    try:
        return training(rest, args.folder, ranks)
    except UsageError as error:
        words = [word.partition("=")[0] for word in rest]
        refused = [word for word in words if _is_refused(word, error)]
        if not refused:
            raise
        raise _unknown_word(refused[0], rest, flags, error) from error


def _is_refused(word: str, error: UsageError) -> bool:
    """Return whether an error of node.train is that it does not know this word."""
    return error.message.startswith(f"unknown argument {word!r}: ")


def _unknown_word(
    word: str, rest: Sequence[str], flags: Sequence[str], error: UsageError
) -> UsageError:
    """Return the error for a word of `rest` that neither we nor node.train know; `error`: what node.train says."""
    of_training = re.findall("did you mean '(--.+)'", error.message)
    if word.startswith("-") and nearest(word, [*sorted(flags), *of_training]) in flags:
        return unknown("option", word, flags)
    if script := _script_in(rest, word):
        return UsageError(f"{script} is given without --", _with_dashes(script, rest))
    return UsageError(error.message.partition(": there is ")[0], BOTH_HELPS)


def _with_dashes(script: str, rest: Sequence[str]) -> str:
    """Return the command with the script, and all else that we do not know but an interpreter, behind `--`."""
    at = rest.index(script)
    before = [word for word in rest[:at] if not is_interpreter(word)]
    return f"python -m cluster.launch … -- {shlex.join([script, *before, *rest[at + 1 :]])}"


def _script_in(rest: Sequence[str], refused: str) -> str:
    """Return the first word that is a script, or "": a Python file that is no strategy or task; the `refused` file."""
    for before, word in itertools.pairwise(["", *rest]):
        is_script = word.endswith(".py") or (word == refused and is_file(Path(word)))
        if is_script and before not in OWN_FLAGS and not word.startswith("-"):
            return word
    return ""
