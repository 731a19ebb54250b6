"""Kernel settings of the nodes that affect connections: docs/formats.md, `settings`.

Recorded, and not judged: gloo leaves its sockets to the kernel's own tuning, up to what Compose gives tcp_wmem and
tcp_rmem, so the contract's own socket is one as gloo uses it. net.core.wmem_max and rmem_max bind programs that set
SO_SNDBUF or SO_RCVBUF themselves.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Of one node.

    Attributes:
        kernel: its release.
        wmem_max_bytes, rmem_max_bytes: the most that a program may set a socket's buffers to.
        tcp_wmem_bytes, tcp_rmem_bytes: the most that the kernel tunes them to by itself.
        slow_start_after_idle: whether a connection that was idle begins as a new one.
        default_tcp: the congestion control of connections that no route decides.
        mtu: of the data network; None where the node has none.
    """

    kernel: str
    wmem_max_bytes: int
    rmem_max_bytes: int
    tcp_wmem_bytes: int
    tcp_rmem_bytes: int
    slow_start_after_idle: bool
    default_tcp: str
    mtu: int | None


KINDS: Mapping[str, tuple[type, ...]] = {
    "kernel": (str,),
    "wmem_max_bytes": (int,),
    "rmem_max_bytes": (int,),
    "tcp_wmem_bytes": (int,),
    "tcp_rmem_bytes": (int,),
    "slow_start_after_idle": (bool,),
    "default_tcp": (str,),
    "mtu": (int, type(None)),
}
MOST_CHARACTERS = 200


def parse_settings(answer: Any) -> Settings:  # noqa: ANN401 - a node says it, and may say anything
    """What a node says of itself.

    Raises:
        KeyError, TypeError, ValueError: it is not what docs/formats.md says.
    """
    values = {name: answer[name] for name in KINDS}
    for name, value in values.items():
        if type(value) not in KINDS[name]:
            raise TypeError(f"settings.{name} is of another kind")
        if isinstance(value, str) and not (value.isprintable() and len(value) <= MOST_CHARACTERS):
            raise ValueError(f"settings.{name} is no word")
        if type(value) is int and value <= 0:
            raise ValueError(f"settings.{name} is {value}")
    return Settings(**values)


def group_settings(settings: Mapping[str, Settings]) -> list[dict[str, Any]]:
    """The nodes that have the same settings, and these, as JSON values: one group where one machine has all."""
    nodes: dict[Settings, list[str]] = {}
    for node, one in settings.items():
        nodes.setdefault(one, []).append(node)
    return [{"nodes": names} | asdict(one) for one, names in nodes.items()]
