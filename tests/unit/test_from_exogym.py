"""docs/from-exogym.md shows exactly the script that is in examples/."""

import ast
import re
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parents[2]


def functions(text):
    """Return each function of a script as its syntax tree, without docstring and return annotation."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            if ast.get_docstring(node):
                del node.body[0]
            found[node.name] = ast.dump(node)
    return found


def test_the_page_shows_the_example():
    page = (PROJECT_DIR / "docs" / "from-exogym.md").read_text()
    theirs, ours = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    example = functions((PROJECT_DIR / "examples" / "rings.py").read_text())
    assert functions(ours) == example
    assert functions(theirs)["make_data"] == example["make_data"]
    added = [line for line in ours.splitlines() if line and line not in theirs.splitlines()]
    assert all(
        re.search("node.exogym|backend|Strategy,|OptimSpec,|Trainer,|^[()]", x) for x in added
    )
