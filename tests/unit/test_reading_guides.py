"""The docstring of every package names all modules of its folder, and only modules that exist."""

import ast
import re
from pathlib import Path

import pytest

from cluster.__main__ import VERBS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(
    path.parent.relative_to(ROOT)
    for package in ("cluster", "node", "protocol")
    for path in (ROOT / package).rglob("__init__.py")
)


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_guide_names_every_module_of_its_folder(folder):
    exempt = set(VERBS) if folder == Path("cluster") else set()
    assert sorted(modules(folder) - exempt - set(named(folder))) == []


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_guide_names_only_modules_that_exist(folder):
    assert [name for name in named(folder) if not exists(folder, name)] == []


def modules(folder):
    """Return the names of the modules and packages in a folder."""
    files = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__", "__main__"}
    return files | {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}


def named(folder):
    """Return what the folder's docstring has in backticks and looks like a module: `rank` or `node.rank`."""
    source = (ROOT / folder / "__init__.py").read_text(encoding="utf-8")
    guide = ast.get_docstring(ast.parse(source)) or ""
    return re.findall(r"`([a-z_]\w*(?:\.[a-z_]\w*)*)/?`", guide)


def exists(folder, name):
    """Check a name of the folder's own, or one with dots from the root: `protocol.link`."""
    path = (ROOT if "." in name else ROOT / folder) / name.replace(".", "/")
    return path.with_name(f"{path.name}.py").is_file() or (path / "__init__.py").is_file()
