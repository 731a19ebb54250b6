"""YAML files that a user wrote: read, or refused in one line."""

from pathlib import Path

import yaml

from cluster.errors import UsageError


def read_yaml(path: Path, hint: str = "") -> object:
    """What a file says.

    Args:
        path: of the file.
        hint: what to try where it cannot be read.

    Raises:
        UsageError: there is no such file, it is no text or no YAML; the message says in which line.
    """
    try:
        return yaml.safe_load(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not YAML: it is no text in UTF-8", hint) from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {_in_one_line(error)}", hint) from error


def _in_one_line(error: yaml.YAMLError) -> str:
    """PyYAML draws the place, over several lines; a line and a column say it, too."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    return f"{error.problem} in line {mark.line + 1}, column {mark.column + 1}"
