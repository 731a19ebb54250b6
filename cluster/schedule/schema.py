"""The JSON Schema of schedules, for editors: built from the tables that the parser uses. Pure."""

from cluster.engine.resources import LEAST_CPUS, MOST_CPUS, NONE
from cluster.links.profiles import profile_names
from cluster.links.schema import DIALECT, NODE, Schema, closed, number_properties
from cluster.schedule.schedule_file import KINDS, MOST_FLAPS
from protocol.link import LIMITS

TIME: Schema = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"}
MOMENT: Schema = {
    "description": "seconds from the start of the ranks, 12s, or a step of rank 0, step 200",
    "oneOf": [TIME, {"type": "string", "pattern": r"^\s*step\s+[0-9]{1,9}\s*$"}],
}
LINK: Schema = {"type": "string", "pattern": r"^node[0-9]+:node[0-9]+$"}
BOOLEAN: Schema = {"type": "boolean"}


def schedule_schema() -> Schema:
    """Return the schema of schedule files (`launch --schedule ./storm.yml`)."""
    values: dict[str, Schema] = {
        "for": TIME | {"description": "then as before; left out: it stays"},
        "both": BOOLEAN | {"description": "and the way back"},
        "loop": BOOLEAN,
        "down": TIME,
        "up": TIME,
        "times": {"type": "integer", "minimum": 1, "maximum": MOST_FLAPS},
        "link": LINK,
        **number_properties(LIMITS),
        "profile": _profile(),
        "partition": _partition(),
        "flap": LINK,
        "trace": {"type": "string", "description": "a file, from the schedule's folder"},
        "cpus": _cpus(),
        "heal": {"const": True},
    }
    required = {"flap": ("down", "up", "times"), "trace": ("link",)}
    items = []
    for kind, keys in KINDS.items():
        properties = {key: values[key] for key in (kind, *keys)}
        item = closed({"at": MOMENT, **properties}, ("at", kind, *required.get(kind, ())))
        if kind == "link":
            item["anyOf"] = [{"required": [key]} for key in LIMITS]
        items.append(item)
    return {
        "$schema": DIALECT,
        "title": "gradwire: schedule",
        "type": "array",
        "items": {"oneOf": items},
    }


def _profile() -> Schema:
    """Return the schema of a profile: a shipped one, or a file."""
    return {"type": "string", "anyOf": [{"enum": profile_names()}, {"pattern": r"/|\.ya?ml$"}]}


def _partition() -> Schema:
    nodes = {"type": "array", "items": NODE, "minItems": 1, "uniqueItems": True}
    return {"type": "array", "items": nodes, "minItems": 2, "uniqueItems": True}


def _cpus() -> Schema:
    number = {"type": "number", "minimum": LEAST_CPUS, "maximum": MOST_CPUS}
    return {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": r"^(node[0-9]+|all)$"},
        "additionalProperties": {"oneOf": [number, {"const": NONE}]},
    }
