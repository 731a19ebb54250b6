"""Strict JSON (no NaN, no infinity), written atomically."""

import json
import math
from pathlib import Path

from cluster.base.files import write_atomically


def finite(document: object) -> object:
    """Return the same values with null for NaN and infinity, which JSON cannot represent."""
    if isinstance(document, float):
        return document if math.isfinite(document) else None
    if isinstance(document, dict):
        return {key: finite(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [finite(value) for value in document]
    return document


def json_text(document: object) -> str:
    """Return one JSON document, indented."""
    return json.dumps(finite(document), indent=2, allow_nan=False)


def write_json(path: Path, document: object) -> None:
    """Write one JSON document; a kill meanwhile leaves the old file.

    Raises:
        OSError: it could not be written.
    """
    write_atomically(path, f"{json_text(document)}\n".encode(), 0o666, to_disk=True)
