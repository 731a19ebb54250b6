"""Which of launch's words are about links, and which about the training."""

import pytest

import cluster.launch

PLAN = ["--dry-run", "--json", "--name", "t-words", "--nodes", "3", "--profile", "mobile"]


@pytest.fixture
def plan(capsys):
    """What `launch --dry-run` prints for further words."""
    import json

    def plan(*words):
        assert cluster.launch.main([*PLAN, *words]) == 0
        return json.loads(capsys.readouterr().out)

    return plan


def test_the_trainings_seed_draws_no_links_and_theirs_no_samples(plan):
    usual, trained, linked = plan(), plan("--seed", "7"), plan("--link-seed", "7")
    assert trained["plans"] == usual["plans"] != linked["plans"]
    assert linked["argv"] == usual["argv"]
    assert trained["argv"] == [*usual["argv"], "--seed", "7"]


def test_the_readmes_learning_rate_schedule_can_be_typed(plan):
    assert plan("--lr-schedule", "cosine")["argv"][-2:] == ["--lr-schedule", "cosine"]


@pytest.mark.parametrize("how", ["a file", "--isolated"])
def test_a_dry_run_shows_the_environment_that_the_launch_would_use(plan, tmp_path, how):
    """The timeouts of the links, and gloo told that not every rank can reach every other."""
    topology = tmp_path / "line.yml"
    topology.write_text("links:\n- ends: [node1, node2]\n- ends: [node2, node3]\nisolated: true\n")
    words = ("--topology", str(topology)) if how == "a file" else ("--isolated",)
    shown = plan(*words)
    assert {e["TORCH_GLOO_LAZY_INIT"] for e in shown["environment"].values()} == {"1"}
    timeouts = {e["GRADWIRE_TIMEOUT_S"] for e in shown["environment"].values()}
    assert timeouts == {str(shown["collective_timeout_s"])}
    assert shown["collective_timeout_s"] > 0
    slowest = min(link["rate_mbyte_s"] for p in shown["plans"].values() for link in p["links"])
    told = {float(e["GRADWIRE_SLOWEST_MBYTE_S"]) for e in shown["environment"].values()}
    assert len(told) == 1 and told.pop() == pytest.approx(slowest, rel=1e-4)


@pytest.mark.parametrize("how", ["an uplink", "a schedule"])
def test_the_slowest_link_may_be_so_by_its_node_or_by_the_schedule(plan, tmp_path, how):
    file = tmp_path / "slow.yml"
    if how == "an uplink":
        file.write_text("base: full\nnodes: {node3: {uplink_mbyte_s: 0.02}}\n")
        shown = plan("--topology", str(file))
    else:
        file.write_text("- {at: 0s, link: node1:node2, rate_mbyte_s: 0.02, delay_ms: 900}\n")
        shown = plan("--schedule", str(file))
    told = {e["GRADWIRE_SLOWEST_MBYTE_S"] for e in shown["environment"].values()}
    assert told == {"0.02"}
    assert shown["collective_timeout_s"] > 10 * plan()["collective_timeout_s"]


def test_a_dry_run_counts_a_schedule_in(plan, tmp_path):
    storm = tmp_path / "storm.yml"
    storm.write_text("- {at: 1s, link: node1:node2, loss_pct: 100, for: 500s}\n")
    longer = plan("--schedule", str(storm))["collective_timeout_s"]
    assert longer == plan()["collective_timeout_s"] + 500
