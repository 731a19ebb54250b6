"""JSON Schemas of profiles and topologies, for editors: made of the same tables that the parsers use. Pure.

A schema cannot express everything that the parsers refuse: a range whose first value is the larger, or a graph that
does not join all nodes.
"""

import re
from collections.abc import Mapping

from cluster.links import regions
from cluster.links.profiles import FLAGS, WORDS, Profile
from cluster.links.profiles import LIMITS as PROFILE_LIMITS
from cluster.links.topology import BASES
from protocol.link import ACCESS_LIMITS, LIMITS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NODE: dict[str, object] = {"type": "string", "pattern": r"^node[0-9]+$"}

Schema = dict[str, object]


def profile_schema() -> Schema:
    """Return the schema of `--profile ./mine.yml`."""
    words = _described(Profile)
    properties: dict[str, Schema] = {
        **{key: _range(*limits) for key, limits in PROFILE_LIMITS.items()},
        **{key: {"enum": list(known)} for key, known in WORDS.items()},
        **{key: {"type": "boolean"} for key in FLAGS},
        "regions": {"type": "array", "items": {"type": "string"}},
        "between": {"type": "array", "items": _region_pair()},
    }
    for key, schema in properties.items():
        schema["description"] = words.get(key, "")
    return {
        "$schema": DIALECT,
        "title": "gradwire: link profile",
        **closed(properties, required=("rate_mbyte_s", "delay_ms")),
    }


def topology_schema() -> Schema:
    """Return the schema of `--topology ./mine.yml`."""
    values = number_properties(LIMITS)
    both_ways = {"ends": _ends(NODE), **values}
    one_way = {"src": NODE, "dst": NODE, **values}
    properties: dict[str, Schema] = {
        "name": {"type": "string"},
        "base": {"enum": list(BASES), "description": "left out: only the links listed here"},
        "links": {
            "type": "array",
            "items": {
                "oneOf": [
                    closed(both_ways, required=("ends",)),
                    closed(one_way, required=("src", "dst")),
                ]
            },
        },
        "nodes": {
            "type": "object",
            "description": "values of all links from and to a node, and what they carry together",
            "propertyNames": NODE,
            "additionalProperties": closed(number_properties(LIMITS | ACCESS_LIMITS)),
        },
        "isolated": {
            "type": "boolean",
            "description": "nodes without a link cannot reach each other; else packets go hop by hop",
        },
    }
    return {
        "$schema": DIALECT,
        "title": "gradwire: topology",
        "oneOf": [{"enum": list(BASES)}, closed(properties)],
    }


def closed(properties: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": dict(properties),
    }


def number_properties(limits: Mapping[str, tuple[float, float]]) -> dict[str, Schema]:
    """Return the schema of a number for each key, within its bounds."""
    return {key: _number(*bounds) for key, bounds in limits.items()}


def _number(low: float, high: float) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high}


def _range(low: float, high: float) -> Schema:
    number = _number(low, high)
    pair = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
    return {"oneOf": [number, pair]}


def _ends(name: Schema) -> Schema:
    return {"type": "array", "items": name, "minItems": 2, "maxItems": 2, "uniqueItems": True}


def _region_pair() -> Schema:
    properties = {"ends": _ends({"type": "string"}), **number_properties(regions.REGION_LIMITS)}
    return closed(properties, required=regions.KEYS)


def _described(cls: type) -> dict[str, str]:
    """Return the descriptions of a class's attributes by name: in its docstring, one line each."""
    said = re.findall(r"^\s+(\w+): (.+)$", cls.__doc__ or "", re.MULTILINE)
    return dict(said)
