"""A machine without an engine whose kernel, and so clock and boot id, are its own: user-mode Linux in a container."""

import shlex
import sys

from containers import PROJECT_DIR
from docker_hosts import BareMachine, docker

from cluster.engine.image import BASE_IMAGE

FOLDER = PROJECT_DIR / "tests" / "netem"
sys.path.insert(0, str(FOLDER))
from uml import one_processor  # noqa: E402

IMAGE = "gradwire-netem-host"
MEMORY = "/memory:exec,size=8g"  # of which the guest's memory and disk take what they use
CAPABILITIES = ("NET_ADMIN", "NET_RAW")  # to hand over the address, and all packets


class KernelMachine(BareMachine):
    """A machine that runs a kernel of its own; see BareMachine."""

    def exec(self, *argv):
        """Run a command in the guest: `docker exec` would run it in the container around it."""
        done = self.ssh(shlex.join(argv))
        assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def set_clock_ahead(self, seconds):
        """Set the guest's clock ahead by so many seconds; no other clock."""
        self.exec("date", "--set", f"+{seconds} seconds")

    def _build_image(self):
        words = ("--target", "host", "--build-arg", f"BASE_IMAGE={BASE_IMAGE}")
        docker(
            "build",
            "--quiet",
            "--tag",
            IMAGE,
            *words,
            "--file",
            FOLDER / "guest.Dockerfile",
            FOLDER,
        )

    def _run_container(self):
        words = ["--detach", "--name", self.container, "--hostname", self.name]
        words += ["--network", self._network, "--tmpfs", MEMORY, *one_processor()]
        words += [word for one in CAPABILITIES for word in ("--cap-add", one)]
        docker("run", *words, IMAGE)
