"""Tests of links, on real containers: they measure, and so need the machine for themselves."""

from containers import make_cluster, mobile, shared, unshaped  # noqa: F401 - fixtures
from stolen import pytest_runtest_protocol  # noqa: F401 - a hook
