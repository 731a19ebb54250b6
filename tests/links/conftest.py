"""Tests of links on real containers; a failure is judged by the host's load during the test."""

from busy_host import pytest_runtest_protocol  # noqa: F401 - a hook
from containers import make_cluster, mobile, shared, unshaped  # noqa: F401 - fixtures
