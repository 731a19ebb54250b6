"""Tests on real containers that measure nothing, so they may run slowly beside other work."""

import os
from pathlib import Path

import pytest
from containers import make_cluster, mobile, shared, unshaped  # noqa: F401 - fixtures

NO_PICTURES = Path(__file__).with_name("no_pictures")


@pytest.fixture(scope="module", autouse=True)
def reports_without_pictures():
    """Every launch writes a report, and drawing takes longer than the rest; test_launch.py has one with pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(NO_PICTURES), prepend=os.pathsep)
        yield
