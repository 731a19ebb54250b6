"""The program that a launch's words ask for: the user's own after `--`, or node.train with the options left."""

import difflib
from argparse import Namespace
from collections.abc import Sequence

from cluster.base.errors import UsageError, unknown
from cluster.run.launch_words import parse_essential_ranks
from cluster.run.program import Program, fit_program, training, user_program


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
    """Return node.train with the options that are not ours; misspelt options of ours are reported as such."""
    _refuse_essential_ranks(args)
    try:
        return training(rest, args.folder, ranks)
    except UsageError as error:
        for flag in (word.partition("=")[0] for word in rest):
            refused = f"unknown argument {flag!r}" in error.message
            if refused and difflib.get_close_matches(flag, flags, n=1, cutoff=0.8):
                raise unknown("option", flag, flags) from error
        raise
