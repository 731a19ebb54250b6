"""A task in a user's file is found, checked and sent to the nodes."""

import inspect
import json
import re
import textwrap

import pytest

import node.tasks.user_task
from cluster.base.errors import UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.run.program import training
from node.base.options import OptionError
from node.training.config import parse_config

# torch is imported inside the function, because it is not installed here.
MINE = """
def make_task(width: int = 16, noise: float = 0.5, fast: bool = False):
    import torch

    return torch.nn.Linear(width, 1), [], []
"""


@pytest.fixture
def mine(tmp_path):
    """A function that writes a task's file and returns the value for --task."""

    def write(text=MINE, name="make_task", file="mine.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
        return f"{tmp_path}/{file}:{name}"

    return write


def test_the_documentation_shows_the_example_of_the_code():
    doc = inspect.getdoc(node.tasks.user_task)
    example = textwrap.dedent(re.search(r"    import torch.*?(?=\n\S)", doc, re.DOTALL)[0])
    assert example.strip() in (PROJECT_DIR / "docs" / "tasks.md").read_text()


def test_its_options_are_checked(mine):
    flags = ["--task", mine(), "--task-set", "width=7", "--task-set", "fast=yes"]
    assert parse_config(flags, {}).task_options == {"width": 7, "noise": 0.5, "fast": True}
    with pytest.raises(OptionError, match="unknown option of task .*'widht': did you mean 'width'"):
        parse_config(["--task", mine(), "--task-set", "widht=7"], {})
    with pytest.raises(OptionError, match="--task-set width: 'x' is not a whole number"):
        parse_config(["--task", mine(), "--task-set", "width=x"], {})
    with pytest.raises(
        OptionError, match="unknown option of task .*'dropout': there is fast, noise"
    ):
        parse_config(["--task", mine(), "--dropout", "0.1"], {})


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (MINE, "mak_task", "unknown task in .*: did you mean 'make_task'"),
        (MINE + "\nSIZE = 3\n", "SIZE", "is no function that makes a task, but 3"),
        (MINE + "\nclass Mine: pass\n", "Mine", "is no task: derive it from node.tasks.base.Task"),
        (MINE + "\n1 / 0\n", "make_task", r"mine.py:\d+: ZeroDivisionError"),
        (MINE.replace("def", "deaf"), "make_task", "mine.py: SyntaxError"),
        (MINE.replace(": int = 16", ""), "make_task", "mine.py:2: width has no default"),
        (
            MINE.replace("width", "loss"),
            "make_task",
            "mine.py:2: loss is a name of every task's own",
        ),
        (MINE.replace("width", "function"), "make_task", "mine.py:2: function is a name of every"),
        (MINE.replace("width", "settled"), "make_task", "mine.py:2: settled is a name of every"),
        (
            MINE.replace("width", "needed_packages"),
            "make_task",
            "needed_packages is a name of ever",
        ),
        (
            MINE.replace("width", "essential_ranks"),
            "make_task",
            "essential_ranks is a name of ever",
        ),
        (MINE.replace("width", "regroups"), "make_task", "mine.py:2: regroups is a name of every"),
    ],
)
def test_mistakes_in_it_are_named(mine, text, name, message):
    with pytest.raises(OptionError, match=message):
        parse_config(["--task", mine(text, name)], {})


@pytest.mark.parametrize("words", [["--task", "{}"], ["--task={}"]])
def test_its_folder_goes_to_the_nodes(mine, tmp_path, words):
    program = training([word.format(mine()) for word in words] + ["--strategy", "ddp"])
    assert program.name == "ddp"
    assert program.folder == tmp_path
    assert program.argv[-4:] == ("--strategy", "ddp", "--task", "mine.py:make_task")
    assert program.config["task_options"]["width"] == 16


def test_a_strategy_may_come_with_it(mine, tmp_path):
    strategy = mine(
        (PROJECT_DIR / "docs" / "strategies.md")
        .read_text()
        .split("```python\n")[1]
        .split("```")[0],
        "NowAndThen",
        "how.py",
    )
    program = training(["--task", mine(), "--strategy", strategy])
    assert program.folder == tmp_path
    assert program.argv[-4:] == ("--strategy", "how.py:NowAndThen", "--task", "mine.py:make_task")
    deeper = mine(MINE, file="deeper/mine.py")
    with pytest.raises(UsageError, match="in different folders"):
        training(["--task", deeper, "--strategy", strategy])
    program = training(["--task", deeper, "--strategy", strategy], tmp_path)
    assert program.argv[-1] == "deeper/mine.py:make_task"


def test_where_a_module_is_missing_the_nodes_check_the_options(mine):
    task = mine("import a_module_of_the_nodes\n" + MINE)
    program = training(["--task", task, "--task-set", "x=1"])
    assert program.config["task_options"] == {"x": "1"}
    assert json.dumps(program.config)


def test_checkpoints_go_back_to_the_nodes(mine, tmp_path):
    run = tmp_path / "a-run"
    with pytest.raises(UsageError, match="no checkpoints in .*a-run"):
        training(["--resume", str(run)])
    (run / "files/node1").mkdir(parents=True)
    (run / "files/node1/checkpoint-rank0-step5.pt").touch()
    program = training(["--resume", str(run)])
    assert (program.folder, program.resume) == (None, run)
    assert program.argv[-2:] == ("--resume", ".resume")
    program = training(["--task", mine(), "--resume", str(run)])
    assert (program.folder, program.resume) == (tmp_path, run)
    assert program.argv[-2:] == ("--resume", ".resume")
    assert not training(["--strategy", "ddp"]).sends
