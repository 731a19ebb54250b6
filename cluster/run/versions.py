"""Which versions a run is made with: of the program on the nodes, of the image and of gradwire itself."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata

from cluster.base.errors import ClusterError
from cluster.base.paths import CODE_DIR, IS_CHECKOUT
from cluster.base.spec import ClusterSpec
from cluster.base.subprocesses import run_bounded
from cluster.engine.client import Engine
from cluster.engine.container import Container
from cluster.ssh.fleet import Fleet

VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,63}")
PATIENCE_S = 10.0
# Not by importing torch: that takes seconds, and its metadata say the same in a tenth of one.
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
    """For run.yml: {"image_id", "node_hosts", "versions"}; what nobody knows is empty.

    `node_hosts`: node -> host, of nodes that are on other machines. `versions`: {"gradwire", "commit", "python",
    "torch"}; one node is asked, as all are made of one image, and it harms nothing where it says something else.
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
    """{"python", "torch"} of what a node said, empty where that is none."""
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        found = None
    values: Mapping[str, object] = found if isinstance(found, dict) else {}
    return {name: _version(values.get(name)) for name in ("python", "torch")}


def own_version() -> str:
    """Gradwire's; empty in a checkout that was never installed."""
    try:
        return metadata.version("gradwire")
    except metadata.PackageNotFoundError:
        return ""


def own_commit() -> str:
    """The checkout's commit, with `-dirty` where files differ from it; empty where there is no checkout, or no git."""
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
