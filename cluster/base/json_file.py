"""Strict JSON (no NaN, no infinity), written atomically."""

import json
import math
from pathlib import Path

from cluster.base.files import write_atomically


def finite(document: object) -> object:
    """The same values, with null for what JSON has no number for: NaN and the infinite."""
    if isinstance(document, float):
        return document if math.isfinite(document) else None
    if isinstance(document, dict):
        return {key: finite(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [finite(value) for value in document]
    return document


def json_text(document: object) -> str:
    """One JSON document, indented for readers."""
    return json.dumps(finite(document), indent=2, allow_nan=False)


def write_json(path: Path, document: object) -> None:
    """Write one JSON document; whoever is killed meanwhile leaves what was there before.

    Raises:
        OSError: it could not be written.
    """
    write_atomically(path, f"{json_text(document)}\n".encode(), 0o666, to_disk=True)
