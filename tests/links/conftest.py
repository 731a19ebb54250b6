"""Tests of links, on real containers: what they measure is held against what the host gave meanwhile."""

from busy_host import pytest_runtest_protocol  # noqa: F401 - a hook
from containers import make_cluster, mobile, shared, unshaped  # noqa: F401 - fixtures
