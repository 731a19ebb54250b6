"""The parser of every verb: what it cannot parse is an error like any other, one line and what to try."""

import re
from argparse import SUPPRESS, ArgumentParser
from typing import NoReturn

from cluster.base.console import Console
from cluster.base.errors import EXIT_USAGE, UsageError

CLEARER = {
    r"argument (.+?): invalid int value: (.*)": r"\1 \2: not a whole number",
    r"argument (.+?): invalid float value: (.*)": r"\1 \2: not a number",
    r"argument (.+?): invalid choice: (.*) \(choose from (.*)\)": r"\1 \2: not one of \3",
    r"argument (.+?): not allowed with argument (.*)": r"\1 and \2 exclude each other",
    r"argument (.+?): expected one argument": r"\1 needs a value",
    r"argument (.+?): ignored explicit argument (.*)": r"\1 takes no value: \2",
    r"the following arguments are required: (.*)": r"missing: \1",
}
"""Messages of argparse -> the same in our words."""


class Parser(ArgumentParser):
    """A parser that reports a mistake as verbs do; argparse itself would print the whole usage before it."""

    def error(self, message: str) -> NoReturn:
        """Print the mistake with a hint to the help, and exit with EXIT_USAGE."""
        Console().fail(UsageError(_clearer(message), f"{self.prog} --help"))
        raise SystemExit(EXIT_USAGE)


def offered_flags(parser: ArgumentParser) -> list[str]:
    """Return the flags that the help shows: others are passed by gradwire itself."""
    shown = [action for action in parser._actions if action.help != SUPPRESS]
    return [flag for action in shown for flag in action.option_strings]


def _clearer(message: str) -> str:
    for said, words in CLEARER.items():
        if found := re.fullmatch(said, message):
            return found.expand(words)
    return message
