"""The example that measures compute utilisation: its formula, and the links that it requests."""

import sys

import pytest

from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec

sys.path.insert(0, str(PROJECT_DIR / "examples"))
import compute_utilisation as utilisation  # noqa: E402


def steps(number, **values):
    """Metrics of two ranks; the first round takes far longer."""
    return [
        {"step": step, "rank": rank, "compute_s": 0.1, "comm_s": 0.0, "sent_bytes": 0}
        | (values if step % 4 == 0 else {})
        | ({"compute_s": 9.0} if step <= 4 else {})
        for step in range(1, number + 1)
        for rank in (0, 1)
    ]


def test_measured_stands_beside_the_formula():
    """Four steps of 0.1 s, then 5 MB at 100 Mbit/s (0.4 s); the round measured 0.6 s, 0.2 s of it packing."""
    rows = steps(12, comm_s=0.4, strategy_s=0.2, sent_bytes=5_000_000)
    cell = utilisation.cell(rows, 100, 4)
    assert cell["step_s"] == 0.1
    assert cell["round_mbyte"] == 5.0
    assert (cell["measured"], cell["analytic"]) == (0.4, 0.5)
    assert cell["measured_over_analytic"] == 0.8


def test_links_are_all_alike():
    links = utilisation.links(200, 1.0).links(ClusterSpec(size=3).nodes)
    assert len(links) == 6
    assert {(link.rate_mbyte_s, link.delay_ms) for link in links} == {(25.0, 1.0)}


def test_one_round_alone_tells_nothing(capsys):
    with pytest.raises(SystemExit):
        utilisation.parse(["--rounds", "1"])
    assert "--rounds" in capsys.readouterr().err
