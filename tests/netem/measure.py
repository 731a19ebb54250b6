"""Measures by hand on a kernel that has netem: runs `tests/conformance.py` or `tests/power.py` in user-mode Linux.

    python tests/netem/measure.py conformance         # wan, mobile, mobile-real x full, ring on 4 nodes, and grids
    python tests/netem/measure.py conformance --profiles mobile-real --full        # own flags instead
    python tests/netem/measure.py power --profile mobile --contracts 3

Writes into runs/NAME-netem. The grid `fast` is left out: the guest's one processor does not carry that much.
"""

import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import uml
from guest import run_guest

from cluster.base.paths import PROJECT_DIR

PROFILES = "--profiles wan mobile mobile-real --topologies full ring"
GRIDS = "--grids delays rates jitter uniform-jitter losses bursts flaws"
# The program of each measurement, and its default flags.
COMMANDS = {
    "conformance": ("tests/conformance.py", f"{PROFILES} {GRIDS}"),
    "power": ("tests/power.py", "--profile mobile --contracts 3"),
}
TIMEOUT_S = 5400.0


def main() -> int:
    """Boot the guest, measure, and copy the results."""
    reason = uml.unavailable()
    if reason:
        raise SystemExit(reason)
    name, *words = sys.argv[1:] or [""]
    if name not in COMMANDS:
        raise SystemExit(f"one of {', '.join(COMMANDS)} is to be measured")
    program, flags = COMMANDS[name]
    own = "--wire netem --out /host/found"
    command = f"PYTHONPATH=. python3 {program} {own} {shlex.join(words) or flags}"
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
