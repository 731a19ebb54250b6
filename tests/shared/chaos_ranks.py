"""The program that ranks run while a fault is played; it does not use torch.

    python chaos_ranks.py ring|alone SECONDS KBYTES

In a ring every rank sends to the next one and waits for the one before; alone, it only waits. Then it writes a result
and the result's hash, which shows whether the result is intact.
"""

import hashlib
import os
import socket
import sys
import time
from pathlib import Path

ORDER = Path("/tmp/gradwire-chaos-memory")  # if this file exists, the rank uses up its memory


def main() -> None:
    """Run one rank."""
    mode, seconds, kbytes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    exchange = ring() if mode == "ring" else lambda: None
    print("ready", flush=True)
    for _ in range(round(seconds / 0.05)):
        exchange()
        time.sleep(0.05)
        if ORDER.exists():
            ORDER.unlink()
            hoard()
    leave(Path(os.environ["GRADWIRE_RUN_DIR"]), kbytes)
    print("left", flush=True)


def ring():
    """Connect to the next rank and the one before; return a function that passes a byte on."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    listener = socket.create_server(("0.0.0.0", 29600))
    there = connect(f"node{(rank + 1) % size + 1}")
    here, _ = listener.accept()

    def exchange():
        there.sendall(b"x")
        if not here.recv(1):
            raise RuntimeError("Connection closed by peer")

    return exchange


def connect(host):
    while True:
        try:
            return socket.create_connection((host, 29600))
        except OSError:
            time.sleep(0.1)


def hoard() -> None:
    kept = []
    while True:
        kept.append(bytearray(b"x") * 10**7)


def leave(folder: Path, kbytes: int) -> None:
    content = (f"{folder.name} {os.environ['RANK']} " * 1000).encode()[:1000] * kbytes
    (folder / "result.bin").write_bytes(content)
    (folder / "result.sha256").write_text(f"{hashlib.sha256(content).hexdigest()}  result.bin\n")


if __name__ == "__main__":
    main()
