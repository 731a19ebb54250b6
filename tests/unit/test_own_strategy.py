"""A strategy in a user's file is found, checked and sent to the nodes."""

import ast
import inspect
import json
import re
import textwrap

import pytest

import node.strategies.base
from cluster.base.errors import UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.run.program import training
from node.base.options import OptionError
from node.training.config import parse_config

BASE = inspect.getdoc(node.strategies.base) or ""
MINE = textwrap.dedent(re.search(r"    from dataclasses.*?(?=\n\S)", BASE, re.DOTALL)[0])
MINE = MINE.replace("'''", '"""')
DEFAULT = ' = option(50, "local steps between two averages", at_least=1)'


@pytest.fixture
def mine(tmp_path):
    """A function that writes a strategy's file and returns the value for --strategy."""

    def write(text=MINE, name="NowAndThen", where=tmp_path):
        (where / "mine.py").write_text(text)
        return f"{where}/mine.py:{name}"

    return write


def test_the_readme_shows_the_example_of_the_code():
    assert MINE.strip() in (PROJECT_DIR / "docs" / "strategies.md").read_text()
    lines = ast.get_source_segment(MINE, ast.parse(MINE).body[-1])
    assert len([line for line in lines.splitlines() if line.strip()]) <= 10


def test_its_options_are_checked(mine):
    options = parse_config(["--strategy", mine(), "--set", "every=7"], {}).strategy_options
    assert options == {"every": 7}
    with pytest.raises(OptionError, match="unknown option .*'evry': did you mean 'every'"):
        parse_config(["--strategy", mine(), "--set", "evry=7"], {})
    with pytest.raises(OptionError, match="must be at least 1, not 0"):
        parse_config(["--strategy", mine(), "--set", "every=0"], {})


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (MINE, "NowAndThem", "unknown strategy in .*: did you mean 'NowAndThen'"),
        (MINE, "option", "is no strategy: derive it from"),
        (MINE.replace("@dataclass", ""), "NowAndThen", "is no dataclass"),
        (MINE + "\n1 / 0\n", "NowAndThen", r"mine.py:\d+: ZeroDivisionError"),
        (MINE.replace("def", "deaf"), "NowAndThen", "mine.py: SyntaxError"),
        (MINE.replace(DEFAULT, ""), "NowAndThen", "every has no default"),
    ],
)
def test_mistakes_in_it_are_named(mine, text, name, message):
    with pytest.raises(OptionError, match=message):
        parse_config(["--strategy", mine(text, name)], {})


def test_it_may_import_what_lies_beside_it(mine, tmp_path):
    (tmp_path / "beside.py").write_text("EVERY = 9\n")
    text = "from beside import EVERY\n" + MINE.replace("50", "EVERY")
    assert parse_config(["--strategy", mine(text)], {}).strategy_options == {"every": 9}


@pytest.mark.parametrize("words", [["--strategy", "{}"], ["--strategy={}"]])
def test_its_folder_goes_to_the_nodes(mine, tmp_path, words):
    program = training([word.format(mine()) for word in words] + ["--set", "every=7"])
    assert program.name == "NowAndThen"
    assert program.folder == tmp_path
    assert program.argv[-4:] == ("--set", "every=7", "--strategy", "mine.py:NowAndThen")
    assert program.config["strategy_options"] == {"every": 7}


def test_a_larger_folder_may_go_with_it(mine, tmp_path):
    where = tmp_path / "strategies"
    where.mkdir()
    program = training(["--strategy", mine(where=where)], tmp_path)
    assert program.folder == tmp_path
    assert program.argv[-1] == "strategies/mine.py:NowAndThen"
    with pytest.raises(UsageError, match="is not in"):
        training(["--strategy", mine()], tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="--folder without"):
        training(["--strategy", "ddp"], tmp_path)


def test_ours_need_no_folder():
    program = training(["--strategy", "ddp"])
    assert (program.folder, program.argv[-2:]) == (None, ("--strategy", "ddp"))


def test_where_a_module_is_missing_the_nodes_check_the_options(mine, tmp_path):
    """The host has no torch, so it cannot import a strategy that imports torch."""
    program = training(
        ["--strategy", mine("import a_module_of_the_nodes\n" + MINE), "--set", "x=1"]
    )
    assert program.config["strategy_options"] == {"x": "1"}
    assert json.dumps(program.config)
