"""Unpacks an archive as the host does: in this process, or in one of another Python.

python3 -I unpack_worker.py FOLDER LIMIT_BYTES PIECE_BYTES < archive      # prints one line of JSON
"""

import json
import re
import subprocess
import sys
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parents[2]
THERE = "/run/here"


def unpack_here(file, folder, limit_bytes, piece_bytes):
    from cluster.ssh.tar_stream import BadArchive
    from cluster.ssh.unpack import unpack

    pieces = iter(lambda: file.read(piece_bytes), b"")
    try:
        return vars(unpack(pieces, folder, limit_bytes, THERE))
    except (BadArchive, OSError) as error:
        return {"error": str(error), "kind": type(error).__name__}


def unpack_in(python, data, *words):
    argv = [python, "-I", __file__, *map(str, words)]
    done = subprocess.run(argv, input=data, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def peak_bytes(process="self"):
    """Return the peak memory of a process; getrusage would also count its parent before exec."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


if __name__ == "__main__":
    sys.path.insert(0, str(PROJECT_DIR))
    folder, *numbers = sys.argv[1:]
    done = unpack_here(sys.stdin.buffer, Path(folder), *map(int, numbers))
    print(json.dumps(done | {"peak_bytes": peak_bytes()}))
