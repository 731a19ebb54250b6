"""Reads a user's YAML file, or rejects it with a message of one line."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import yaml

from cluster.base.errors import UsageError, shown

MOST_DIGITS = 300
MERGE = "tag:yaml.org,2002:merge"
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def read_yaml(path: Path, hint: str = "") -> object:
    """Return the content of a YAML file.

    Args:
        path: the file.
        hint: what the user should try if it cannot be read.

    Raises:
        UsageError: the file does not exist, or is not text or not YAML; the message names the line.
    """
    return _read(path, hint, [_Loader])[0]


def read_yaml_and_words(path: Path, hint: str = "") -> tuple[object, object]:
    """Return the content of a YAML file, and the same with numbers as the words that stand there: '010', not 8.

    Raises like `read_yaml`.
    """
    content, words = _read(path, hint, [_Loader, _WordLoader])
    return content, words


def _read(path: Path, hint: str, loaders: Iterable[type[yaml.SafeLoader]]) -> list[object]:
    """Return the content of a file, read once, as each loader constructs it."""
    try:
        text = path.read_text(encoding="utf-8")
        return [yaml.load(text, loader) for loader in loaders]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not YAML: it is no text in UTF-8", hint) from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {_in_one_line(error)}", hint) from error
    except RecursionError as error:
        raise UsageError(f"{path}: not YAML that we read: nested too deeply", hint) from error
    except (ValueError, LookupError, AttributeError) as error:  # PyYAML's, as for `!!float x`
        raise UsageError(
            f"{path}: not YAML: a value that is not what its tag says", hint
        ) from error


def is_file(path: Path) -> bool:
    """Return whether the file exists; False for names that no file can have, for which `Path.is_file` raises."""
    return os.path.isfile(path)  # noqa: PTH113


def is_file_name(name: str) -> bool:
    """Return whether a word names a user's file (mine.yml, ./mine) and not a shipped one (wan)."""
    return name.endswith((".yml", ".yaml")) or "/" in name


def named_from(folder: Path, name: str) -> str:
    """Resolve a name found in a file of `folder`: a path is relative to `folder`, any other word stays as it is."""
    is_here = folder == Path()
    return name if is_here or not is_file_name(name) else os.path.join(folder, name)  # noqa: PTH118 - keeps ./


def number_within(value: object, limits: tuple[float, float], what: str) -> float:
    """Return a number from a YAML file; `what` names it in the error.

    Raises:
        UsageError: it is not a number, or out of bounds.
    """
    low, high = limits
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(f"{what} is {shown(value)}", f"a number within {low:g} to {high:g}")
    return float(value)


class _Loader(yaml.SafeLoader):
    """A safe loader that reads dates as words and rejects what would be lost: huge integers, a key given twice."""

    # The stubs of PyYAML take the anchor, a word, for the dictionary of all anchors.
    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:  # type: ignore[override]
        """Compose a mapping; nothing is merged into it yet, so that its own keys may override merged ones."""
        node = super().compose_mapping_node(anchor)  # type: ignore[arg-type]
        keys = (key for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        self._refuse_twice(key for key in keys if key.tag != MERGE)
        return node

    def _refuse_twice(self, keys: Iterable[yaml.ScalarNode]) -> None:
        """Refuse a second key that would replace the first: 8 and 010, 1 and true."""
        found = set()
        for key in keys:
            value = self.construct_object(key)
            if value in found:
                words = f"key {shown(key.value)} is there twice"
                raise yaml.constructor.ConstructorError(None, None, words, key.start_mark)
            found.add(value)


class _WordLoader(_Loader):
    """The same loader, for words of a command: a number is what its user typed."""


def _construct_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    """Return an integer; reject huge ones, which Python can hold but on which later arithmetic fails."""
    try:
        number = int(loader.construct_yaml_int(node))
    except (ValueError, LookupError):
        number = None
    if number is not None and abs(number) < 10**MOST_DIGITS:
        return number
    words = "no whole number" if len(node.value) <= MOST_DIGITS else "a number that is too large"
    raise yaml.constructor.ConstructorError(None, None, words, node.start_mark)


def _construct_word(loader: _Loader, node: yaml.ScalarNode) -> str:
    """Return a text that can be a file name and a program argument; bytes that are not UTF-8 are surrogate escapes."""
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
    """Return the character for two surrogates; json.dumps writes every character beyond U+FFFF that way."""
    return pair.encode("utf-16", "surrogatepass").decode("utf-16")


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_number)
_Loader.add_constructor("tag:yaml.org,2002:str", _construct_word)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _construct_word)
_WordLoader.add_constructor("tag:yaml.org,2002:int", _construct_word)
_WordLoader.add_constructor("tag:yaml.org,2002:float", _construct_word)


def _in_one_line(error: yaml.YAMLError) -> str:
    """Return a PyYAML error in one line, with line and column in place of its excerpt of several lines."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    return f"{error.problem} in line {mark.line + 1}, column {mark.column + 1}"
