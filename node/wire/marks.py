"""Digests of everything that decides how this node's links behave, as the kernel and the daemon have it now.

Whatever does not affect the links, or changes by itself, is left out: counters, references, comments. So equal marks
prove that nobody has changed anything, however small; they do not tell what the links really do.
"""

import hashlib
import re
import socket
from pathlib import Path

from node.wire import commands, iptables, state
from node.wire.apply import show
from node.wire.backends import WIRES
from node.wire.commands import CommandError
from protocol.link_report import Inspected, Marks

TC = ["tc", "-details", "-raw"]
"""Without these options tc rounds some values, and omits the size of a tbf's queue."""
LOOPBACK = "lo"
COUNTED = re.compile(r" (direct_packets_stat|refcnt) \d+|\[\d+:\d+\]")
"""Counters in the output of tc and iptables-save."""
LISTENED_TO = re.compile(r'"promiscuity":\d+,?')
"""How many tcpdumps and the like listen to a device: that changes no link."""
COMMENT = "#"
FIRST_PROCESS = Path("/proc/1/stat")
STARTED = 19
"""Index of a process's start time among the fields after its name: proc_stat(5)."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
TCP_SETTINGS = Path("/proc/sys/net/ipv4")
OF_THE_HOST = "tcp_available_congestion_control", "tcp_allowed_congestion_control"
"""Lists to which other containers add an algorithm by using it."""


def inspect() -> Inspected:
    """Return what `show` returns, and the marks.

    Raises:
        CommandError: tc or ip failed.
    """
    return Inspected(show(), read_marks())


def read_marks() -> Marks:
    """Return the marks as they are now; raises as `inspect`."""
    saved = state.load()
    devices = sorted(name for _, name in socket.if_nameindex() if name != LOOPBACK)
    return Marks(
        laying=saved.laying if saved else "",
        start=_digest(
            BOOT.read_text() + FIRST_PROCESS.read_text().rpartition(")")[2].split()[STARTED]
        ),
        queues=_digest(commands.run([*TC, "qdisc", "show"])),
        classes=_digest(_tc_lists("class show dev {}", devices)),
        filters=_digest(
            _tc_lists("filter show dev {}", devices)
            + _tc_lists("filter show dev {} ingress", devices)
        ),
        rules=_digest("".join(_rules(command) for command in _tables_commands())),
        routes=_digest(
            commands.run(["ip", "-4", "-details", "route", "show", "table", "all"])
            + commands.run(["ip", "-4", "rule", "show"])
        ),
        devices=_digest(
            LISTENED_TO.sub("", commands.run(["ip", "-details", "-json", "link", "show"]))
            + "".join(_features(device) for device in devices)
        ),
        tcp=_digest(_tcp_settings()),
        wire=_digest(WIRES[saved.wire].mark() if saved else ""),
    )


def without_counts(text: str) -> str:
    """Return the output of tc or iptables-save without what changes by itself."""
    lines = (COUNTED.sub("", line).rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(COMMENT))


def _digest(text: str) -> str:
    return hashlib.sha256(without_counts(text).encode()).hexdigest()


def _tc_lists(words: str, devices: list[str]) -> str:
    lines = [words.format(device) for device in devices]
    return commands.run([*TC, "-batch", "-"], "\n".join(lines) + "\n")


def _tables_commands() -> list[str]:
    """Return the commands that list the tables in use: any other command would create its tables."""
    return [
        f"{command}-save"
        for names in iptables.COMMANDS.values()
        for command in names
        if command not in iptables.LEGACY_TABLES or iptables.is_used(command)
    ]


def _rules(command: str) -> str:
    try:
        return commands.run([command])
    except CommandError:
        return ""  # this kernel does not know these tables


def _features(device: str) -> str:
    try:
        return commands.run(["ethtool", "--show-features", device])
    except CommandError:
        return ""  # a device without features


def _tcp_settings() -> str:
    said = ""
    for path in sorted(TCP_SETTINGS.glob("tcp_*")):
        if path.name not in OF_THE_HOST:
            try:
                said += f"{path.name} {path.read_text()}"
            except OSError:
                continue  # a key that nobody may read
    return said
