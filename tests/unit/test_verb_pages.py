"""docs/verbs/ has a page for every verb, and each page's flags are those that the verb takes."""

import importlib.util

import pytest

from cluster.__main__ import VERBS
from cluster.base.paths import PROJECT_DIR
from cluster.cli.command_line import run_verb

spec = importlib.util.spec_from_file_location("pages", PROJECT_DIR / "tests" / "verb_pages.py")
assert spec and spec.loader
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)

STALE = "docs/verbs/ is stale: python tests/verb_pages.py writes it"


def test_the_readme_can_be_read_in_one_sitting():
    assert len((PROJECT_DIR / "README.md").read_text().splitlines()) <= 130


def test_every_verb_has_a_page_and_every_page_a_verb():
    assert {path.stem for path in pages.FOLDER.iterdir()} == {"README", *VERBS}, STALE


@pytest.mark.parametrize("verb", VERBS)
def test_a_page_says_what_the_verb_takes(verb):
    page = (pages.FOLDER / f"{verb}.md").read_text()
    assert page.startswith(f"# {verb}\n")
    assert page == pages.page_with(page, pages.written(verb)), STALE
    assert "\n## Examples\n" in page and "\n```\n$ " in page, "examples with their output"


def test_the_table_has_every_verb():
    page = (pages.FOLDER / "README.md").read_text()
    assert page == pages.page_with(page, pages.index()), STALE


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_is_explained(verb):
    unexplained = [a.option_strings or a.dest for a in pages.parser_of(verb)._actions if not a.help]
    assert unexplained == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_with_one_value_can_be_set_by_the_variable_of_its_name(verb, monkeypatch):
    actions = pages.parser_of(verb)._actions
    needed = ["x" for a in actions if not a.option_strings and a.nargs in (None, "+")]

    def read(dest, *words):
        found = []
        assert run_verb(pages.parser_of(verb), found.append, [*words, *needed]) == 0
        return getattr(found[0], dest)

    for action in actions:
        if action.option_strings and action.nargs is None and action.default != []:
            flag = next(one for one in action.option_strings if one.startswith("--"))
            value = action.choices[-1] if action.choices else "7"
            with monkeypatch.context() as environ:
                environ.setenv(f"GRADWIRE_{flag[2:].replace('-', '_').upper()}", value)
                by_variable = read(action.dest)
            assert by_variable == read(action.dest, flag, value) != action.default, flag
