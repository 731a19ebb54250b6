"""Resolves a name on the command line: one of ours, or a class or function in a user's file.

fedavg                  one of ours
./mine.py:Mine          Mine in mine.py, which may import the modules beside it
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from node.base.options import OptionError, unknown


def load(kind: str, word: str, known: Mapping[str, str]) -> object:
    """Load the object that a word names.

    Args:
        kind: what it is, for messages ("strategy", "task").
        word: a key of `known`, or `FILE.py:NAME`.
        known: `module:name` of each of ours, by word.

    Raises:
        OptionError: there is no such object, or the user's file has a mistake.
        ModuleNotFoundError: the user's file imports a module that is not installed.
    """
    place = known.get(word, word)
    where, colon, name = place.rpartition(":")
    if word in known:
        module = importlib.import_module(where)
    elif word.endswith(".py"):
        raise OptionError(f"{word}: which {kind} in it? Write {word}:NAME")
    elif colon and where.endswith(".py"):
        module = _load_file(Path(where))
    else:
        raise unknown(kind, word, known)
    if not hasattr(module, name):
        raise unknown(f"{kind} in {where}:", name, [n for n in vars(module) if n[0] != "_"])
    found: object = getattr(module, name)
    return found


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise OptionError(f"no file {path}")
    name = f"own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclass looks for it
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        place = path if isinstance(error, SyntaxError) else place_of(error)
        raise OptionError(f"{place}: {type(error).__name__}: {error}") from None
    return module


def place_of(error: Exception) -> str:
    """Return the file and line in which an error's traceback ends."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}"
