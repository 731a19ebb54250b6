"""Writes docs/formats.md from the sources of this package: `python -m protocol > docs/formats.md`.

Each module becomes a section with its docstring as the text, each named tuple in it a table of its fields; the string
after a field is its meaning. So the page says what the reader checks, and a test keeps page and sources the same.
"""

import ast
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from protocol.reader import NOT_NULL, Bounds, ReadBy

FOLDER = Path(__file__).parent
ORDER = (
    *("link", "node_plan", "link_report", "trace", "probe", "node_check"),
    *("rank", "rank_variables", "places", "ports", "labels", "training", "fit_order"),
    *("vxlan_plan", "pod_order", "bare"),
    *("metrics", "collectives", "telemetry"),
)
"""The modules with documents, in reading order; a test checks that none is missing."""
HEAD = """\
# What crosses between host and node

*Made by `python -m protocol > docs/formats.md` from the sources of `protocol/`; change those.*

`cluster/` (the host) and `node/` (in every container) never import each other. What they share is data, and `protocol/`
is its definition: both sides read a document by these types. A key that is not here is refused, and the error names it;
only lines of metrics and telemetry may have more, as other versions and users' own tasks write them.
Units stand in the names: `rate_mbyte_s` is 10^6 bytes a second, `delay_ms` is one way, `loss_pct` is per cent of
packets. Numbers are finite; lists and objects where anything is allowed have at most 20 levels and 600,000 values. A
key with a default may be missing.

What the host writes for its users (run folders, `--json`) is in [run-folder.md](run-folder.md).
"""


def main() -> int:
    """Print the page."""
    sys.stdout.write(page())
    return 0


def page() -> str:
    """Return the text of docs/formats.md."""
    return HEAD + "".join(_section(FOLDER / f"{name}.py") for name in ORDER)


def _section(path: Path) -> str:
    source = ast.parse(path.read_text(encoding="utf-8"))
    module = importlib.import_module(f"protocol.{path.stem}")
    title, _, text = (ast.get_docstring(source) or "").partition("\n")
    parts = [f"\n## {path.stem.replace('_', ' ').capitalize()}\n", f"{title}\n"]
    parts += [f"{text.strip()}\n"] if text.strip() else []
    for node in source.body:
        if isinstance(node, ast.ClassDef) and _is_document(node):
            parts.append(_table(node, getattr(module, node.name)))
    parts += _constants(source.body, module)
    return "\n".join(parts)


def _is_document(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)


def _constants(body: list[ast.stmt], module: types.ModuleType) -> list[str]:
    """Return a table of the module's numbers and texts that have a meaning after them."""
    rows = [
        f"| `{name}` | `{value}` | {_cell(meaning)} |"
        for name, meaning in _meanings(body)
        if isinstance(value := getattr(module, name), str | int | float)
    ]
    return (
        ["\n".join(["| name | value | meaning |", "|---|---|---|", *rows]) + "\n"] if rows else []
    )


def _table(node: ast.ClassDef, kind: Any) -> str:  # noqa: ANN401 - a named tuple's class
    words = " ".join((ast.get_docstring(node) or "").split())
    meanings = dict(_meanings(node.body))
    rows = [
        f"| `{name}` | {_value(kind, name)} | {_cell(meanings.get(name, ''))} |"
        for name in kind._fields
    ]
    head = [f"### {node.name}\n", f"{words}\n", "| key | value | meaning |", "|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _meanings(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the name and the meaning of each field or constant that has one."""
    for statement, after in zip(body, body[1:], strict=False):
        name = _name_of(statement)
        if name and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            yield name, " ".join(str(after.value.value).split())


def _name_of(statement: ast.stmt) -> str:
    """Return the name of a field or constant; empty if the statement is neither."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    target = statement.target if isinstance(statement, ast.AnnAssign) else next(iter(targets), None)
    return target.id if isinstance(target, ast.Name) else ""


def _value(kind: Any, name: str) -> str:  # noqa: ANN401 - a named tuple's class
    words = _cell(words_of(kind.__annotations__[name]))
    if name not in kind._field_defaults:
        return words
    return f"{words}; default `{_cell(repr(kind._field_defaults[name]))}`"


def words_of(kind: Any) -> str:  # noqa: ANN401 - a type of a document
    """Return a type in words, for example `list of number, 0 to 100`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated and isinstance(arguments[1], ReadBy):
        return ", ".join([arguments[1].words, *map(_check_words, arguments[2:])])
    if origin is Annotated and NOT_NULL in arguments:
        plain = next(one for one in get_args(arguments[0]) if one is not type(None))
        checks = [check for check in arguments[1:] if check is not NOT_NULL]
        return ", ".join([words_of(plain), *map(_check_words, checks)])
    if origin is Annotated:
        return ", ".join([words_of(arguments[0]), *map(_check_words, arguments[1:])])
    if origin in (Union, types.UnionType):
        return " or ".join("null" if one is type(None) else words_of(one) for one in arguments)
    if origin is list:
        return f"list of {words_of(arguments[0])}"
    if origin is tuple:
        return f"[{', '.join(map(words_of, arguments))}]"
    if origin is dict:
        return f"object: {words_of(arguments[0])} → {words_of(arguments[1])}"
    if kind in NAMES:
        return NAMES[kind]
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


def _check_words(check: Any) -> str:  # noqa: ANN401 - a Bounds or a Check
    if isinstance(check, Bounds):
        return f"{check.low:g} to {check.high:g}"
    return str(check.words)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


NAMES = {bool: "true or false", int: "whole number", float: "number", str: "text", object: "any"}


if __name__ == "__main__":
    sys.exit(main())
