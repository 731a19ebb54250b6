"""Runs an unchanged Ray program over the nodes: Ray's head and the program on rank 0, a Ray node on each other rank.

    python -m cluster.launch --image gradwire-ray --essential-ranks 0 --profile wan --folder . -- ray_ranks.py train.py

Needs an image with Ray (tests/foreign/README.md shows one), and must be in the program's folder. `ray.init()` finds the
cluster by RAY_ADDRESS. Ray is told a number of CPUs and GPUs for each node, whatever the node has, and schedules actors
by it. The run ends with the program, or after --seconds for one that never ends.
"""

import argparse
import os
import socket
import subprocess
import sys
import time

PORT = 6379
JOIN_TIMEOUT_S = 300
# Ray needs at least 75 MB. If /dev/shm is too small for it, Ray uses a file under /tmp, and says so.
STORE_BYTES = 200_000_000
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}


def main() -> int:
    """Return the exit code of the program on rank 0, of Ray's node on the others."""
    args = parse(sys.argv[1:])
    os.environ |= QUIET
    if int(os.environ["RANK"]):
        return join(args)
    return lead(args)


def parse(words: list[str]) -> argparse.Namespace:
    """Parse our flags, which come before the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--head-cpus", type=int, default=2, help="that Ray counts on rank 0")
    parser.add_argument("--head-gpus", type=int, default=1, help="that Ray counts on rank 0")
    parser.add_argument("--cpus", type=int, default=4, help="that Ray counts on each other rank")
    parser.add_argument("--seconds", type=float, help="end the program after so long, with 0")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="script.py and its arguments")
    return parser.parse_args(words)


def lead(args: argparse.Namespace) -> int:
    """Start Ray's head, and run the program beside it; return its exit code."""
    head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
    started = subprocess.run(ray_start(*head, cpus=args.head_cpus, gpus=args.head_gpus))
    if started.returncode:
        return started.returncode
    environ = os.environ | {"RAY_ADDRESS": f"{own_address()}:{PORT}"}
    program = subprocess.Popen([sys.executable, *args.program], env=environ)
    try:
        return program.wait(args.seconds)
    except subprocess.TimeoutExpired:
        program.terminate()
        program.wait()
        return 0


def join(args: argparse.Namespace) -> int:
    """Run a Ray node until the head is gone."""
    head = os.environ["MASTER_ADDR"]
    wait_for(head)
    return subprocess.run(
        ray_start(f"--address={head}:{PORT}", "--block", cpus=args.cpus, gpus=0)
    ).returncode


def ray_start(*words: str, cpus: int, gpus: int) -> list[str]:
    """Return Ray's command, with the address at which other nodes reach this one, which Ray cannot find out."""
    own = [f"--node-ip-address={own_address()}", f"--object-store-memory={STORE_BYTES}"]
    return ["ray", "start", *words, *own, f"--num-cpus={cpus}", f"--num-gpus={gpus}"]


def own_address() -> str:
    """Return the node's address on the links."""
    return socket.gethostbyname(socket.gethostname())


def wait_for(head: str) -> None:
    """Wait until Ray's head answers.

    Raises:
        OSError: it does not in time.
    """
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    while True:
        try:
            return socket.create_connection((head, PORT), timeout=10).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
