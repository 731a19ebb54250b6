"""A node as an OCI runtime configuration. Pure.

Isolation as of a container of Docker: namespaces of its own, the same capabilities, refused system calls, masked paths
of /proc and /sys, no devices but the harmless ones. Source: OCI runtime specification 1.0.2.
"""

from collections.abc import Sequence

from node.bare.seccomp import seccomp_profile
from protocol.bare import BareNode, Image

BOOT = "/opt/gradwire/node/boot.sh"
INIT = ["/usr/bin/tini", "--", BOOT]
NAMESPACES = ("pid", "ipc", "uts", "mount", "network", "cgroup")
MASKED = (
    *(
        "/proc/acpi",
        "/proc/asound",
        "/proc/interrupts",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
    ),
    *(
        "/proc/sched_debug",
        "/proc/scsi",
        "/proc/timer_list",
        "/sys/firmware",
        "/sys/devices/virtual/powercap",
    ),
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
DOCKERS_SYSCTLS = {  # for sshd's port 22, and ping, without capabilities
    "net.ipv4.ip_unprivileged_port_start": "0",
    "net.ipv4.ping_group_range": "0 2147483647",
}
DEVICES = (  # character devices that every container has: null, zero, full, tty, urandom, random, ptmx, pts
    *((1, 3), (1, 5), (1, 7), (5, 0), (1, 9), (1, 8), (5, 2)),
    (136, None),
)


def bundle(node: BareNode, image: Image, root: str, shared: str) -> dict[str, object]:
    """Return the configuration.

    Args:
        node: the order.
        image: its image.
        root: the path of its root file system.
        shared: the path, on the host, of the folder that it shares with other nodes.
    """
    capabilities = [f"CAP_{name}" for name in node.capabilities]
    return {
        "ociVersion": "1.0.2",
        "hostname": node.hostname,
        "root": {"path": root, "readonly": False},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": INIT,
            "env": [*image.environment, f"HOSTNAME={node.hostname}", "HOME=/root"],
            "cwd": "/root",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
            "noNewPrivileges": True,
        },
        "mounts": _mounts(node, shared),
        "linux": {
            "namespaces": [{"type": kind} for kind in NAMESPACES],
            "sysctl": DOCKERS_SYSCTLS | node.sysctls,
            "maskedPaths": list(MASKED),
            "readonlyPaths": list(READ_ONLY),
            "seccomp": seccomp_profile(),
            "cgroupsPath": f"/gradwire/{node.name}",
            "resources": resources(node),
        },
    }


def resources(node: BareNode) -> dict[str, object]:
    """Return the limits of a node."""
    found: dict[str, object] = {"pids": {"limit": node.pids_limit}, "devices": _device_rules()}
    if node.cpu_quota_us:
        found["cpu"] = {"period": node.cpu_period_us, "quota": node.cpu_quota_us}
    if node.memory_bytes:
        found["memory"] = {"limit": node.memory_bytes, "swap": node.memory_bytes}
    return found


def _device_rules() -> list[dict[str, object]]:
    allowed = [
        {"allow": True, "type": "c", "major": major, "access": "rwm"}
        | ({} if minor is None else {"minor": minor})
        for major, minor in DEVICES
    ]
    return [{"allow": False, "access": "rwm"}, *allowed]


def _mounts(node: BareNode, shared: str) -> list[dict[str, object]]:
    return [
        _mount("/proc", "proc", "nosuid", "noexec", "nodev"),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _mount(
            "/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"
        ),
        _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777"),
        _mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
        _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
        _mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "relatime", "ro"),
        _mount(node.shared, "bind", "rbind", "rw", source=shared),
    ]


def _mount(where: str, kind: str, *options: str, source: str = "") -> dict[str, object]:
    return {"destination": where, "type": kind, "source": source or kind, "options": list(options)}


def overlay_options(lower: str, upper: str, work: str) -> Sequence[str]:
    """Return the mount command's words for a node's root file system: the image below, what it writes above."""
    return ("-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}")
