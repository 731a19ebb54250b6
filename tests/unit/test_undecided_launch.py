"""Launches over undecided or broken links, with and without --allow-undecided."""

import json
from types import SimpleNamespace

import pytest

import cluster.launch
from cluster.base.console import Console
from cluster.base.errors import EXIT_USAGE, ContractBroken, ContractUndecided
from cluster.contract import prover as prover_module
from cluster.contract.doubt import Strain
from cluster.contract.measured import Measured
from cluster.contract.proof import PARTS, Standing
from cluster.contract.prover import Prover
from cluster.contract.verdicts import Contract, judge
from cluster.links.expected import Expected
from cluster.run import verification
from cluster.run.launch_words import LOOK
from cluster.shaping.link_state import LinkState
from protocol.link import Link

LINK = Link("node1", "node2", 5.0, 20.0, 0.0, 0.0, 40.0)
BUSY = Strain(("timers were 0.9 ms late",), reach_ms=9.0, short_pct=18.0, dropped=0)


def contract(rtt_ms):
    found = Measured(
        rtt_ms,
        0.1,
        60,
        60,
        60,
        0,
        goodput_mbyte_s=4.77,
        early_rtt_ms=min(rtt_ms, 20.0),
        delay_ms=20.1,
        early_delay_ms=20.0,
    )
    return Contract((judge(LINK, Expected((LINK,)), found, BUSY),))


HOLDS, UNDECIDED, BROKEN = contract(20.1), contract(24.0), contract(14.0)


@pytest.fixture
def verify(monkeypatch, tmp_path):
    """A function that runs a launch's verification step with the given contract."""

    def verify(found, *, allowed):
        links, standing = (
            LinkState((), {}, "", (), 1500, {}),
            Standing({"node1": dict.fromkeys(PARTS, "")}, ""),
        )
        monkeypatch.setattr(prover_module, "measure_contract", lambda *_: found)
        monkeypatch.setattr(Prover, "now", lambda _: (links, standing))
        spec = SimpleNamespace(name="gradwire", state_dir=tmp_path)
        job = SimpleNamespace(link_state=links, allow_undecided=allowed, spec=spec, verify=LOOK)
        prover = Prover(None, spec, None, Console())
        return verification.verify_links(prover, job, tmp_path).document

    return verify


@pytest.mark.parametrize(("found", "allowed"), [(HOLDS, False), (HOLDS, True), (UNDECIDED, True)])
def test_links_that_hold_or_may_be_undecided_are_run_over(verify, tmp_path, found, allowed):
    document = verify(found, allowed=allowed)
    assert document["decided"] == (found is HOLDS)
    assert json.loads((tmp_path / "contract.json").read_text()) == document
    assert bool(document["proved_at"]) == (found is HOLDS) == (tmp_path / "proof.json").exists()


@pytest.mark.parametrize(
    ("found", "allowed", "error", "words"),
    [
        (UNDECIDED, False, ContractUndecided, "run anyway: --allow-undecided"),
        (BROKEN, False, ContractBroken, "run anyway: --no-verify"),
        (BROKEN, True, ContractBroken, "run anyway: --no-verify"),
    ],
)
def test_over_others_nothing_is_started_and_the_table_is_kept(
    verify, tmp_path, capsys, found, allowed, error, words
):
    with pytest.raises(error, match="nothing was started") as caught:
        verify(found, allowed=allowed)
    assert caught.value.hint.endswith(words)
    assert caught.value.document["holds"] is False
    assert (tmp_path / "contract.json").exists()
    assert "node1 -> node2" in capsys.readouterr().err


def test_links_that_are_not_measured_cannot_be_undecided(capsys):
    argv = ["--no-verify", "--allow-undecided", "--dry-run"]
    assert cluster.launch.main(argv) == EXIT_USAGE
    assert "--allow-undecided" in capsys.readouterr().err
