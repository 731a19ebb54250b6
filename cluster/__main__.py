"""`gradwire`, or `python -m cluster`: lists the verbs; `gradwire VERB …` is `python -m cluster.VERB …`."""

import ast
import importlib
import os
import sys
from argparse import ArgumentParser
from pathlib import Path

from cluster.base.errors import EXIT_DONE, EXIT_USAGE, unknown
from cluster.base.stdout import open_closed_streams, safe_output

VERBS = (
    "launch",
    "watch",
    "up",
    "status",
    "shape",
    "verify",
    "logs",
    "report",
    "export",
    "whatif",
    "sweep",
    "doctor",
    "down",
    "image",
    "profiles",
    "schema",
)


def main() -> int:
    """List the verbs, or run one."""
    open_closed_streams()
    if "_ARGCOMPLETE" in os.environ:
        return _complete()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        return _list_verbs()
    verb = sys.argv[1]
    if verb not in VERBS:
        print(f"error: {unknown('verb', verb, VERBS)}", file=sys.stderr)
        return EXIT_USAGE
    return _run(verb, sys.argv[2:])


def _list_verbs() -> int:
    """Print the list of verbs; a closed pipe and a full disk are handled as for verbs."""
    from cluster.cli.command_line import all_written

    with safe_output() as output:
        print("Help on a verb: python -m cluster.VERB --help, or gradwire VERB --help\n")
        for verb in VERBS:
            print(f"  {verb:<9} {_first_line(verb)}")
        return all_written(output, EXIT_DONE)


def _run(verb: str, words: list[str]) -> int:
    """Run a verb as `python -m cluster.VERB` does."""
    sys.argv = [str(Path(__file__).with_name(f"{verb}.py")), *words]
    exit_code: int = importlib.import_module(f"cluster.{verb}").main()
    return exit_code


def _complete() -> int:
    """Complete a verb, or a verb's options by its own parser, in argcomplete's protocol."""
    import argcomplete
    from argcomplete.lexers import split_line

    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    words = split_line(line, point)[3]
    if len(words) > 1 and words[1] in VERBS:
        os.environ["_ARGCOMPLETE"] = "2"  # the command to complete begins at the second word
        return _run(words[1], [])
    parser = ArgumentParser(prog="gradwire", add_help=False)
    parser.add_argument("verb", choices=VERBS)
    argcomplete.autocomplete(parser)
    return EXIT_DONE


def _first_line(verb: str) -> str:
    """Return the first line of a verb's docstring without importing the verb."""
    source = (Path(__file__).parent / f"{verb}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
