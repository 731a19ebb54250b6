"""`python -m cluster`: the verbs, one line each; `python -m cluster VERB …` is `python -m cluster.VERB …`."""

import ast
import importlib
import sys
from pathlib import Path

from cluster.errors import EXIT_DONE, EXIT_USAGE, unknown

VERBS = (
    "launch",
    "up",
    "status",
    "shape",
    "verify",
    "logs",
    "export",
    "doctor",
    "down",
    "image",
    "profiles",
)


def main() -> int:
    """List the verbs, or run one."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("python -m cluster.VERB --help tells more of each:\n")
        for verb in VERBS:
            print(f"  {verb:<9} {_first_line(verb)}")
        return EXIT_DONE
    verb = sys.argv[1]
    if verb not in VERBS:
        print(f"error: {unknown('verb', verb, VERBS)}", file=sys.stderr)
        return EXIT_USAGE
    sys.argv = [f"cluster.{verb}", *sys.argv[2:]]
    exit_code: int = importlib.import_module(f"cluster.{verb}").main()
    return exit_code


def _first_line(verb: str) -> str:
    """The first line of a verb's docstring, without importing it."""
    source = (Path(__file__).parent / f"{verb}.py").read_text()
    return (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
