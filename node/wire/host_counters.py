"""Reads what the host withheld from this node: stolen, waiting and throttled time."""

import os
import time
from pathlib import Path

from protocol.link_report import CoreTimes, HostCounters

BOOT = Path("/proc/sys/kernel/random/boot_id")
PROC_STAT, PRESSURE = Path("/proc/stat"), Path("/proc/pressure/cpu")
# Of this container itself: cgroup v2, then v1 by either of its usual names.
CGROUPS = [Path("/sys/fs/cgroup", name, "cpu.stat") for name in ("", "cpu", "cpu,cpuacct")]
TICKS = os.sysconf("SC_CLK_TCK")
IDLE, SOFTIRQ, STEAL, COUNTED = (
    (3, 4),
    6,
    7,
    8,
)  # columns of /proc/stat; the rest are parts of others


def read_host_counters() -> HostCounters:
    """Counters since the start of machine and container."""
    return HostCounters(
        at_s=round(time.monotonic(), 3),
        cores=cores(PROC_STAT.read_text()),
        waiting_s=waiting_s(PRESSURE.read_text()) if PRESSURE.exists() else None,
        throttled_s=next((throttled_s(p.read_text()) for p in CGROUPS if p.exists()), None),
        boot_id=BOOT.read_text().strip(),
    )


def cores(stat: str) -> list[CoreTimes]:
    """Of each core the seconds since boot, from the text of /proc/stat: see proc(5)."""
    rows = [line.split() for line in stat.splitlines() if line.startswith("cpu")]
    counted = [[int(word) for word in row[1 : COUNTED + 1]] for row in rows if row[0] != "cpu"]
    return [
        CoreTimes(
            total_s=sum(row) / TICKS,
            idle_s=sum(row[column] for column in IDLE) / TICKS,
            softirq_s=row[SOFTIRQ] / TICKS,
            steal_s=row[STEAL] / TICKS,
        )
        for row in counted
    ]


def waiting_s(pressure: str) -> float | None:
    """How long at least one task had to wait for a core, from the text of /proc/pressure/cpu."""
    for line in pressure.splitlines():
        if line.startswith("some "):
            return int(line.rpartition("total=")[2]) / 1e6
    return None


def throttled_s(cpu_stat: str) -> float | None:
    """How long this container was kept waiting by its own CPU limit, from a cpu.stat of either cgroup version."""
    fields = dict(line.split() for line in cpu_stat.splitlines())
    if "throttled_usec" in fields:
        return int(fields["throttled_usec"]) / 1e6
    return int(fields["throttled_time"]) / 1e9 if "throttled_time" in fields else None
