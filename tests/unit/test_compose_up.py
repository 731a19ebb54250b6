"""A Compose process that hangs is given up after a timeout."""

import time

import pytest

from cluster.base.errors import ClusterError
from cluster.base.spec import ClusterSpec
from cluster.engine import compose_up


@pytest.mark.parametrize("argv", [["sleep", "60"], ["sh", "-c", "trap '' TERM; sleep 60 & wait"]])
def test_a_compose_that_does_not_end_is_given_up(monkeypatch, argv):
    """Also if it ignores SIGTERM."""
    started = time.monotonic()
    monkeypatch.setattr(compose_up, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(compose_up, "TIMEOUT_PER_NODE_S", 0.0)
    monkeypatch.setattr(compose_up, "END_TIMEOUT_S", 0.5)
    monkeypatch.setattr(compose_up, "up_argv", lambda command, name, starts: argv)
    monkeypatch.setattr(compose_up, "compose_command", list)
    with compose_up.ComposeUp("lab") as compose:
        compose.give("")
        with pytest.raises(ClusterError, match="compose has not brought 'lab' up within"):
            compose.finish(ClusterSpec("lab"))
    assert time.monotonic() - started < 30
