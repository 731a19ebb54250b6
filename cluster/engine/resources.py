"""Resource limits of nodes: processors, memory, GPUs. Pure values; the engine enforces them.

A request is for single nodes or for `all`: `--cpus 1 --cpus node3=0.5 --memory node2=1g`. A node's own value takes
precedence over that for `all`, `none` removes a limit, and limits that are not mentioned stay. GPUs are assigned when a
container is created: a node whose GPUs change is recreated.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from cluster.base.errors import UsageError, shown, unknown
from cluster.engine.inspected import DeviceRequest, HostConfig

ALL = "all"
NONE = "none"
# A node that has used up its quota waits for the next period, and so does its wire: hence short periods, not Docker's
# 100 ms (measured: docs/links.md). The kernel's smallest quota is 1 ms.
CPU_PERIOD_US, LEAST_QUOTA_US = 4_000, 1_000
ENGINE_PERIOD_US = 100_000  # if a container has a quota and no period
ENFORCED = ("CpuPeriod", "CpuQuota", "NanoCpus", "CpuShares")
LEAST_CPUS, MOST_CPUS = 0.1, 1024.0
LEAST_MEMORY_BYTES = 64 * 2**20  # with less, not even sshd and the wire fit
# The engine cannot remove the memory limit of a running container; this limit is as good as none.
UNLIMITED_BYTES = 2**60
UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}

ResourceValue = Mapping[str, float | str | None] | float | str | None
"""A resource as the user gives it: a value by node, or one for all nodes; None: not given."""


@dataclass(frozen=True)
class Limit:
    """The resources that one node may use. None: no limit; for `gpus`, no GPU.

    `gpus` is "all", or GPU numbers as nvidia-smi lists them: "0,1".
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: str | None = None

    def document(self) -> dict[str, float | int | str]:
        """Return the limits that are set, for JSON."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class ResourceRequest:
    """New limits, by node or for `all`; None removes a limit; nodes that are not named keep theirs."""

    cpus: Mapping[str, float | None]
    memory_bytes: Mapping[str, int | None]
    gpus: Mapping[str, str | None] = field(default_factory=dict)

    def limits(self, nodes: Collection[str], now: Mapping[str, Limit]) -> dict[str, Limit]:
        """Return each node's new limits, given those that it has `now`.

        Raises:
            UsageError: there is no such node.
        """
        for name in (*self.cpus, *self.memory_bytes, *self.gpus):
            if name != ALL and name not in nodes:
                raise unknown("node", name, nodes)
        return {node: self._limit(node, now.get(node, Limit())) for node in nodes}

    def _limit(self, node: str, now: Limit) -> Limit:
        return Limit(
            self.cpus.get(node, self.cpus.get(ALL, now.cpus)),
            self.memory_bytes.get(node, self.memory_bytes.get(ALL, now.memory_bytes)),
            self.gpus.get(node, self.gpus.get(ALL, now.gpus)),
        )


def make_resource_request(
    cpus: ResourceValue = None, memory: ResourceValue = None, gpus: ResourceValue = None
) -> ResourceRequest:
    """Validate the user's values and return them as a request.

    Raises:
        UsageError: a value is invalid; names it.
    """
    return ResourceRequest(
        {node: parse_cpus(value, node) for node, value in _by_node(cpus).items()},
        {node: parse_memory(value, node) for node, value in _by_node(memory).items()},
        {node: parse_gpus(value, node) for node, value in _by_node(gpus).items()},
    )


def split_words(words: Sequence[str]) -> dict[str, str]:
    """Parse the words of an option: NODE=VALUE, or VALUE for all nodes; the last one for a node wins."""
    pairs = [word.rpartition("=") for word in words]
    return {node if equals else ALL: value for node, equals, value in pairs}


def check_room(
    resources: ResourceRequest,
    cores: int,
    memory_bytes: int,
    nodes: Collection[str] | None = None,
    where: str = "this machine",
) -> None:
    """Refuse limits above what the machine has: they would limit nothing.

    Args:
        resources: the requested limits.
        cores: the machine's number of processors.
        memory_bytes: the machine's memory.
        nodes: the nodes that it has; None: all.
        where: the machine as messages name it.

    Raises:
        UsageError: names the node.
    """
    own = None if nodes is None else {ALL, *nodes}
    for node, cpus in resources.cpus.items():
        if cpus is not None and cpus > cores and (own is None or node in own):
            raise UsageError(
                f"cpus of {node} is {cpus:g}, and {where} has {cores}",
                "a smaller number, or none for no limit",
            )
    for node, size in resources.memory_bytes.items():
        if size is not None and size > memory_bytes and (own is None or node in own):
            raise UsageError(
                f"memory of {node} is {format_bytes(size)}, and {where} has {format_bytes(memory_bytes)}",
                "a smaller size, or none for no limit",
            )


def parse_cpus(value: object, node: str) -> float | None:
    """Return the number of processors that a node may use; None for all.

    Raises:
        UsageError: it is not a number, or out of bounds.
    """
    if value == NONE:
        return None
    try:
        cpus = float(_text(value))
    except ValueError:
        cpus = 0.0
    if not LEAST_CPUS <= cpus <= MOST_CPUS:
        raise UsageError(
            f"cpus of {node} is {shown(value)}", f"a number, {LEAST_CPUS:g} or more, or none"
        )
    return round(cpus, 3)


def parse_memory(value: object, node: str) -> int | None:
    """Return a size in Docker's notation (512m, 1.5g) in bytes; None for all memory.

    Raises:
        UsageError: it is not a size, or too small or too large.
    """
    if value == NONE:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([bkmgt]?)", _text(value).lower())
    size = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not LEAST_MEMORY_BYTES <= size < UNLIMITED_BYTES:
        raise UsageError(
            f"memory of {node} is {shown(value)}",
            f"512m or 1.5g, at least {format_bytes(LEAST_MEMORY_BYTES)}, or none",
        )
    return int(size)


def _text(value: object) -> str:
    """Return a number or word as text; '' for anything else."""
    is_one = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_one else ""


def parse_gpus(value: object, node: str) -> str | None:
    """Return the GPUs of a node: "all", numbers such as "0,1", or None.

    Raises:
        UsageError: it is none of these.
    """
    if str(value) == NONE:
        return None
    if isinstance(value, bool) or not re.fullmatch(r"all|[0-9]{1,3}(,[0-9]{1,3})*", str(value)):
        raise UsageError(
            f"gpus of {node} is {str(value)!r}",
            "all, numbers as nvidia-smi lists them (0,1), or none",
        )
    return str(value)


def moves_gpus(limits: Mapping[str, Limit], now: Mapping[str, Limit]) -> bool:
    """Return whether an existing node's GPUs change, so that its container must be recreated."""
    return any(limit.gpus != now[node].gpus for node, limit in limits.items() if node in now)


