"""The public surface: what `from cluster import …` offers, and that the two packages stay apart."""

import ast
from pathlib import Path

import pytest

import cluster
from cluster.spec import PROJECT_DIR


def test_every_public_name_can_be_imported():
    for name in cluster.__all__:
        assert getattr(cluster, name).__name__ == name
    with pytest.raises(AttributeError, match="Clutser"):
        cluster.Clutser  # noqa: B018


@pytest.mark.parametrize(
    ("package", "foreign"),
    [
        ("cluster", {"node", "torch", "numpy"}),
        ("node", {"cluster", "docker", "paramiko", "yaml", "rich"}),
    ],
)
def test_host_and_node_never_import_each_other(package, foreign):
    for path in sorted((PROJECT_DIR / package).rglob("*.py")):
        assert not imports(path) & foreign, path


def imports(path: Path) -> set[str]:
    names = set()
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            names |= {alias.name.split(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names.add((statement.module or "").split(".")[0])
    return names
