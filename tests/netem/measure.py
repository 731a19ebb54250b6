"""Measures by hand on a kernel that has netem: runs a program of tests/ in user-mode Linux.

    python tests/netem/measure.py conformance         # wan, mobile, mobile-real x full, ring on 4 nodes, and grids
    python tests/netem/measure.py conformance --profiles mobile-real --full        # own flags instead
    python tests/netem/measure.py power --profile mobile --contracts 3
    python tests/netem/measure.py planted --seeds 1
    python tests/netem/measure.py chaos               # restarts of dockerd, which others use elsewhere
    python tests/netem/measure.py bench wire --repeat 2
    python tests/netem/measure.py links               # the tests of tests/links, with netem as their wire
    python tests/netem/measure.py links tests/links/test_contract.py -k delay

Writes into runs/NAME-netem. The grid `fast` is left out: the guest's one processor does not carry that much.
"""

import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import uml
from guest import run_guest

from cluster.base.paths import PROJECT_DIR

PROFILES = "--profiles wan mobile mobile-real --topologies full ring"
GRIDS = "--grids delays rates jitter uniform-jitter losses bursts flaws"
FOUND = "/host/found"
OWN = f"--wire netem --out {FOUND}"
# README's commands install Python packages, and the guest reaches no network.
NOT_THERE = "--ignore tests/links/test_readme.py"
# The program of each measurement, its default flags, and what follows these.
COMMANDS = {
    "conformance": ("tests/conformance.py", f"{PROFILES} {GRIDS}", OWN),
    "power": ("tests/power.py", "--profile mobile --contracts 3", OWN),
    "planted": ("tests/planted_errors.py", "--profile mobile --seeds 2", OWN),
    "chaos": (
        "tests/chaos.py",
        "--kinds 'dockerd restarted' --faults 12 --stretch 2.5",
        f"> {FOUND}/table.md",
    ),
    "bench": ("tests/bench.py", "wire --repeat 1", f"> {FOUND}/table.md"),
    "links": (f"-m pytest -m 'not nightly' -v {NOT_THERE}", "tests/links", f"> {FOUND}/table.md"),
}
# E2E_WIRE: of tests; GRADWIRE_CHAOS_DOCKERD: restarts dockerd.
ENVIRONMENT = "E2E_WIRE=netem GRADWIRE_CHAOS_DOCKERD=restart-dockerd PYTHONPATH=."
TIMEOUT_S = 5400.0


def main() -> int:
    """Boot the guest, measure, and copy the results."""
    reason = uml.unavailable()
    if reason:
        raise SystemExit(reason)
    # A SIGTERM ends the guest, too, as Ctrl-C does; in the background Ctrl-C is ignored.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    name, *words = sys.argv[1:] or [""]
    if name not in COMMANDS:
        raise SystemExit(f"one of {', '.join(COMMANDS)} is to be measured")
    program, flags, own = COMMANDS[name]
    run = f"{ENVIRONMENT} python3 {program} {shlex.join(words) or flags} {own}"
    command = f"mkdir -p {FOUND} && {run}"
    out = PROJECT_DIR / "runs" / f"{name}-netem"
    with tempfile.TemporaryDirectory(prefix="gradwire-netem-") as scratch:
        folder = Path(scratch) / "shared"
        folder.mkdir()
        holds = run_guest(Path(scratch), folder, command, TIMEOUT_S)
        if (folder / "found").exists():
            shutil.copytree(folder / "found", out, dirs_exist_ok=True)
            print((out / "table.md").read_text())
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
