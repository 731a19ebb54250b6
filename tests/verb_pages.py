"""Writes the generated part of the pages in docs/verbs/: description, usage and flags.

    python tests/verb_pages.py

Only the lines between a page's two markers are generated; the rest, examples with their output, is written by hand. A
verb without a page gets one. The description and the usage come from the verb's docstring, the flags from its parser,
so that `--help` and the page agree. tests/unit/test_verb_pages.py fails if they differ.
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
# Arguments of a verb that its parser does not know.
MORE = {
    "launch": " [TRAINING FLAGS] [-- SCRIPT|-m MODULE [ARGUMENT …]]",
    "sweep": " [FILE] [TRAINING FLAGS]",
}
UNBROKEN: Any = {"break_long_words": False, "break_on_hyphens": False}  # flags stay whole


def parser_of(verb: str) -> ArgumentParser:
    """Return a verb's parser: the verb is called with a stand-in for the function that would parse and run it."""
    module = importlib.import_module(f"cluster.{verb}")
    made: list[ArgumentParser] = []

    def keep(parser: ArgumentParser, *_: Any, **__: Any) -> int:
        made.append(parser)
        return 0

    with mock.patch.object(module, "run_verb", keep):
        module.main([])
    return made[0]


def index() -> str:
    """Return the table of the verbs."""
    rows = [f"| [{verb}]({verb}.md) | {_prose(parser_of(verb))[0]} |" for verb in VERBS]
    return "\n".join(["| verb | what it does |", "|---|---|", *rows])


def written(verb: str) -> str:
    """Return description, usage and flags of a verb."""
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
    """Return a page with other lines between its markers."""
    return re.sub(
        f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{between}\n\n{END}", page, flags=re.DOTALL
    )


def _paragraphs(parser: ArgumentParser) -> list[str]:
    return re.split(r"\n\s*\n", (parser.description or "").strip())


def _is_examples(paragraph: str) -> bool:
    return paragraph.lstrip().startswith("python -m cluster.")


def _prose(parser: ArgumentParser) -> list[str]:
    """Return the docstring's paragraphs, each on one line."""
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
    """Return a row for each positional and flag, except --help."""
    return [
        f"| {_name(action)} | {_text(_help(parser, action))} |"
        for action in parser._actions
        if action.dest != "help" and action.help != "==SUPPRESS=="
    ]


def _name(action: Action) -> str:
    """Format an action's name as code; argparse is not used, as version 3.13 shows a flag's value only once."""
    if _is_positional(action):
        return _code(_positional(action).strip())
    value = f" {action.metavar or action.dest.upper()}" if action.nargs is None else ""
    return ", ".join(_code(flag + value) for flag in action.option_strings)


def _help(parser: ArgumentParser, action: Action) -> str:
    return (action.help or "") % {"default": action.default, "prog": parser.prog}


def _code(text: str) -> str:
    """Format text as code in a table cell, where a bar would end the cell."""
    return "`" + text.replace("|", r"\|") + "`"


def _text(words: str) -> str:
    """Escape text so that nothing in it reads as a tag or as the end of a table cell."""
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
