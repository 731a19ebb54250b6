"""Print the JSON Schema of a YAML file that you write, for completion and checks in editors.

    python -m cluster.schema profile > profile.schema.json
    python -m cluster.schema                                   # all schemas, by kind

Editors that use the YAML language server (VS Code, Neovim, Emacs, …) then complete a YAML file whose first line is
`# yaml-language-server: $schema=profile.schema.json`.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Mapping

from cluster.cli.command_line import make_parser, run_verb
from cluster.hosts.schema import hosts_schema
from cluster.links.schema import profile_schema, topology_schema
from cluster.run.experiment_schema import experiment_schema
from cluster.schedule.schema import schedule_schema
from cluster.sweeps.schema import sweep_schema

SCHEMAS = {
    "profile": profile_schema,
    "topology": topology_schema,
    "schedule": schedule_schema,
    "sweep": sweep_schema,
    "experiment": experiment_schema,
    "hosts": hosts_schema,
}


def main(argv: list[str] | None = None) -> int:
    """Print a schema."""
    parser = make_parser("cluster.schema", __doc__)
    parser.add_argument(
        "kind", nargs="?", choices=sorted(SCHEMAS), help="kind of file (default: all)"
    )
    return run_verb(parser, show_schema, argv)


def show_schema(args: Namespace) -> Mapping[str, object]:
    """Run the verb: print the schemas; with --json, `run_verb` prints them."""
    document: Mapping[str, object] = (
        SCHEMAS[args.kind]() if args.kind else {kind: of() for kind, of in SCHEMAS.items()}
    )
    if not args.json:
        print(json.dumps(document, indent=2))
    return document


if __name__ == "__main__":
    sys.exit(main())
