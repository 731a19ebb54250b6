"""The public surface: what `from cluster import …` offers; host code and node code never import each other."""

import ast
import graphlib
import sys
from functools import cache
from pathlib import Path

import pytest

import cluster
from cluster.base.paths import PROJECT_DIR


def test_every_public_name_can_be_imported():
    for name in cluster.__all__:
        assert getattr(cluster, name).__name__ == name
    with pytest.raises(AttributeError, match="Clutser"):
        cluster.Clutser  # noqa: B018


def test_an_effort_that_does_not_exist_is_refused_before_anything_is_asked():
    with pytest.raises(cluster.ClusterError, match="unknown effort 'fast'\n.*full, normal, quick"):
        cluster.Cluster("lab").verify("fast")


@pytest.mark.parametrize(
    ("package", "foreign"),
    [
        ("cluster", {"node", "torch", "numpy"}),
        ("node", {"cluster", "docker", "paramiko", "yaml", "rich"}),
        ("protocol", {"cluster", "node", "docker", "paramiko", "yaml", "rich", "torch", "numpy"}),
    ],
)
def test_host_and_node_never_import_each_other(package, foreign):
    for path in sorted((PROJECT_DIR / package).rglob("*.py")):
        assert not imports(path) & foreign, path


def test_what_crosses_is_defined_with_the_standard_library_alone():
    """And with little of it, as every command of a node imports it; `__main__.py`, which writes the page, is exempt."""
    for path in sorted((PROJECT_DIR / "protocol").rglob("*.py")):
        assert imports(path) <= {"protocol", *sys.stdlib_module_names}, path
        if path.name == "__main__.py":
            continue
        assert not imports(path) & {"dataclasses", "inspect", "asyncio", "importlib"}, path


@pytest.mark.parametrize("package", ["cluster", "node", "protocol"])
def test_no_module_imports_itself_by_way_of_others(package):
    """Also covers imports for types only and imports within functions."""
    files = {module_name(path): path for path in (PROJECT_DIR / package).rglob("*.py")}
    graph = {name: imported_modules(path) & files.keys() - {name} for name, path in files.items()}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError


# Lowest layer first: each may import those before it; modules not named (verbs, commands, the API) may import all.
STOREYS = {
    "cluster": [
        *(
            "base",
            "ssh",
            "engine",
            "hosts",
            "links",
            "shaping",
            "contract",
            "accounting",
            "schedule",
        ),
        *("reporting", "live", "run", "kubernetes", "sweeps", "lifecycle", "cli"),
    ],
    "node": [
        *(
            "base",
            "supervisor",
            "wire",
            "vxlan",
            "bare",
            "telemetry",
            "probe",
            "accounting",
            "dist",
            "transport",
        ),
        *(
            "rl",
            "replay",
            "mapf",
            "tasks",
            "strategies",
            "training",
            "actor_learner",
            "train",
            "exogym",
            "ksim",
        ),
    ],
}


@pytest.mark.parametrize("package", STOREYS)
def test_no_folder_imports_one_above_it(package):
    root, storeys = PROJECT_DIR / package, STOREYS[package]
    assert {path.parent.name for path in root.glob("*/*.py")} <= set(storeys)
    for path in root.rglob("*.py"):
        own = path.relative_to(root).with_suffix("").parts[0]
        if own in storeys:
            allowed = set(storeys[: storeys.index(own) + 1])
            imported = {
                name.split(".")[1]
                for name in imported_modules(path)
                if name.startswith(f"{package}.")
            }
            assert imported <= allowed, path


def module_name(path: Path) -> str:
    parts = path.relative_to(PROJECT_DIR).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path) -> set[str]:
    """Return every dotted name that an import could refer to."""
    names = set()
    for statement in imports_of(path):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
        elif statement.module:
            names.add(statement.module)
            names |= {f"{statement.module}.{alias.name}" for alias in statement.names}
    return names


def imports(path: Path) -> set[str]:
    names = set()
    for statement in imports_of(path):
        if isinstance(statement, ast.Import):
            names |= {alias.name.split(".")[0] for alias in statement.names}
        else:
            names.add((statement.module or "").split(".")[0])
    return names


@cache
def imports_of(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return all import statements of a file, which is parsed once for all tests."""
    found = ast.walk(ast.parse(path.read_text()))
    return [one for one in found if isinstance(one, (ast.Import, ast.ImportFrom))]
