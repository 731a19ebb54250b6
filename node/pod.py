"""Runs one node that is a pod of Kubernetes: makes its data device, applies its links, runs its ranks.

    python -m node.pod        # the order is in /etc/gradwire: protocol/pod_order.py

`python -m cluster.export RUN --kubernetes IMAGE` writes the pods. A pod has no sshd: nothing logs in, and nothing
measures the links. Ranks are supervised as on any node (node/rank.py); if one fails, or the pod is told to end, the
others get SIGTERM. The exit code is the first failed rank's.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from node.vxlan import DEVICE, host_lines, make_device
from node.wire.commands import WireError, run
from protocol.node_plan import NodePlan
from protocol.pod_order import ORDER_FILE, ORDER_FOLDER, PROGRAM_FILE, PodOrder, parse_pod_order
from protocol.rank import EXIT_USAGE, StartOrder
from protocol.reader import FormatError, document

HOSTS_FILE = Path("/etc/hosts")
EXIT_FAILED = 1
DEVICE_VARIABLES = dict.fromkeys(("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), DEVICE)


def main() -> int:
    """Run the pod; returns its exit code."""
    folder = Path(ORDER_FOLDER)
    try:
        order = parse_pod_order((folder / ORDER_FILE).read_bytes())
        prepare(order, folder / PROGRAM_FILE)
    except FormatError as error:
        print(f"node.pod: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (WireError, OSError) as error:
        print(f"node.pod: {error}", file=sys.stderr)
        return EXIT_FAILED
    return run_ranks(order.ranks)


def prepare(order: PodOrder, program: Path) -> None:
    """Make the data device, apply the links, unpack the program.

    Raises:
        WireError: the node cannot do it. OSError: a file cannot be written.
    """
    with HOSTS_FILE.open("a", encoding="utf-8") as file:
        file.write(host_lines(order.vxlan))
    device = make_device(order.vxlan)
    print(f"{order.vxlan.node}: {device.name} is {order.vxlan.address}", flush=True)
    if order.plan is not None:
        print(apply_links(order.plan), flush=True)
    if program.exists():
        for place in {rank.cwd for rank in order.ranks}:
            Path(place).mkdir(parents=True, exist_ok=True)
            run(["tar", "-x", "-C", place, "-f", str(program)])


def apply_links(plan: NodePlan) -> str:
    """Apply the links and return a line that says how; raises as `commands.run`."""
    said = run([sys.executable, "-m", "node.wire", "apply"], json.dumps(document(plan)))
    report = json.loads(said)
    notes = "".join(f"; {note}" for note in report["notes"])
    return f"{plan.node}: {len(plan.links)} links by {report['wire']}, not measured{notes}"


def run_ranks(orders: Sequence[StartOrder]) -> int:
    """Run all ranks to their ends; returns 0, or the exit code of the first that failed."""
    ranks = {rank.pid: rank for rank in map(_start, orders)}

    def end(*_: object) -> None:
        for rank in ranks.values():
            assert rank.stdin is not None
            rank.stdin.close()  # tells its supervisor to end it

    signal.signal(signal.SIGTERM, end)
    first_failure = 0
    while ranks:
        pid, status = os.wait()  # also of orphans: the pod's first process is their parent
        if pid in ranks:
            code = os.waitstatus_to_exitcode(status)
            ranks.pop(pid).returncode = code
            if code and not first_failure:
                first_failure = code if code > 0 else 128 - code
                end()
    return first_failure


def _start(order: StartOrder) -> subprocess.Popen[bytes]:
    rank = subprocess.Popen(
        [sys.executable, "-m", "node.rank"],
        stdin=subprocess.PIPE,
        env=os.environ | DEVICE_VARIABLES,
    )
    assert rank.stdin is not None
    rank.stdin.write(json.dumps(document(order)).encode() + b"\n")
    rank.stdin.flush()
    return rank


if __name__ == "__main__":
    sys.exit(main())
