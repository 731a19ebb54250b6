"""User-mode Linux: a Linux kernel that runs as an ordinary process, in a separate container.

So nothing needs to be installed on this machine, whatever Linux it has, and nothing is left behind.
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
MEMORY_MIB = 4096  # most of it is never used: the guest's three nodes need about 1 GB
CPU_SHARES = 262_144  # the maximum; containers, and processes outside at nice 0, have 1024
TOP_CONTROL_GROUP = {"cgroupfs": "/", "systemd": "-.slice"}  # as named by Docker's cgroup drivers
MODULES_DIR = "/usr/lib/uml/modules"
SHARED = "/shared"


def unavailable() -> str:
    """Return why user-mode Linux cannot run here; empty if it can."""
    machine = platform.machine()
    return "" if machine == "x86_64" else f"user-mode Linux is for x86_64, this is {machine}"


def top_control_group() -> tuple[str, ...]:
    """Return `docker run` arguments for a container beside Docker's own cgroup; empty if its driver is unknown."""
    words = ("docker", "info", "--format", "{{.CgroupDriver}}")
    driver = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return ("--cgroup-parent", TOP_CONTROL_GROUP[driver]) if driver in TOP_CONTROL_GROUP else ()


def one_processor() -> list[str]:
    """Return `docker run` arguments that give a guest nearly all of one processor.

    Its clock must not measure what else this machine does. In Docker's own cgroup, which all containers share, the
    weight would count against other containers only, and all of them together would weigh no more than one process
    outside.
    """
    last = str((os.cpu_count() or 1) - 1)
    return ["--cpuset-cpus", last, "--cpu-shares", str(CPU_SHARES), *top_control_group()]


@dataclass(frozen=True)
class Guest:
    """The configuration of a guest.

    Attributes:
        root: disk image of its system, mounted read-write.
        data: disk image of its /dev/ubdb, read-only.
        shared: a folder of this machine, which the guest sees if it mounts SHARED by hostfs.
        init: its first process.
        environ: environment variables of that process.
    """

    root: Path
    data: Path
    shared: Path
    init: str
    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of its container."""
        return f"gradwire-netem-{os.getpid()}"

    def argv(self) -> list[str]:
        """Return the command that runs the kernel in its container; its memory is a file there."""
        volumes = {self.root: "/root.ext4", self.data: "/data.ext4", self.shared: SHARED}
        return [
            *("docker", "run", "--rm", "--name", self.name, "--network", "none"),
            *(word for here, there in volumes.items() for word in ("--volume", f"{here}:{there}")),
            *("--tmpfs", f"/memory:exec,size={MEMORY_MIB + 512}m", "--env", "TMPDIR=/memory"),
            *("--env", "LD_PRELOAD=/usr/local/lib/whole_registers.so"),
            *one_processor(),
            *(IMAGE, "linux.uml", f"mem={MEMORY_MIB}M", "quiet"),
            *("ubd0=/root.ext4", "ubd1r=/data.ext4", "root=/dev/ubda", "rootfstype=ext4", "rw"),
            *("con=null", "con0=null,fd:1", "uml_dir=/memory", "umid=guest"),
            "panic=-1",  # ends the guest
            f"init={self.init}",
            # The kernel passes parameters that it does not know to init as variables.
            *(f"{key}={value}" for key, value in self.environ.items()),
        ]


def boot(guest: Guest, console: Path, timeout_s: float) -> bool:
    """Run a guest until it powers off; return whether it did so in time. Nothing of it is left running.

    All of its output goes to the file `console`, and is also printed here.
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
