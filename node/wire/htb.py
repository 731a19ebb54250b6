"""Lines for `tc -batch`: an HTB tree that classifies by the next hop's MAC address.

The egress limits with it; the netem wire only sorts with it.
"""

HANDLE = "6777"
"""Of our root qdiscs ("gw" in ASCII): by it we know our own work, and keep our hands off anybody else's."""
ALL_LINKS, DEFAULT, FIRST_LINK = "1", "2", 0x10  # class numbers
LINE_RATE_BIT, LINE_BURST = 100_000_000_000, 1 << 20
"""Of classes that are there to sort, not to limit."""

# Where an Ethernet frame has its addresses, in bytes before the network header. u32 compares
# aligned words of four bytes. The bytes in which neighbours differ come first, so that most filters
# fail at the first comparison.
MAC_KEYS = {
    "dst": (("u32", 2, 6, -12), ("u16", 0, 2, -14)),
    "src": (("u16", 4, 6, -4), ("u32", 0, 4, -8)),
}

# Address resolution never waits on a link. A neighbour entry lives by three probes one second
# apart: behind a delay of 1000 ms and a full buffer the answers come too late, and the peer is
# called unreachable. On a routed link they would not travel at all.
NEIGHBOUR_DISCOVERY = (
    "match u16 0x0806 0xffff at -2",  # ARP
    "match u16 0x86dd 0xffff at -2 match u8 58 0xff at 6 match u8 135 0xff at 40",  # IPv6 neighbour solicitation
    "match u16 0x86dd 0xffff at -2 match u8 58 0xff at 6 match u8 136 0xff at 40",  # IPv6 neighbour advertisement
)


def link_id(slot: int) -> str:
    """The number of a link's class, qdisc and filter, as tc writes it: hexadecimal."""
    return f"{FIRST_LINK + slot:x}"


def root_lines(device: str) -> list[str]:
    """The tree without its links. What belongs to no link passes unshaped: by that road the node is controlled."""
    return [
        f"qdisc add dev {device} root handle {HANDLE}: htb default {DEFAULT} direct_qlen 1000",
        sorting_line(device, "", ALL_LINKS),
        sorting_line(device, "", DEFAULT),
        # Explicit, because a veth's queue length is 0: a queue that takes its limit from there
        # drops everything.
        f"qdisc add dev {device} parent {HANDLE}:{DEFAULT} handle {DEFAULT}: pfifo limit 1000",
        *(
            _filter_line(device, f"{number:x}", match, DEFAULT)
            for number, match in enumerate(NEIGHBOUR_DISCOVERY, start=1)
        ),
    ]


def sorting_line(device: str, parent: str, number: str) -> str:
    """A class that is there to sort, not to limit."""
    return class_line(device, parent, number, LINE_RATE_BIT, LINE_RATE_BIT, LINE_BURST)


def class_line(
    device: str, parent: str, number: str, rate_bit: int, ceil_bit: int, burst: int
) -> str:
    """Make a class or change it in place: `rate_bit` a second are its own, up to `ceil_bit` what others leave it.

    Burst and ceil's burst are always explicit: tc derives them from the kernel's clock tick, and up
    to version 6.14 rounds them down. So is the quantum, which only orders classes that borrow:
    derived from the rate it is out of bounds, and the kernel logs each.
    """
    return (
        f"class replace dev {device} parent {HANDLE}:{parent} classid {HANDLE}:{number} htb "
        f"rate {rate_bit}bit ceil {ceil_bit}bit burst {burst} cburst {burst} quantum 1600"
    )


def queue_line(device: str, number: str, queue: str) -> str:
    """Give a class its queue, or change the queue in place; it keeps what it holds."""
    return f"qdisc replace dev {device} parent {HANDLE}:{number} handle {number}: {queue}"


def mac_filter_line(device: str, side: str, mac: str, number: str) -> str:
    """Send the frames from (`src`) or to (`dst`) a MAC address to the class of the same number as the filter."""
    digits = mac.split(":")
    keys = [
        f"match {size} 0x{''.join(digits[first:last])} 0x{'ff' * (last - first)} at {offset}"
        for size, first, last, offset in MAC_KEYS[side]
    ]
    return _filter_line(device, number, " ".join(keys), number)


def removal_lines(device: str, number: str) -> list[str]:
    """Remove a link's filter and class; the class takes its queue with it."""
    return [
        f"filter del dev {device} parent {HANDLE}: protocol all prio 1 handle 800::{number} u32",
        f"class del dev {device} classid {HANDLE}:{number}",
    ]


def _filter_line(device: str, number: str, match: str, to_class: str) -> str:
    # 800: is the number of a qdisc's first hash table; filters in it are tried in the order of
    # their own numbers.
    return (
        f"filter replace dev {device} parent {HANDLE}: protocol all prio 1 handle 800::{number} "
        f"u32 {match} flowid {HANDLE}:{to_class}"
    )
