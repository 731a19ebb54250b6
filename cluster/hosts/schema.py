"""The JSON Schema of a hosts file, for editors: `python -m cluster.schema hosts`."""

from cluster.base.spec import MAX_NODES
from cluster.hosts.hosts_file import ENGINES, KEYS, NAME, NODE, SOCKET, TARGET

MEANINGS = {
    "name": "in messages, and in what status prints",
    "ssh": "as the ssh client takes it: me@box.example, or a name of your ~/.ssh/config",
    "proxy_jump": "over which machine, as ssh -J takes it",
    "engine": "what runs the nodes: docker, or none: gradwire itself, as root (docker)",
    "docker_socket": "of its engine",
    "internal_ip": "by which the other hosts reach it",
    "nodes": "how many nodes it has at most, or which; left out: a share of the other nodes",
    "cpus": "how large that share is, against those of the others (1)",
}
PATTERNS = {"name": NAME, "ssh": TARGET, "proxy_jump": TARGET, "docker_socket": SOCKET}
OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
TYPES: dict[str, dict[str, object]] = {
    **{
        key: {"type": "string", "pattern": f"^(?:{pattern.pattern})$"}
        for key, pattern in PATTERNS.items()
    },
    "engine": {"enum": list(ENGINES)},
    "internal_ip": {"type": "string", "pattern": rf"^{OCTET}(\.{OCTET}){{3}}$"},
    "nodes": {
        "oneOf": [
            {"type": "integer", "minimum": 1, "maximum": MAX_NODES},
            {
                "type": "array",
                "items": {"type": "string", "pattern": f"^(?:{NODE.pattern})$"},
                "minItems": 1,
            },
        ]
    },
    "cpus": {"type": "number", "exclusiveMinimum": 0},
}


def hosts_schema() -> dict[str, object]:
    """Return a schema that accepts what `cluster.hosts.hosts_file` does, and also two hosts of the same name."""
    host = {
        "type": "object",
        "properties": {key: TYPES[key] | {"description": MEANINGS[key]} for key in KEYS["host"]},
        "required": ["name", "ssh"],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gradwire hosts",
        "type": "object",
        "properties": {
            "hosts": {"type": "array", "items": host, "minItems": 1},
            "ssh_config": {
                "type": "string",
                "description": "instead of your ~/.ssh/config, as ssh -F takes it",
            },
            "encrypted": {
                "type": "boolean",
                "description": "what goes between the hosts (no)",
            },
        },
        "required": ["hosts"],
        "additionalProperties": False,
        "if": {"properties": {"hosts": {"minItems": 2}}},
        "then": {"properties": {"hosts": {"items": {"required": ["internal_ip"]}}}},
    }
