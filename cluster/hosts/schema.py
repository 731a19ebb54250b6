"""The JSON Schema of a hosts file, for editors: `python -m cluster.schema hosts`."""

from typing import Any

from cluster.hosts.hosts_file import KEYS, NAME, SOCKET, TARGET

MEANINGS = {
    "name": "in messages, and in what status prints",
    "ssh": "as the ssh client takes it: me@box.example, or a name of your ~/.ssh/config",
    "proxy_jump": "over which machine, as ssh -J takes it",
    "docker_socket": "of its engine",
}
PATTERNS = {"name": NAME, "ssh": TARGET, "proxy_jump": TARGET, "docker_socket": SOCKET}


def hosts_schema() -> dict[str, Any]:
    """Accepts what `cluster.hosts.hosts_file` does."""
    host = {
        "type": "object",
        "properties": {
            key: {
                "type": "string",
                "pattern": f"^(?:{PATTERNS[key].pattern})$",
                "description": MEANINGS[key],
            }
            for key in KEYS["host"]
        },
        "required": ["name", "ssh"],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gradwire hosts",
        "type": "object",
        "properties": {
            "hosts": {"type": "array", "items": host, "minItems": 1, "maxItems": 1},
            "ssh_config": {
                "type": "string",
                "description": "instead of your ~/.ssh/config, as ssh -F takes it",
            },
        },
        "required": ["hosts"],
        "additionalProperties": False,
    }
