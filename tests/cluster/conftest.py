"""Tests on real containers that measure nothing, so they may run slowly beside other work."""

from containers import make_cluster, mobile, shared, unshaped  # noqa: F401 - fixtures
