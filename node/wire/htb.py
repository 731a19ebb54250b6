"""Lines for `tc -batch`: an HTB tree that classifies by a neighbour's MAC address.

The egress limits with it; the netem wire sorts with it, and limits only if the node has a downlink.
"""

HANDLE = "6777"
"""The handle of our root qdiscs ("gw" in ASCII). It identifies our own; we never touch anybody else's."""
ALL_LINKS, DEFAULT, FIRST_LINK = "1", "2", 0x10  # class numbers
LINE_RATE_BIT, LINE_BURST = 100_000_000_000, 1 << 20
"""Of classes that only sort and do not limit."""

# Where an Ethernet frame has its addresses, in bytes relative to the network header. u32 compares
# aligned words of four bytes. The bytes in which neighbours differ come first, so that most filters
# fail at the first comparison.
MAC_KEYS = {
    "dst": (("u32", 2, 6, -12), ("u16", 0, 2, -14)),
    "src": (("u16", 4, 6, -4), ("u32", 0, 4, -8)),
}

# Address resolution bypasses the links. A neighbour entry survives three probes one second apart:
# behind a delay of 1000 ms and a full buffer the replies come too late, and the peer counts as
# unreachable. On a routed link they would not travel at all.
NEIGHBOUR_DISCOVERY = (
    "match u16 0x0806 0xffff at -2",  # ARP
    "match u16 0x86dd 0xffff at -2 match u8 58 0xff at 6 match u8 135 0xff at 40",  # IPv6 neighbour solicitation
    "match u16 0x86dd 0xffff at -2 match u8 58 0xff at 6 match u8 136 0xff at 40",  # IPv6 neighbour advertisement
)


def link_id(slot: int) -> str:
    """Return the number of a link's class, qdisc and filter, as tc writes it: hexadecimal."""
    return f"{FIRST_LINK + slot:x}"


def root_lines(device: str) -> list[str]:
    """Return the tree without its links. Traffic outside the links, which controls the node, passes unshaped."""
    return [
        f"qdisc add dev {device} root handle {HANDLE}: htb default {DEFAULT} direct_qlen 1000",
        sorting_line(device, "", ALL_LINKS),
        sorting_line(device, "", DEFAULT),
        # Explicit, because a veth's queue length is 0: a queue that takes its limit from it drops
        # everything.
        f"qdisc add dev {device} parent {HANDLE}:{DEFAULT} handle {DEFAULT}: pfifo limit 1000",
        *(
            _filter_line(device, f"{number:x}", match, DEFAULT)
            for number, match in enumerate(NEIGHBOUR_DISCOVERY, start=1)
        ),
    ]


def sorting_line(device: str, parent: str, number: str) -> str:
    """Return the line for a class that only sorts and does not limit."""
    return class_line(device, parent, number, LINE_RATE_BIT, LINE_RATE_BIT, LINE_BURST)


def class_line(
    device: str, parent: str, number: str, rate_bit: int, ceil_bit: int, burst: int
) -> str:
    """Return the line that creates or changes a class: `rate_bit` guaranteed, borrowing up to `ceil_bit`, per second.

    Burst and ceil's burst are always explicit: tc derives them from the kernel's clock tick, and up to version 6.14
    rounds them down. So is the quantum, which only orders classes that borrow: one derived from the rate is out of
    bounds, and the kernel logs each.
    """
    return (
        f"class replace dev {device} parent {HANDLE}:{parent} classid {HANDLE}:{number} htb "
        f"rate {rate_bit}bit ceil {ceil_bit}bit burst {burst} cburst {burst} quantum 1600"
    )


def queue_line(device: str, number: str, queue: str) -> str:
    """Return the line that gives a class its queue, or changes the queue in place, which keeps its content."""
    return f"qdisc replace dev {device} parent {HANDLE}:{number} handle {number}: {queue}"


def mac_filter_line(device: str, side: str, mac: str, number: str) -> str:
    """Return a filter: frames from (`src`) or to (`dst`) a MAC address go to the class with the filter's number."""
    digits = mac.split(":")
    keys = [
        f"match {size} 0x{''.join(digits[first:last])} 0x{'ff' * (last - first)} at {offset}"
        for size, first, last, offset in MAC_KEYS[side]
    ]
    return _filter_line(device, number, " ".join(keys), number)


def removal_lines(device: str, number: str) -> list[str]:
    """Return the lines that remove a link's filter and class; the class takes its queue with it."""
    return [
        f"filter del dev {device} parent {HANDLE}: protocol all prio 1 handle 800::{number} u32",
        f"class del dev {device} classid {HANDLE}:{number}",
    ]


def _filter_line(device: str, number: str, match: str, to_class: str) -> str:
    # 800: is the number of a qdisc's first hash table; its filters are tried in the order of their
    # numbers.
    return (
        f"filter replace dev {device} parent {HANDLE}: protocol all prio 1 handle 800::{number} "
        f"u32 {match} flowid {HANDLE}:{to_class}"
    )
