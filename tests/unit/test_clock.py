"""Seconds by bucket: each second counts for the bucket that ran then, and for no other."""

import pytest

from node.accounting import metrics
from node.accounting.metrics import Clock


@pytest.fixture
def at(monkeypatch):
    """A function that sets the time."""

    def set_time(now_s):
        monkeypatch.setattr(metrics.time, "perf_counter", lambda: now_s)

    return set_time


def test_seconds_belong_to_what_ran(at):
    clock = Clock(since=100.0)
    at(103.0)
    clock.switch("compute")
    at(108.0)
    with clock.measure("comm"):
        at(110.0)
    at(111.0)
    found = {bucket: seconds for bucket, seconds in clock.read().items() if seconds}
    assert found == {"startup": 3.0, "compute": 6.0, "comm": 2.0, "total": 11.0}
