"""Runs tc, ip and iptables, and turns their failures into one clear line."""

import json
import subprocess
from typing import Any, NamedTuple


class WireError(Exception):
    """This node cannot do what the plan asks; the message says what failed and what to try."""


class CommandError(WireError):
    """A command failed or does not exist; the message quotes its output."""


class Qdisc(NamedTuple):
    """A queueing discipline of this node."""

    device: str
    kind: str
    handle: str
    """For example `6777:`; a device's default qdisc has `0:`."""
    is_root: bool


class Route(NamedTuple):
    """A route of this node's main table."""

    kind: str
    """`unicast`, or `unreachable`."""
    destination: str
    device: str | None
    """None if the kernel prints none."""


class Device(NamedTuple):
    """The network device that carries the links."""

    name: str
    mtu: int
    """Largest IP packet, in bytes; an Ethernet frame is 14 bytes longer."""


def run(argv: list[str], stdin: str = "") -> str:
    """Run one command to its end and return its standard output.

    Raises:
        CommandError: its exit status is not 0, or it is not installed.
    """
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CommandError(f"{argv[0]} is not installed on this node") from error
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        raise CommandError(f"{' '.join(argv)}: {words}")
    return done.stdout


def run_batch(program: str, lines: list[str]) -> None:
    """Run many `tc` or `ip` command lines in one process.

    One process for all lines keeps shaping 64 links quick: each start of tc costs about 2 ms.

    Raises:
        CommandError: names the line that failed; the lines after it have not been run.
    """
    if not lines:
        return
    try:
        run([program, "-batch", "-"], "\n".join(lines) + "\n")
    except CommandError as error:
        raise CommandError(_name_failed_line(str(error), lines)) from error


def _name_failed_line(message: str, lines: list[str]) -> str:
    """Replace the batch's "Command failed -:7" by the text of line 7."""
    text, separator, number = message.rpartition("Command failed -:")
    if not separator or not number.strip().isdigit():
        return message
    program, _, words = text.partition(" -batch -: ")
    return f"{program} {lines[int(number) - 1]}: {words.strip()}"


def find_device(address: str) -> Device:
    """Return the device that has this address. Names of devices tell nothing: their order is not fixed."""
    for row in run_json(["ip", "-json", "-4", "address", "show", "to", f"{address}/32"]):
        if row:  # ip prints an empty object for every device that the filter leaves out
            return Device(row["ifname"].partition("@")[0], row["mtu"])
    raise WireError(f"no device of this node has the address {address}: is it on the data network?")


def run_json(argv: list[str]) -> Any:  # noqa: ANN401 - the shape is the command's
    """Run a command that prints JSON, and parse it."""
    return json.loads(run(argv) or "[]")


def qdiscs() -> list[Qdisc]:
    """Return every queueing discipline of this node."""
    return [
        Qdisc(row["dev"], row["kind"], row["handle"], bool(row.get("root")))
        for row in run_json(["tc", "-json", "qdisc", "show"])
    ]


def class_counts(device: str) -> dict[str, dict[str, int]]:
    """Return the kernel's counters of each class of a device, by handle; the counters have tc's names."""
    rows = run_json(["tc", "-json", "-statistics", "class", "show", "dev", device])
    return {row["handle"]: row["stats"] for row in rows}


def queue_counts(device: str) -> dict[str, dict[str, int]]:
    """Return the kernel's counters of each queueing discipline of a device, by handle; the counters have tc's names."""
    rows = run_json(["tc", "-json", "-statistics", "qdisc", "show", "dev", device])
    return {row["handle"]: row for row in rows if "drops" in row}


def main_routes() -> list[Route]:
    """Return the IPv4 routes of this node's main table."""
    return [
        Route(row.get("type", "unicast"), row["dst"], row.get("dev"))
        for row in run_json(["ip", "-json", "-4", "route", "show"])
    ]
