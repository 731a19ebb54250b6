"""Injects faults into a real cluster, and reverts those that would last for ever."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial

from chaos_plan import NODES, Fault
from containers import Gradwire

DOCKERD = "GRADWIRE_CHAOS_DOCKERD"  # the command that restarts it
MEMORY = "250m"  # of each node, for a rank that is to use up its memory
TIMEOUT_S = 60
MOST_PAUSES = 50
ENDED_WITH_NODE = 137  # exit code of a `docker exec` that ended its node
RUNS_THERE = "/run/gradwire/runs"

Heal = Callable[[], object]


def nothing() -> None:
    """Do nothing: for faults that `up` repairs by itself."""


def why_not(fault: Fault) -> str:
    """Return why a fault cannot be played here; empty if it can."""
    if fault.kind == "dockerd restarted" and not os.environ.get(DOCKERD):
        return f"others may use this dockerd; {DOCKERD} names a command that restarts it"
    if fault.kind in ("disk full", "node's disk full") and os.geteuid() != 0:
        return "only root may mount a small disk"
    return ""


class Missed(Exception):
    """The target of the fault does not exist: a command has removed it, or has not made it yet."""


def strike(fault: Fault, cluster: Gradwire, process: subprocess.Popen) -> Heal:
    """Inject a fault into the cluster or the running command; return a function that reverts it.

    Raises:
        Missed: the target does not exist.
    """
    name, exec_ = cluster.container(fault.node), partial(_exec, cluster, fault.node)
    match fault.kind:
        case "command killed":
            os.killpg(process.pid, signal.SIGKILL)
        case "command killed, not its children":
            process.kill()
        case "rank killed" | "rank killed, started again":
            exec_("pkill", "-KILL", "-f", "chaos_ranks.py")
        case "rank stopped":
            exec_("pkill", "-STOP", "-f", "chaos_ranks.py")
        case "rank out of memory":
            exec_("touch", "/tmp/gradwire-chaos-memory")
        case "sshd killed":
            exec_("pkill", "-KILL", "sshd")
        case "sshd stopped":
            exec_("pkill", "-STOP", "sshd")
            return partial(docker, "exec", name, "pkill", "-CONT", "sshd")
        case "sshd restarted":
            exec_("pkill", "-HUP", "-x", "sshd")
        case "connections killed":
            exec_("pkill", "-KILL", "sshd-session")
        case "node killed":
            _docker("kill", name)
        case "node paused":
            _pause(name)
        case "node restarted":
            _docker("restart", "--time", "0", name)
        case "node removed":
            _docker("rm", "--force", name)
        case "node cut off":
            _docker("network", "disconnect", "--force", f"{_project(cluster)}_data", name)
        case "links cut":
            return _cut_links(cluster, fault.node)
        case "dockerd restarted":
            subprocess.run(shlex.split(os.environ[DOCKERD]), timeout=TIMEOUT_S, check=True)
    return nothing


def fill_disk_of_node(cluster: Gradwire, node: str, kbytes: int) -> Heal:
    """Mount a disk of this size for the runs of a node; return a function that unmounts it."""
    _exec(cluster, node, "mkdir", "-p", RUNS_THERE)
    pid = json.loads(docker("inspect", cluster.container(node)).stdout)[0]["State"]["Pid"]
    enter = ["nsenter", "--target", str(pid), "--mount"]
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kbytes}k", "none", RUNS_THERE]
    subprocess.run([*enter, *mount], check=True, timeout=TIMEOUT_S)
    umount = [*enter, "umount", "--lazy", RUNS_THERE]
    return lambda: subprocess.run(umount, check=False, timeout=TIMEOUT_S, capture_output=True)


def small_disk(argv: list[str], kbytes: int, keep: str) -> list[str]:
    """Return a command with its runs on a disk of this size; its files are copied to `keep` at the end."""
    script = (
        f'mount -t tmpfs -o size={kbytes}k none runs; "$@"; code=$?; cp -a runs/. "$0"; exit $code'
    )
    return ["unshare", "--mount", "sh", "-c", script, keep, *argv]


def small_files(argv: list[str], most_bytes: int) -> list[str]:
    """Return a command that can write no larger files: as with a full disk, wherever it writes."""
    return ["prlimit", f"--fsize={most_bytes}", *argv]


def docker(*argv: str) -> subprocess.CompletedProcess:
    return subprocess.run(["docker", *argv], capture_output=True, text=True, timeout=TIMEOUT_S)


def _project(cluster: Gradwire) -> str:
    return cluster.container("").removesuffix("-")


def _docker(*argv: str) -> None:
    done = docker(*argv)
    if done.returncode not in (0, ENDED_WITH_NODE):
        raise Missed(done.stderr.strip())


def _pause(name: str) -> None:
    """Pause a node: cgroup v1's freezer gives up while a process waits in the kernel; raises Missed if it is gone."""
    for _ in range(MOST_PAUSES):
        if docker("pause", name).returncode == 0:
            return
        _docker("inspect", name)
        time.sleep(0.1)
    raise Missed(f"{name} cannot be paused")


def _exec(cluster: Gradwire, node: str, *argv: str) -> None:
    _docker("exec", cluster.container(node), *argv)


def _cut_links(cluster: Gradwire, node: str) -> Heal:
    """Drop all packets from a node to the other one, while both stay reachable from here."""
    (other,) = set(NODES) - {node}
    found = json.loads(docker("inspect", cluster.container(other)).stdout)
    networks = found[0]["NetworkSettings"]["Networks"] if found else {}
    if not networks:
        raise Missed(f"{other} has no network")
    rules = [("OUTPUT", "-d", network["IPAddress"], "-j", "DROP") for network in networks.values()]
    for rule in rules:
        _exec(cluster, node, "iptables", "-I", *rule)
    name = cluster.container(node)
    return lambda: [docker("exec", name, "iptables", "-D", *rule) for rule in rules]
