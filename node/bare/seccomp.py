"""The system calls that a node on a host without Docker may not make. Pure.

Those that Docker's default profile refuses to containers with a node's capabilities, as far as its documentation names
them ("Seccomp security profiles for Docker", significant system calls blocked) and later versions add (io_uring, the
mount API of Linux 5.2, clone3). Docker lists what is allowed; we list what is refused, so that a program of the user
never meets a call that we have not heard of. Programs of another architecture (32-bit x86 on x86-64) are ended at their
first call, which is libseccomp's default.
"""

import errno
import socket

# New namespaces, mounts, other processes' namespaces: ways out of a container.
CONTAINMENT = (
    *("unshare", "setns", "mount", "umount", "umount2", "pivot_root", "open_by_handle_at"),
    *("move_mount", "open_tree", "mount_setattr", "fsopen", "fsconfig", "fsmount", "fspick"),
)
# The machine itself, which nodes share.
MACHINE = (
    *("reboot", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64", "settimeofday"),
    *("swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "iopl", "ioperm", "syslog"),
)
# Parts of the kernel with many flaws in the past, or without namespaces.
RISKY = (
    *("bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl", "kcmp"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "lookup_dcookie"),
    *("uselib", "ustat", "sysfs", "vhangup", "fanotify_init", "pidfd_getfd"),
)
# Flags of clone, linux/sched.h: mount, cgroup, uts, ipc, user, pid, net.
NEW_NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)


def seccomp_profile() -> dict[str, object]:
    """Return the profile, as part of an OCI runtime configuration.

    clone3 is answered with ENOSYS, because a filter cannot see its flags: libraries then use clone.
    """
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            _refused((*CONTAINMENT, *MACHINE, *RISKY)),
            _refused(("clone3",), errno.ENOSYS),
            *(_refused(("clone",), args=(_has_bit(0, flag),)) for flag in NEW_NAMESPACES),
            _refused(("socket",), args=(_equals(0, socket.AF_VSOCK),)),
        ],
    }


def _refused(
    names: tuple[str, ...], number: int = errno.EPERM, args: tuple[dict[str, object], ...] = ()
) -> dict[str, object]:
    """Return a rule: these calls fail with this error number; with `args`, only with these arguments."""
    return {
        "names": list(names),
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": number,
        "args": list(args),
    }


def _has_bit(index: int, bit: int) -> dict[str, object]:
    return {"index": index, "value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ"}


def _equals(index: int, value: int) -> dict[str, object]:
    return {"index": index, "value": int(value), "op": "SCMP_CMP_EQ"}
