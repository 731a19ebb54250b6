"""Reads the CPU time that the host withheld from this node: stolen, waiting and throttled."""

import os
import time
from pathlib import Path

from protocol.link_report import CoreTimes, HostCounters

BOOT = Path("/proc/sys/kernel/random/boot_id")
PROC_STAT, PRESSURE = Path("/proc/stat"), Path("/proc/pressure/cpu")
# Of this container itself: cgroup v2, then v1 under its two usual names.
CGROUPS = [Path("/sys/fs/cgroup", name, "cpu.stat") for name in ("", "cpu", "cpu,cpuacct")]
TICKS = os.sysconf("SC_CLK_TCK")
# Columns of /proc/stat, of which only the first COUNTED count: the rest are parts of others.
IDLE, SOFTIRQ, STEAL, COUNTED = (3, 4), 6, 7, 8


def read_host_counters() -> HostCounters:
    """Return the counters since the start of the machine and of the container."""
    return HostCounters(
        at_s=round(time.monotonic(), 3),
        cores=cores(PROC_STAT.read_text()),
        waiting_s=waiting_s(PRESSURE.read_text()) if PRESSURE.exists() else None,
        throttled_s=next((throttled_s(p.read_text()) for p in CGROUPS if p.exists()), None),
        boot_id=BOOT.read_text().strip(),
    )


def cores(stat: str) -> list[CoreTimes]:
    """Return the seconds of each core since boot, from the text of /proc/stat: see proc(5)."""
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
    """Return how long at least one task waited for a core, from the text of /proc/pressure/cpu."""
    for line in pressure.splitlines():
        if line.startswith("some "):
            return int(line.rpartition("total=")[2]) / 1e6
    return None


def throttled_s(cpu_stat: str) -> float | None:
    """Return how long this container was throttled by its own CPU limit, from a cpu.stat of either cgroup version."""
    fields = dict(line.split() for line in cpu_stat.splitlines())
    if "throttled_usec" in fields:
        return int(fields["throttled_usec"]) / 1e6
    return int(fields["throttled_time"]) / 1e9 if "throttled_time" in fields else None
