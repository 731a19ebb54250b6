"""Segmentation offloads: off on links up to 2 Gbit/s, so that loss, queues and rates act on real packets."""

from node.wire.plan import Link
from node.wire.shape import Shape
from node.wire.system import CommandError, run, run_json

GSO_SIZE = 65536
"""The largest super-packet, in bytes, that a qdisc sees while offloads are on (the kernel's gso_max_size)."""
MAX_SEGMENTED_MBYTE_S = 250.0
"""Above it a link needs offloads: at 1500 bytes a packet, a core handles some 200,000 packets a second."""
FEATURES = {
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "tx-udp-segmentation": "tx-udp-segmentation",  # of programs that ask for it; gso is not its master
}
SUPER_PACKETS = "loss and queues act on super-packets of up to 64 KB"

Offloads = dict[str, bool]
"""ethtool's short names of the offloads, and whether each is on."""


def offloads_stay_on(links: list[Link]) -> bool:
    """Whether some link is too fast to do without them."""
    return any(link.rate_mbyte_s > MAX_SEGMENTED_MBYTE_S for link in links)


def queue_unit(shape: Shape) -> int:
    """The largest packet that a queue sees, in bytes."""
    return GSO_SIZE if offloads_stay_on(shape.plan.links) else shape.frame


def read_offloads(device: str) -> Offloads:
    """The offloads as they are now."""
    (features,) = run_json(["ethtool", "--json", "--show-features", device])
    return {short: features[name]["active"] for short, name in FEATURES.items() if name in features}


def switch(device: str, links: list[Link], now: Offloads, original: Offloads) -> str:
    """Switch offloads off, unless a link is too fast for that. Returns a note for the user, or nothing."""
    keep = offloads_stay_on(links)
    wanted = original if keep else dict.fromkeys(original, False)
    try:
        change(device, now, wanted)
    except CommandError as error:
        return f"offloads could not be switched off, {SUPER_PACKETS}: {error}"
    if keep and any(original.values()):
        return f"a link is faster than {MAX_SEGMENTED_MBYTE_S:.0f} MB/s, so offloads stay on: {SUPER_PACKETS}"
    return ""


def change(device: str, now: Offloads, wanted: Offloads) -> None:
    """Make the offloads what they shall be."""
    words = change_words(now, wanted)
    if words:
        run(["ethtool", "--features", device, *words])


def change_words(now: Offloads, wanted: Offloads) -> list[str]:
    """What differs, in the words of ethtool."""
    changed = [name for name in wanted if now[name] != wanted[name]]
    return [word for name in changed for word in (name, "on" if wanted[name] else "off")]
