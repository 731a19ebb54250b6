"""Bounds on the values of a link."""

from cluster.base.errors import UsageError, shown

LIMITS = {
    "rate_mbyte_s": (0.01, 10_000.0),
    "delay_ms": (0.0, 10_000.0),
    "jitter_ms": (0.0, 5_000.0),
    "loss_pct": (0.0, 100.0),
    "buffer_ms": (1.0, 60_000.0),
    "loss_burst": (1.0, 1000.0),
    "duplicate_pct": (0.0, 100.0),
    "corrupt_pct": (0.0, 100.0),
    "reorder_pct": (0.0, 100.0),
}
ACCESS_LIMITS = {"uplink_mbyte_s": (0.01, 10_000.0), "downlink_mbyte_s": (0.01, 10_000.0)}


def number_within(value: object, limits: tuple[float, float], what: str) -> float:
    """A number from a YAML file; `what` is named in the error.

    Raises:
        UsageError: it is none, or out of bounds.
    """
    low, high = limits
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(f"{what} is {shown(value)}", f"a number within {low:g} to {high:g}")
    return float(value)
