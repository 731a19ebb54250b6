"""An unreachable Docker engine: a missing prerequisite at first, a failure later on."""

import pytest
import requests.exceptions

import cluster.engine.client
from cluster.base.errors import EXIT_FAILED, EXIT_USAGE, ClusterError
from cluster.engine.client import Engine

GONE = requests.exceptions.ConnectionError("Connection refused")


class GoneApi:
    """An API whose engine has gone away."""

    def __init__(self, url):
        pass

    def __getattr__(self, name):
        def call(*args, **kwargs):
            raise GONE

        return call


def test_no_engine_at_all_is_something_to_install_or_start(monkeypatch):
    def connect(url):
        raise GONE

    monkeypatch.setattr(cluster.engine.client, "_connect", connect)
    with pytest.raises(ClusterError) as refused:
        Engine()
    assert refused.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    "ask", [lambda e: e.containers("lab"), lambda e: e.image_id("x"), lambda e: e.remove("lab")]
)
def test_one_that_goes_away_meanwhile_is_a_failure(monkeypatch, ask):
    """Exit code 2 would mean that nothing was started."""
    monkeypatch.setattr(cluster.engine.client, "_connect", GoneApi)
    with pytest.raises(ClusterError, match="does not answer any more") as failed:
        ask(Engine())
    assert failed.value.exit_code == EXIT_FAILED
