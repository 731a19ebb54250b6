"""The JSON Schema of sweep files, for editors, generated from the tables that the parser uses. Pure."""

from cluster.links.schema import DIALECT, Schema, closed
from cluster.links.topology import BASES
from cluster.sweeps.sweep_file import HIGHER, KIND, NOT_OPTIONS, SWEEP
from protocol.link import WIRE_CHOICES

WORD: Schema = {"type": ["string", "number"], "not": {"const": ""}}
SEED: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
SCALAR: Schema = {"type": ["string", "number", "boolean"], "not": {"const": ""}}


def sweep_schema() -> Schema:
    """Return the schema of the file in `python -m cluster.sweep ./sweep.yml`."""
    options = _options()
    targets = closed({figure: {"type": "number"} for figure in HIGHER}) | {"minProperties": 1}
    words = {"type": "array", "items": WORD, "minItems": 1}
    properties: dict[str, Schema] = {
        KIND: {"const": SWEEP},
        "nodes": {"type": "integer", "minimum": 1},
        "nproc_per_node": {"type": "integer", "minimum": 1, "description": "ranks on each"},
        "image": WORD,
        "cpus": WORD | {"description": "processors that a node may use"},
        "memory": WORD,
        "profile": _some(WORD) | {"description": "shipped ones, or files"},
        "topology": _some(WORD) | {"examples": list(BASES)},
        "wire": _some({"enum": list(WIRE_CHOICES)}),
        "link_seed": _some(SEED) | {"description": "draw the links"},
        "isolated": {"type": "boolean", "description": "nodes without a link have no way"},
        "seed": _some(SEED) | {"description": "repetitions, compared with each other"},
        "program": {"anyOf": [words, {"type": "string", "pattern": r"\S"}]},
        "folder": WORD | {"description": "to be sent with a program of your own"},
        "options": options | {"description": "of all runs: a list is compared"},
        "variants": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"anyOf": [options, {"type": "null"}]},
            "description": "name: options that go over those of all",
        },
        "target": targets | {"description": "what runs are ranked by the seconds to"},
        "verify": {"type": "boolean"},
        "predict": _some(WORD) | {"description": "profiles on whose links runs are predicted"},
    }
    head = {"$schema": DIALECT, "title": "gradwire: sweep"}
    return head | closed(properties, required=("profile",))


def _some(one: Schema) -> Schema:
    many = {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}
    return {"anyOf": [one, many]}


def _options() -> Schema:
    value = _some(SCALAR)
    named = {"type": "object", "additionalProperties": value}
    return {
        "type": "object",
        "propertyNames": {"not": {"enum": list(NOT_OPTIONS)}},
        "additionalProperties": {"anyOf": [value, named]},
    }
