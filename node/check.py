"""Checks a node for `cluster.doctor`: name resolution, peers, torch.

    python3 -m node.check node1 node2 node3        # the names that must resolve, and answer a ping

Prints one JSON object: what is wrong with names and peers (empty if nothing is), and which torch is installed.
"""

import json
import socket
import subprocess
import sys

from protocol.node_check import NodeCheck
from protocol.reader import document

PING_TIMEOUT_S = 10  # longer than the round trip of the slowest profile


def main() -> int:
    """Check the node and print the result."""
    names = sys.argv[1:]
    addresses = {name: _resolve(name) for name in names}
    faults = (_fault(name, address) for name, address in addresses.items())
    torch, torch_error, gpus = _torch()
    report = NodeCheck(
        names=[fault for fault in faults if fault],
        peers=_unreachable([name for name in names if name != socket.gethostname()]),
        torch=torch,
        torch_error=torch_error,
        gpus=gpus,
    )
    print(json.dumps(document(report)))
    return 0


def _resolve(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""


def _fault(name: str, address: str) -> str:
    if not address:
        return f"{name} does not resolve"
    # Gloo binds to the address of its own name: on loopback no peer would ever find it.
    return f"{name} is {address}, the loopback" if address.startswith("127.") else ""


def _unreachable(peers: list[str]) -> list[str]:
    pings = {
        peer: subprocess.Popen(
            ["ping", "-c", "1", "-W", str(PING_TIMEOUT_S), peer],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for peer in peers
    }
    return [f"{peer} does not answer a ping" for peer, ping in pings.items() if ping.wait() != 0]


def _torch() -> tuple[str, str, int]:
    """Return torch's version, why it cannot be imported, and how many GPUs it sees."""
    try:
        import torch
    except ImportError as error:
        return "", str(error), 0
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return str(torch.__version__), "", gpus


if __name__ == "__main__":
    sys.exit(main())
