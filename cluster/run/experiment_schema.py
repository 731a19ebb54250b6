"""The JSON Schema of experiment.yml, for editors, generated from the table that the parser uses. Pure."""

from cluster.links.schema import DIALECT, Schema, closed
from cluster.run.experiment_file import EXPERIMENT, KEYS, KIND, NOT_OPTIONS
from cluster.run.launch_words import NONE
from cluster.schedule.schema import schedule_schema


def experiment_schema() -> Schema:
    """Return the schema of the file in `launch -f experiment.yml`."""
    properties: dict[str, Schema] = {KIND: {"const": EXPERIMENT}}
    for name, key in KEYS.items():
        properties[name] = {**key.kind.schema, **key.schema, "description": key.meaning}
    properties["schedule"]["anyOf"] = [{"type": "string", "minLength": 1}, _events()]
    not_options = {"enum": ["", *NOT_OPTIONS, *KEYS]}
    properties["options"]["propertyNames"] = {"not": not_options}
    undecided = {"verify": {"enum": [False, NONE]}, "allow_undecided": {"const": True}}
    excluded = [
        {"required": ["program", "options"]},
        {"required": list(undecided), "properties": undecided},
    ]
    head = {"$schema": DIALECT, "title": "gradwire: experiment", "not": {"anyOf": excluded}}
    return head | closed(properties, required=(KIND,))


def _events() -> Schema:
    whole = schedule_schema()
    return {key: whole[key] for key in ("type", "items")}
