"""The words of a command that a user gives for a program."""

import os
import re
import shlex
from collections.abc import Sequence
from numbers import Real
from pathlib import Path

from cluster.base.errors import UsageError, shown

Words = Sequence[str | Path | float]  # of a command; from Python, also paths and numbers
INTERPRETER = re.compile(r"python[\d.]*|torchrun")


def checked_words(words: Words, folder: Path | None) -> list[str]:
    """Return words as text, if a process can have them as arguments in this locale: a YAML file may have other letters.

    Raises:
        UsageError: names the word; or they are no list.
    """
    if isinstance(words, str | bytes) or not isinstance(words, Sequence):
        raise UsageError(f"{shown(words)} is no list of words", '["train.py", "--epochs", 2]')
    for word in words:
        if isinstance(word, bool) or not isinstance(word, str | Path | Real):
            raise UsageError(f"{shown(word)} is no word of a command", "a text, path or number")
    said = [str(word) for word in words]
    for word in [*said, str(folder or "")]:
        if "\0" in word:
            raise UsageError(f"{shown(word)} has a NUL, which no argument can have", "leave it out")
        try:
            os.fsencode(word)
        except UnicodeEncodeError:
            raise UsageError(
                f"{ascii(word)} has a letter that this locale lacks", "export LC_ALL=C.UTF-8"
            ) from None
    return said


def is_interpreter(word: str) -> bool:
    """Return whether a word names what starts scripts, also one in a virtual environment."""
    return INTERPRETER.fullmatch(Path(word).name) is not None


def refuse_interpreter(words: Sequence[str]) -> None:
    """Refuse words that start with an interpreter: a node runs scripts with its own.

    Raises:
        UsageError: says what to leave out: the interpreter with its flags, up to the script or -m.
    """
    if not is_interpreter(words[0]):
        return
    program = _program_in(words[1:])
    raise UsageError(f"{words[0]} is not a script", f"leave it out: -- {shlex.join(program)}")


def _program_in(words: Sequence[str]) -> Sequence[str]:
    """Return the words from the script or -m on, or all if the first one is no flag; an example if there is neither."""
    for at, word in enumerate(words):
        if word == "-m" or word.endswith(".py"):
            return words[at:]
    is_program = words and not words[0].startswith("-")
    return words if is_program else ["train.py"]
