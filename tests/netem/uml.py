"""User-mode Linux: a Linux kernel as an ordinary process, in a container that has nothing else to do.

So nothing need be installed on this machine, whatever Linux it is, and nothing of it stays.
"""

import os
import platform
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

IMAGE = "gradwire-netem-kernel"
MEMORY_MIB = 4096  # most of it is never touched: the guest's three nodes need about 1 GB
CPU_SHARES = (
    262_144  # the most there can be; a container has 1024, and so has a process outside at nice 0
)
TOP_CONTROL_GROUP = {"cgroupfs": "/", "systemd": "-.slice"}  # as each of Docker's drivers names it
MODULES_DIR = "/usr/lib/uml/modules"
SHARED = "/shared"


def unavailable() -> str:
    """Why there is no user-mode Linux here; empty if there is."""
    machine = platform.machine()
    return "" if machine == "x86_64" else f"user-mode Linux is for x86_64, this is {machine}"


def top_control_group() -> tuple[str, ...]:
    """Words of `docker run` for a container beside Docker's own control group; none where Docker has no such driver."""
    words = ("docker", "info", "--format", "{{.CgroupDriver}}")
    driver = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return ("--cgroup-parent", TOP_CONTROL_GROUP[driver]) if driver in TOP_CONTROL_GROUP else ()


@dataclass(frozen=True)
class Guest:
    """A machine to be.

    Attributes:
        root: disk image of its system, mounted for reading and writing.
        data: disk image of its /dev/ubdb, for reading.
        shared: a folder of this machine; where the guest mounts SHARED by hostfs, it sees this.
        init: its first process.
        environ: variables of that process.
    """

    root: Path
    data: Path
    shared: Path
    init: str
    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        """Of its container."""
        return f"gradwire-netem-{os.getpid()}"

    def argv(self) -> list[str]:
        """The kernel as a command, in its container; its memory is a file there."""
        volumes = {self.root: "/root.ext4", self.data: "/data.ext4", self.shared: SHARED}
        return [
            *("docker", "run", "--rm", "--name", self.name, "--network", "none"),
            *(word for here, there in volumes.items() for word in ("--volume", f"{here}:{there}")),
            *("--tmpfs", f"/memory:exec,size={MEMORY_MIB + 512}m", "--env", "TMPDIR=/memory"),
            *("--env", "LD_PRELOAD=/usr/local/lib/whole_registers.so"),
            # What the guest's clock measures shall not be what else this machine does: it stays on one processor,
            # which is its own by weight. In Docker's own control group, which all containers share, it would weigh
            # against other containers only, and together with them no more than one process outside.
            *("--cpuset-cpus", str((os.cpu_count() or 1) - 1), "--cpu-shares", str(CPU_SHARES)),
            *top_control_group(),
            *(IMAGE, "linux.uml", f"mem={MEMORY_MIB}M", "quiet"),
            *("ubd0=/root.ext4", "ubd1r=/data.ext4", "root=/dev/ubda", "rootfstype=ext4", "rw"),
            *("con=null", "con0=null,fd:1", "uml_dir=/memory", "umid=guest"),
            "panic=-1",  # it ends
            f"init={self.init}",
            # What the kernel does not know it hands on to init as a variable.
            *(f"{key}={value}" for key, value in self.environ.items()),
        ]


def boot(guest: Guest, console: Path, timeout_s: float) -> bool:
    """Run a guest until it powers off; returns whether it did so in time. Nothing of it is left running.

    All that it prints goes to the file `console`, and is printed here, too.
    """
    kernel = subprocess.Popen(
        guest.argv(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert kernel.stdout is not None
    reader = threading.Thread(target=_copy, args=(kernel.stdout, console), daemon=True)
    reader.start()
    try:
        kernel.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    finally:
        subprocess.run(["docker", "rm", "--force", guest.name], capture_output=True)
        kernel.wait()
        reader.join()
        kernel.stdout.close()
    return True


def _copy(lines: IO[str], to: Path) -> None:
    with to.open("w") as log:
        for line in lines:
            log.write(line)
            log.flush()
            print(line, end="", flush=True)
