"""Write what the pages in docs/verbs/ take from the verbs themselves: description, usage and flags.

    python tests/verb_pages.py

Of each page only the lines between the two markers are written; what stands around them, examples with their output,
is written by hand. A verb without a page gets one. The description and the usage are the verb's docstring, the flags
those of its parser: so `--help` and the page say the same. tests/unit/test_verb_pages.py fails where they differ.
"""

import importlib
import re
import textwrap
from argparse import Action, ArgumentParser
from pathlib import Path
from typing import Any
from unittest import mock

from cluster.__main__ import VERBS
from cluster.base.paths import PROJECT_DIR

FOLDER = PROJECT_DIR / "docs" / "verbs"
BEGIN = "<!-- written by tests/verb_pages.py, from here -->"
END = "<!-- to here -->"
# What a verb takes besides what its parser knows.
MORE = {
    "launch": " [TRAINING FLAGS] [-- SCRIPT|-m MODULE [ARGUMENT …]]",
    "sweep": " [FILE] [TRAINING FLAGS]",
}
UNBROKEN: Any = {"break_long_words": False, "break_on_hyphens": False}  # flags stay whole


def parser_of(verb: str) -> ArgumentParser:
    """The parser that a verb makes: the verb is called with a stand-in for what would parse and run it."""
    module = importlib.import_module(f"cluster.{verb}")
    made: list[ArgumentParser] = []

    def keep(parser: ArgumentParser, *_: Any, **__: Any) -> int:
        made.append(parser)
        return 0

    with mock.patch.object(module, "run_verb", keep):
        module.main([])
    return made[0]


def index() -> str:
    """The table of the verbs."""
    rows = [f"| [{verb}]({verb}.md) | {_prose(parser_of(verb))[0]} |" for verb in VERBS]
    return "\n".join(["| verb | what it does |", "|---|---|", *rows])


def written(verb: str) -> str:
    """Description, usage and flags of a verb."""
    parser = parser_of(verb)
    return "\n\n".join(
        [
            "## Description",
            *(textwrap.fill(_text(words), 120, **UNBROKEN) for words in _prose(parser)),
            "## Usage",
            "\n".join(["```", _synopsis(verb, parser), "", *_examples(parser), "```"]),
            "## Flags",
            "\n".join(["| flag | what it does |", "|---|---|", *_flags(parser)]),
        ]
    )


def page_with(page: str, between: str) -> str:
    """A page with other lines between its markers."""
    return re.sub(
        f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{between}\n\n{END}", page, flags=re.DOTALL
    )


def _paragraphs(parser: ArgumentParser) -> list[str]:
    return re.split(r"\n\s*\n", (parser.description or "").strip())


def _is_examples(paragraph: str) -> bool:
    return paragraph.lstrip().startswith("python -m cluster.")


def _prose(parser: ArgumentParser) -> list[str]:
    """The docstring's paragraphs, each on one line."""
    return [" ".join(p.split()) for p in _paragraphs(parser) if not _is_examples(p)]


def _examples(parser: ArgumentParser) -> list[str]:
    paragraphs = filter(_is_examples, _paragraphs(parser))
    return [line.strip() for p in paragraphs for line in p.splitlines()]


def _synopsis(verb: str, parser: ArgumentParser) -> str:
    words = "".join(map(_positional, filter(_is_positional, parser._actions)))
    return f"{parser.prog} [FLAGS]{words}{MORE.get(verb, '')}"


def _is_positional(action: Action) -> bool:
    return not action.option_strings


def _positional(action: Action) -> str:
    name = action.metavar or "|".join(action.choices or [action.dest.upper()])
    return {"*": f" [{name} …]", "+": f" {name} …", "?": f" [{name}]"}.get(
        str(action.nargs), f" {name}"
    )


def _flags(parser: ArgumentParser) -> list[str]:
    """A row for each positional and flag, but for --help."""
    return [
        f"| {_name(action)} | {_text(_help(parser, action))} |"
        for action in parser._actions
        if action.dest != "help" and action.help != "==SUPPRESS=="
    ]


def _name(action: Action) -> str:
    """In code; argparse of 3.13 shows a flag's value once, so it is not asked."""
    if _is_positional(action):
        return _code(_positional(action).strip())
    value = f" {action.metavar or action.dest.upper()}" if action.nargs is None else ""
    return ", ".join(_code(flag + value) for flag in action.option_strings)


def _help(parser: ArgumentParser, action: Action) -> str:
    return (action.help or "") % {"default": action.default, "prog": parser.prog}


def _code(text: str) -> str:
    """As code in a cell of a table, where a bar would end the cell."""
    return "`" + text.replace("|", r"\|") + "`"


def _text(words: str) -> str:
    """As text: what looks like a tag, or like the end of a table's cell, is neither."""
    parts = re.split(r"(`[^`]*`)", words)
    return "".join(p if p.startswith("`") else re.sub(r"([<|])", r"\\\1", p) for p in parts)


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, between in [("README", index()), *((verb, written(verb)) for verb in VERBS)]:
        path: Path = FOLDER / f"{name}.md"
        page = path.read_text() if path.exists() else f"# {name}\n\n{BEGIN}\n{END}\n"
        path.write_text(page_with(page, between))


if __name__ == "__main__":
    main()