def new_gpus(limits: Mapping[str, Limit], now: Mapping[str, Limit]) -> list[str]:
    """Return the GPU values that a node gets and does not have yet."""
    given = {
        limit.gpus for node, limit in limits.items() if limit.gpus != now.get(node, Limit()).gpus
    }
    return sorted(gpus for gpus in given if gpus is not None)


def service_limits(limit: Limit) -> dict[str, object]:
    """Return a limit as keys of a Compose service that both versions of Compose accept without swarm."""
    said: dict[str, object] = {}
    if limit.cpus is not None:
        period_us, quota_us = cpu_share_us(limit.cpus)
        said |= {"cpu_period": period_us, "cpu_quota": quota_us}
    if limit.memory_bytes is not None:
        said |= {"mem_limit": limit.memory_bytes, "memswap_limit": limit.memory_bytes}
    if limit.gpus is not None:
        said |= {"deploy": {"resources": {"reservations": {"devices": [_devices(limit.gpus)]}}}}
    return said


def _devices(gpus: str) -> dict[str, object]:
    which = {"count": "all"} if gpus == ALL else {"device_ids": gpus.split(",")}
    return {"driver": "nvidia", **which, "capabilities": ["gpu"]}


def cpu_share_us(cpus: float) -> tuple[int, int]:
    """Return the CFS period and quota, in microseconds, for a number of processors."""
    period_us = max(CPU_PERIOD_US, round(LEAST_QUOTA_US / cpus))
    return period_us, max(LEAST_QUOTA_US, round(cpus * period_us))


def read_limit(host_config: HostConfig) -> Limit:
    """Return the limits in a container's host configuration; a missing value, zero and less are no limit."""
    quota = host_config.get("CpuQuota") or 0
    period = host_config.get("CpuPeriod") or ENGINE_PERIOD_US
    nano, memory = host_config.get("NanoCpus") or 0, host_config.get("Memory") or 0
    cpus = nano / 1e9 if nano > 0 else quota / period if quota > 0 else None
    return Limit(
        cpus and round(cpus, 3),
        memory if 0 < memory < UNLIMITED_BYTES else None,
        _read_gpus(host_config.get("DeviceRequests") or []),
    )


def enforced_limits(host_config: HostConfig) -> dict[str, object]:
    """Return the limits of a container with the engine's own values, to compare: equal limits may act otherwise.

    A longer CPU period, for example, stops a node, and its wire, for longer. Zero is none; a period without a quota
    limits nothing, whatever it is.
    """
    values = [host_config.get(key) for key in ENFORCED]
    period, quota, *others = [max(0, it) if isinstance(it, int) else 0 for it in values]
    period_us = (period or ENGINE_PERIOD_US) if quota else 0
    cores = str(host_config.get("CpusetCpus") or "")
    return {**read_limit(host_config).document(), "enforced": [period_us, quota, *others, cores]}


def device_request(gpus: str) -> dict[str, object]:
    """Return GPUs as a device request of the engine's API, which `read_limit` reads."""
    ids = None if gpus == ALL else gpus.split(",")
    count = -1 if gpus == ALL else 0
    return {"Driver": "nvidia", "Count": count, "DeviceIDs": ids, "Capabilities": [["gpu"]]}


def _read_gpus(requests: Sequence[DeviceRequest]) -> str | None:
    for request in requests:
        if any("gpu" in words for words in request.get("Capabilities") or []):
            return ",".join(request.get("DeviceIDs") or []) or ALL
    return None


def format_bytes(size: int) -> str:
    """Return a size in Docker's notation: 1.5g, 512m."""
    unit = "g" if size >= UNITS["g"] else "m"
    return f"{size / UNITS[unit]:.4g}{unit}"


def _by_node(asked: ResourceValue) -> Mapping[str, float | str | None]:
    if asked is None:
        return {}
    if isinstance(asked, Mapping):
        return {node: NONE if value is None else value for node, value in asked.items()}
    return {ALL: asked}
