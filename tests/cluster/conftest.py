"""Tests on real containers that measure nothing: they may take their time, beside other work."""

from containers import make_cluster, mobile, shared, unshaped  # noqa: F401 - fixtures
