"""The conformance table on a kernel that has netem: `tests/conformance.py` inside user-mode Linux.

    python tests/netem/conformance.py                 # wan, mobile, mobile-real x full, ring on 4 nodes: half an hour

Writes runs/conformance-netem.md.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import uml
from guest import run_guest

from cluster.spec import PROJECT_DIR

OUT = PROJECT_DIR / "runs" / "conformance-netem.md"
WORDS = "--profiles wan mobile mobile-real --topologies full ring --wire netem --out /host/table.md"
TIMEOUT_S = 5400.0


def main() -> int:
    """Boot, measure, fetch the table."""
    reason = uml.unavailable()
    if reason:
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory(prefix="gradwire-netem-") as scratch:
        folder = Path(scratch) / "shared"
        folder.mkdir()
        command = f"PYTHONPATH=. python3 tests/conformance.py {WORDS}"
        holds = run_guest(Path(scratch), folder, command, TIMEOUT_S)
        if (folder / "table.md").exists():
            OUT.parent.mkdir(exist_ok=True)
            shutil.copy(folder / "table.md", OUT)
            print(OUT.read_text())
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
