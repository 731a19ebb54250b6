"""Groups nodes by their kernel settings (`protocol.link_report.Settings`), for contract.json and run.yml.

Recorded, and not judged: gloo leaves its sockets to the kernel's own tuning, up to what Compose gives tcp_wmem and
tcp_rmem, so the contract's own socket is one as gloo uses it. net.core.wmem_max and rmem_max bind programs that set
SO_SNDBUF or SO_RCVBUF themselves.
"""

from collections.abc import Mapping

from protocol.link_report import Settings


def group_settings(settings: Mapping[str, Settings]) -> list[dict[str, object]]:
    """The nodes that have the same settings, and these, as JSON values: one group where one machine has all."""
    nodes: dict[Settings, list[str]] = {}
    for node, one in settings.items():
        nodes.setdefault(one, []).append(node)
    return [{"nodes": names, **one._asdict()} for one, names in nodes.items()]
