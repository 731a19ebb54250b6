"""User-mode Linux: a Linux kernel as an ordinary process. Install it, boot it, and be sure that nothing of it stays."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

KERNEL = "linux.uml"
MODULES_DIR = Path("/usr/lib/uml/modules")
INSTALL = ["apt-get", "install", "--yes", "--no-install-recommends", "user-mode-linux"]
MEMORY_MIB = 4096  # most of it is never touched: the guest's three nodes need about 1 GB


def install() -> str:
    """Install user-mode Linux where it is missing and we may. Returns why there is none; empty if there is."""
    if shutil.which(KERNEL):
        return ""
    if shutil.which("apt-get") is None:
        return f"no {KERNEL} here: Debian has it in the package user-mode-linux"
    if os.geteuid() != 0:
        return f"no {KERNEL} here: sudo {' '.join(INSTALL)}"
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update"], env=environ, capture_output=True)
    done = subprocess.run(INSTALL, env=environ, capture_output=True, text=True)
    if done.returncode != 0:
        return f"user-mode-linux could not be installed: {done.stderr.strip().splitlines()[-1:]}"
    return ""


@dataclass(frozen=True)
class Guest:
    """A machine to be.

    Attributes:
        root: disk image of its system, mounted for reading and writing.
        data: disk image of its /dev/ubdb, for reading.
        init: its first process.
        environ: variables of that process.
    """

    root: Path
    data: Path
    init: str
    environ: Mapping[str, str]

    def argv(self, state_dir: Path) -> list[str]:
        """The kernel as a command; it keeps its sockets in `state_dir`."""
        return [
            # Where we may: what the guest's clock measures shall not be what else this machine does.
            *("nice", "--adjustment=-10"),
            *(KERNEL, f"mem={MEMORY_MIB}M", "quiet"),
            *(f"ubd0={self.root}", f"ubd1r={self.data}"),
            *("root=/dev/ubda", "rootfstype=ext4", "rw"),
            *("con=null", "con0=null,fd:1"),
            *(f"uml_dir={state_dir}", "umid=guest"),
            f"init={self.init}",
            # What the kernel does not know it hands on to init as a variable.
            *(f"{key}={value}" for key, value in self.environ.items()),
        ]


def boot(guest: Guest, console: Path, timeout_s: float) -> bool:
    """Run a guest until it powers off; returns whether it did so in time. Nothing of it is left running.

    All that it prints goes to the file `console`, and is printed here, too.
    """
    with tempfile.TemporaryDirectory(prefix="gradwire-uml-", dir=_memory_dir()) as memory:
        kernel = subprocess.Popen(
            guest.argv(Path(memory)),
            env=os.environ | {"TMPDIR": memory},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert kernel.stdout is not None
        reader = threading.Thread(target=_copy, args=(kernel.stdout, console), daemon=True)
        reader.start()
        try:
            kernel.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        finally:
            _kill(kernel)
            reader.join()
            kernel.stdout.close()
        return True


def _memory_dir() -> Path | None:
    """Where the guest's memory lies, as a file: in ours if there is room, else on disk (None: the usual place)."""
    shm = Path("/dev/shm")
    roomy = shm.is_dir() and shutil.disk_usage(shm).free > MEMORY_MIB << 20
    return shm if roomy else None


def _kill(kernel: subprocess.Popen[str]) -> None:
    """End the kernel and all processes of the guest: each is one of this machine's, in the kernel's group."""
    with suppress(ProcessLookupError):
        os.killpg(kernel.pid, signal.SIGKILL)
    kernel.wait()


def _copy(lines: IO[str], to: Path) -> None:
    with to.open("w") as log:
        for line in lines:
            log.write(line)
            log.flush()
            print(line, end="", flush=True)
