"""Groups nodes by their kernel settings (`protocol.link_report.Settings`), for contract.json and run.yml.

The settings are recorded but not judged: gloo leaves its socket buffers to the kernel's auto-tuning, up to the tcp_wmem
and tcp_rmem that Compose sets, and the contract's own socket does the same. net.core.wmem_max and rmem_max limit
programs that set SO_SNDBUF or SO_RCVBUF themselves.
"""

from collections.abc import Mapping

from protocol.link_report import Settings


def group_settings(settings: Mapping[str, Settings]) -> list[dict[str, object]]:
    """Return groups of nodes with the same settings, and these settings, as JSON values: one group if all agree."""
    nodes: dict[Settings, list[str]] = {}
    for node, one in settings.items():
        nodes.setdefault(one, []).append(node)
    return [{"nodes": names, **one._asdict()} for one, names in nodes.items()]
