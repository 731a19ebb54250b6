"""The versions that a run was made with: of Python and torch on the nodes, of the image and of gradwire itself."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata

from cluster.base.errors import ClusterError
from cluster.base.paths import CODE_DIR, IS_CHECKOUT
from cluster.base.processes import run_bounded
from cluster.base.spec import ClusterSpec
from cluster.engine.client import Engine
from cluster.engine.container import Container
from cluster.ssh.fleet import Fleet

VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,63}")
PATIENCE_S = 10.0
# Importing torch takes seconds; its metadata tell the same in a tenth of a second.
ASK = """
import json, platform
from importlib import metadata
said = {"python": platform.python_version()}
try:
    said["torch"] = metadata.version("torch")
except metadata.PackageNotFoundError:
    pass
print(json.dumps(said))
"""


def run_versions(engine: Engine, fleet: Fleet, spec: ClusterSpec) -> dict[str, object]:
    """Return {"image_id", "node_hosts", "versions"} for run.yml; unknown values are empty.

    `node_hosts`: node -> host, for nodes on other hosts. `versions`: {"gradwire", "commit", "python", "torch"}; only
    one node is asked, because all are made from one image; a false answer does no harm.
    """
    node = fleet.nodes[0].name
    containers: list[Container] = []
    with suppress(ClusterError):
        containers = engine.containers(spec.name)
    image_id = next((c.image_id for c in containers if c.node == node), "")
    node_hosts = {c.node: c.host for c in containers if c.host}
    asked = fleet.run(("python3", "-c", ASK), nodes=[node], check=False, patience_s=PATIENCE_S)
    ours = {"gradwire": own_version(), "commit": own_commit()}
    versions = ours | read_versions(asked[node].stdout)
    return {"image_id": image_id, "node_hosts": node_hosts, "versions": versions}


def read_versions(said: bytes) -> dict[str, str]:
    """Parse a node's answer into {"python", "torch"}; invalid values become empty."""
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        found = None
    values: Mapping[str, object] = found if isinstance(found, dict) else {}
    return {name: _version(values.get(name)) for name in ("python", "torch")}


def own_version() -> str:
    """Return gradwire's version; empty in a checkout that was never installed."""
    try:
        return metadata.version("gradwire")
    except metadata.PackageNotFoundError:
        return ""


def own_commit() -> str:
    """Return the checkout's commit, with `-dirty` if files differ from it; empty without a checkout, or without git."""
    if not IS_CHECKOUT:
        return ""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = run_bounded(describe, cwd=CODE_DIR)
    except (OSError, ClusterError):
        return ""
    return _version(done.stdout.strip()) if done.returncode == 0 else ""


def _version(value: object) -> str:
    return value if isinstance(value, str) and VERSION.fullmatch(value) else ""
