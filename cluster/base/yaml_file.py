"""Reads a user's YAML file, or refuses it in one line."""

import os
import re
from pathlib import Path

import yaml

from cluster.base.errors import UsageError, shown

MOST_DIGITS = 300
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def read_yaml(path: Path, hint: str = "") -> object:
    """What a file says.

    Args:
        path: of the file.
        hint: what to try where it cannot be read.

    Raises:
        UsageError: there is no such file, it is no text or no YAML; the message says in which line.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not YAML: it is no text in UTF-8", hint) from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {_in_one_line(error)}", hint) from error
    except RecursionError as error:
        raise UsageError(f"{path}: not YAML that we read: nested too deeply", hint) from error
    except (ValueError, LookupError, AttributeError) as error:  # `!!float x`: PyYAML's own
        raise UsageError(
            f"{path}: not YAML: a value that is not what its tag says", hint
        ) from error


def is_file(path: Path) -> bool:
    """Whether there is such a file; no for names that none can have, where `Path.is_file` raises."""
    return os.path.isfile(path)  # noqa: PTH113


def is_file_name(name: str) -> bool:
    """Whether a word names a file of the user's, and nothing that is shipped: mine.yml, ./mine, not wan."""
    return name.endswith((".yml", ".yaml")) or "/" in name


def named_from(folder: Path, name: str) -> str:
    """A name as it is meant in a file of this folder: a path starts there, any other word is itself."""
    is_here = folder == Path()
    return name if is_here or not is_file_name(name) else os.path.join(folder, name)  # noqa: PTH118 - keeps ./


def number_within(value: object, limits: tuple[float, float], what: str) -> float:
    """A number from a YAML file; `what` is named in the error.

    Raises:
        UsageError: it is none, or out of bounds.
    """
    low, high = limits
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(f"{what} is {shown(value)}", f"a number within {low:g} to {high:g}")
    return float(value)


class _Loader(yaml.SafeLoader):
    """Values as they are meant here: dates are words, and numbers are such as a float can be."""


def _construct_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    """A whole number; Python's may have any size, and fail where somebody reckons with them."""
    try:
        number = int(loader.construct_yaml_int(node))
    except (ValueError, LookupError):
        number = None
    if number is not None and abs(number) < 10**MOST_DIGITS:
        return number
    words = "no whole number" if len(node.value) <= MOST_DIGITS else "a number that is too large"
    raise yaml.constructor.ConstructorError(None, None, words, node.start_mark)


def _construct_word(loader: _Loader, node: yaml.ScalarNode) -> str:
    """A text that can be a file's name and a program's argument, bytes that are no UTF-8 as Python has them there."""
    text: str = loader.construct_yaml_str(node)
    text = PAIR.sub(lambda pair: _joined(pair[0]), text)
    try:
        is_text = b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise yaml.constructor.ConstructorError(None, None, "no text", node.start_mark)
    return text


def _joined(pair: str) -> str:
    """The letter that JSON writes as two surrogates, and json.dumps does so with every one beyond U+FFFF."""
    return pair.encode("utf-16", "surrogatepass").decode("utf-16")


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_number)
_Loader.add_constructor("tag:yaml.org,2002:str", _construct_word)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _construct_word)


def _in_one_line(error: yaml.YAMLError) -> str:
    """PyYAML draws the place, over several lines; a line and a column say it, too."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    return f"{error.problem} in line {mark.line + 1}, column {mark.column + 1}"
