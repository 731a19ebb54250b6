"""The conformance table on a kernel that has netem: `tests/conformance.py` inside user-mode Linux.

    python tests/netem/conformance.py                 # wan, mobile, mobile-real x full, ring on 4 nodes, and grids
    python tests/netem/conformance.py --profiles mobile-real --full        # flags of tests/conformance.py, instead

Writes into runs/conformance-netem. The grid `fast` is left out: the guest's one processor does not carry that much.
"""

import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import uml
from guest import run_guest

from cluster.base.paths import PROJECT_DIR

OUT = PROJECT_DIR / "runs" / "conformance-netem"
PROFILES = "--profiles wan mobile mobile-real --topologies full ring"
GRIDS = "--grids delays rates jitter uniform-jitter losses bursts flaws"
TIMEOUT_S = 5400.0


def main() -> int:
    """Boot, measure, fetch what was found."""
    reason = uml.unavailable()
    if reason:
        raise SystemExit(reason)
    words = sys.argv[1:] or [*PROFILES.split(), *GRIDS.split()]
    with tempfile.TemporaryDirectory(prefix="gradwire-netem-") as scratch:
        folder = Path(scratch) / "shared"
        folder.mkdir()
        command = "PYTHONPATH=. python3 tests/conformance.py --wire netem --out /host/found"
        holds = run_guest(Path(scratch), folder, f"{command} {shlex.join(words)}", TIMEOUT_S)
        if (folder / "found").exists():
            shutil.copytree(folder / "found", OUT, dirs_exist_ok=True)
            print((OUT / "table.md").read_text())
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
