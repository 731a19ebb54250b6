"""Our iptables rules: those that queue packets for the nfqueue wire, and helpers that isolation.py shares.

Echo replies are an exception: ping times a reply by the timestamp that it gets at the device, before any hold in the
node where it ends. So the last hop of a reply is delayed where it starts, in the neighbour's POSTROUTING, and not
where it ends.
"""

from pathlib import Path

from node.wire.commands import CommandError, run
from node.wire.layout import Layout

INCOMING, REPLIES = 0x6700, 0x7700
"""Queue numbers without the peer's slot: of incoming links; of echo replies on outgoing links."""
CHAIN_IN, CHAIN_OUT, CHAIN_TRIAL = "GRADWIRE_IN", "GRADWIRE_OUT", "GRADWIRE_TRY"
CHAIN_APART = "GRADWIRE_APART"
"""The chain of node.wire.isolation."""
OUR_CHAINS = (CHAIN_IN, CHAIN_OUT, CHAIN_TRIAL, CHAIN_APART)
OUR_HOOKS = ("-A PREROUTING ", "-A POSTROUTING ", "-A OUTPUT ")
COMMANDS = {
    "IPv4": ("iptables", "iptables-legacy"),
    "IPv6": ("ip6tables", "ip6tables-legacy"),
}
"""The second command is for kernels that have no nf_tables."""
LEGACY_TABLES = {
    "iptables-legacy": Path("/proc/net/ip_tables_names"),
    "ip6tables-legacy": Path("/proc/net/ip6_tables_names"),
}
"""Files in which the kernel lists the tables in use. The command itself would create the tables by listing them."""


def trial() -> str:
    """Return rules in a scratch chain, and its removal."""
    rule = _to_queue(CHAIN_TRIAL, "-m mac --mac-source 02:00:00:00:00:01", INCOMING)
    return table("raw", [f":{CHAIN_TRIAL} -", rule, f"-F {CHAIN_TRIAL}", f"-X {CHAIN_TRIAL}"])


def ipv4(layout: Layout, fresh: bool) -> str:
    """Return our rules for IPv4, for iptables-restore, which flushes each chain it names and commits a table at once.

    Args:
        layout: the target layout.
        fresh: whether the kernel's own chains do not jump to ours yet.
    """
    free = (
        f"-A {CHAIN_IN} -d {layout.plan.address} -p icmp -m icmp --icmp-type echo-reply -j RETURN"
    )
    replies = [_reply_rule(layout, peer) for peer in layout.plan.outgoing()]
    hook = [f"-A POSTROUTING -o {layout.device.name} -j {CHAIN_OUT}"] if fresh else []
    return _incoming(layout, fresh, [free]) + table("mangle", [f":{CHAIN_OUT} -", *replies, *hook])


def ipv6(layout: Layout, fresh: bool) -> str:
    """Return our rules for IPv6. Neighbour discovery is exempt: see htb.NEIGHBOUR_DISCOVERY."""
    types = ("neighbour-solicitation", "neighbour-advertisement")
    free = [f"-A {CHAIN_IN} -p icmpv6 -m icmp6 --icmpv6-type {kind} -j RETURN" for kind in types]
    return _incoming(layout, fresh, free)


def _incoming(layout: Layout, fresh: bool, free: list[str]) -> str:
    # The raw table comes before connection tracking. After it, if the second packet of a flow arrives while the first
    # is still held, it is tracked as the first packet of another flow, and dropped for the clash: two of 20 pings
    # were lost.
    queued = [
        _to_queue(
            CHAIN_IN, f"-m mac --mac-source {layout.mac(peer)}", INCOMING + layout.slots[peer]
        )
        for peer in layout.plan.incoming()
    ]
    hook = [f"-A PREROUTING -i {layout.device.name} -j {CHAIN_IN}"] if fresh else []
    return table("raw", [f":{CHAIN_IN} -", *free, *queued, *hook])


def _reply_rule(layout: Layout, peer: str) -> str:
    address = layout.plan.peers[peer].address
    match = f"-d {address} -p icmp -m icmp --icmp-type echo-reply"
    return _to_queue(CHAIN_OUT, match, REPLIES + layout.slots[peer])


def _to_queue(chain: str, match: str, queue: int) -> str:
    return f"-A {chain} {match} -j NFQUEUE --queue-num {queue} --queue-bypass"


def table(name: str, lines: list[str]) -> str:
    """Return the lines of one table, for iptables-restore."""
    return "\n".join([f"*{name}", *lines, "COMMIT", ""])


def commit(family: str, text: str) -> None:
    """Commit rules with the first command that works on this kernel.

    Raises:
        CommandError: none works; quotes all of them.
    """
    failures = []
    for command in COMMANDS[family]:
        try:
            run([f"{command}-restore", "--noflush"], text)
            return
        except CommandError as error:
            failures.append(str(error))
    raise CommandError("; ".join(failures))


def remove() -> None:
    """Remove all our rules, whichever command made them."""
    for commands in COMMANDS.values():
        for command in commands:
            _remove_with(command)


def is_used(legacy_command: str) -> bool:
    """Return whether the kernel has tables of this key of LEGACY_TABLES."""
    names = LEGACY_TABLES[legacy_command]
    return names.exists() and bool(names.read_text())


def _remove_with(command: str) -> None:
    if command in LEGACY_TABLES and not is_used(command):
        return
    try:
        saved = run([f"{command}-save"])
    except CommandError:
        return  # this kernel does not know these tables, so none of our rules are in them
    text = removal(saved)
    if text:
        run([f"{command}-restore", "--noflush"], text)


def removal(saved: str) -> str:
    """Return the rules that remove our chains, and the jumps to them, from all tables; empty if there are none.

    Args:
        saved: the tables as iptables-save prints them.
    """
    text = ""
    for part in f"\n{saved}".split("\n*")[1:]:
        name, *lines = part.splitlines()
        chains = [
            chain for chain in OUR_CHAINS if any(row.startswith(f":{chain} ") for row in lines)
        ]
        jumps = [
            row.replace("-A", "-D", 1)
            for row in lines
            if row.startswith(OUR_HOOKS) and row.split()[-1] in chains
        ]
        if chains:
            removal = [f"-F {chain}" for chain in chains] + [f"-X {chain}" for chain in chains]
            text += table(name, jumps + removal)
    return text
