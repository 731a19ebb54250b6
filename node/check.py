"""Checks a node for `cluster.doctor`: name resolution, peers, torch.

    python3 -m node.check node1 node2 node3        # the names that must resolve, and answer a ping

Prints one JSON object: what is wrong with names and peers (empty where nothing is), and which torch is here.
"""

import json
import socket
import subprocess
import sys

PING_TIMEOUT_S = 10  # longer than the round trip of the slowest profile


def main() -> int:
    """Check, print."""
    names = sys.argv[1:]
    addresses = {name: _resolve(name) for name in names}
    report = {
        "names": [
            problem for name, address in addresses.items() if (problem := _fault(name, address))
        ],
        "peers": _unreachable([name for name in names if name != socket.gethostname()]),
        **_torch(),
    }
    print(json.dumps(report))
    return 0


def _resolve(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""


def _fault(name: str, address: str) -> str:
    if not address:
        return f"{name} does not resolve"
    # Gloo binds to what its own name resolves to: on loopback no peer would ever find it.
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


def _torch() -> dict[str, object]:
    try:
        import torch
    except ImportError as error:
        return {"torch": "", "torch_error": str(error), "gpus": 0}
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {"torch": torch.__version__, "torch_error": "", "gpus": gpus}


if __name__ == "__main__":
    sys.exit(main())
