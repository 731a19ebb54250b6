"""Proved links only get a look until something about them has changed; then they are measured."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from containers import PREFIX, Gradwire, tear_down
from wrong_links import change_first_delay, slow_first_link

PROFILE = "rate_mbyte_s: 8\ndelay_ms: 10\n"  # quick to measure
# Changes the loss probability of packets from the peer as a second apply would; the plan stays as it is.
LOSE_A_LITTLE = """
from node.wire import iptables, state
from node.wire.nfqueue import backend
layout = state.load().layout
queue = iptables.INCOMING + layout.slots["node1"]
behaviour = backend.request_of(layout).queues[queue]
backend._tell({"change": {queue: behaviour._replace(loss=0.0001)}})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proof")
    (folder / "near.yml").write_text(PROFILE)
    (folder / "program").mkdir()
    (folder / "program" / "hello.py").write_text("print('hello')\n")
    return folder


@pytest.fixture(scope="module")
def two(request, folder):
    """Two nodes; each test gets their links as requested, and may leave them in any state."""
    cluster = Gradwire(PREFIX + "proof")
    cluster.run("down", "--force")
    yield cluster
    tear_down(cluster, request)


@pytest.fixture
def launch(two, folder):
    def launch(*words, check=0):
        argv = ("--json", *words, "--", folder / "program" / "hello.py")
        done = two.run("launch", *argv, check=check)
        summary = json.loads(done.stdout) if check == 0 else {}
        return summary, done.stderr

    return launch


@pytest.fixture
def proved(two, folder, launch):
    """The summary of the launch that has just proved the links."""
    two.run("up", "--nodes", "2", "--profile", folder / "near.yml", "--cpus", "none")
    return launch()[0]


def contract_of(summary):
    return json.loads((Path(summary["folder"]) / "contract.json").read_text())


def test_a_second_launch_only_looks_and_has_the_figures_of_the_proof(two, proved, launch):
    first = contract_of(proved)
    assert two.json("status")["proof"] == {"at": proved["proved_at"], "changed": ""}
    shown = two.run("status").stdout
    assert f"links: proved {proved['proved_at']}, nothing has changed since" in shown
    summary, said = launch()
    contract = contract_of(summary)
    assert (summary["verified"], summary["verified_by"]) == (True, "look")
    assert summary["proved_at"] == proved["proved_at"] == contract["proved_at"] != ""
    assert "a look shows nothing else" in said and "goodput" not in said
    assert contract["links"] == first["links"] and contract["holds"]
    assert contract["seconds"] == first["seconds"]
    seen = {(link["src"], link["dst"]): link for link in contract["look"]["links"]}
    assert seen.keys() == {("node1", "node2"), ("node2", "node1")}
    assert all(link["rtt_ms"] == pytest.approx(20, abs=2) for link in seen.values())


@pytest.mark.slow
def test_a_run_that_is_repeated_from_its_run_yml_needs_no_other_proof(two, folder):
    """run.yml names the wire that `auto` became."""
    words = ("--json", "--", folder / "program" / "hello.py")
    first = json.loads(
        two.run("launch", "--nodes", "2", "--profile", folder / "near.yml", *words).stdout
    )
    again = two.run("launch", "--json", "-f", Path(first["folder"]) / "run.yml")
    assert json.loads(again.stdout)["verified_by"] == "look", again.stderr


@pytest.mark.slow
def test_full_measures_all_the_same_and_none_does_neither(proved, launch):
    summary, _ = launch("--verify", "full")
    assert summary["verified_by"] == "measurement" and summary["proved_at"] >= proved["proved_at"]
    assert contract_of(summary)["look"] is None
    for words in (("--verify", "none"), ("--no-verify",)):
        summary, _ = launch(*words)
        assert (summary["verified"], summary["verified_by"]) == (False, "")
        assert not (Path(summary["folder"]) / "contract.json").exists()


@pytest.mark.slow
def test_verify_proves_too_and_its_quick_form_does_not(two, proved, launch, folder):
    two.run("shape", "--profile", folder / "near.yml")
    two.run("verify", "--quick")
    assert "changed since" in launch("--verify", "look")[1]
    two.run("shape", "--profile", folder / "near.yml")
    two.run("verify")
    assert launch()[0]["verified_by"] == "look"


def shape_anew(two, folder):
    two.run("shape", "--profile", folder / "near.yml")


def restart(two, folder):
    subprocess.run(["docker", "restart", two.container("node2")], check=True, capture_output=True)


def make_anew(two, folder):
    subprocess.run(["docker", "rm", "-f", two.container("node2")], check=True, capture_output=True)


def limit(two, folder):
    two.run("up", "--nodes", "2", "--cpus", "node2=1")


def change_for_a_while(two, folder):
    """Change a link and restore it, as a schedule does."""
    two.run("shape", "--link", "node1:node2", "--delay", "30", "--for", "1s")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (restart, "applied again"),
        pytest.param(shape_anew, "applied again", marks=pytest.mark.slow),
        pytest.param(make_anew, "other containers (node2)", marks=pytest.mark.slow),
        pytest.param(
            limit, "other limits of processors and memory (node2)", marks=pytest.mark.slow
        ),
        pytest.param(change_for_a_while, "applied again", marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_was_laid_anew_or_has_other_conditions_is_measured(
    two, proved, launch, folder, change, words
):
    change(two, folder)
    summary, said = launch()
    assert "changed since" in said and words in said
    assert summary["verified_by"] == "measurement"


def test_links_whose_daemon_was_killed_are_laid_again_and_measured(two, proved, launch, wire):
    if wire != "nfqueue":
        pytest.skip(f"the wire is {wire}, which has no daemon")
    two.exec("node2", "pkill", "-KILL", "-x", "delayer")
    summary, said = launch()
    assert "applying them again" in said and summary["verified_by"] == "measurement"


@pytest.mark.slow
def test_chances_that_a_daemon_was_told_behind_our_back_are_found(
    two, proved, launch, folder, wire
):
    """One packet in ten thousand: neither a look nor a contract would see it."""
    if wire != "nfqueue":
        pytest.skip(f"the wire is {wire}, which has no daemon")
    two.exec("node2", "python3", "-c", LOSE_A_LITTLE)
    try:
        summary, said = launch()
        assert "changed since: the delayer (nfqueue) (node2)" in said
        assert summary["verified_by"] == "measurement"
    finally:
        shape_anew(
            two, folder
        )  # else what was measured counts as proved, also if this test is made again


def slow(two):
    slow_first_link(two, "node1", "40mbit")


def stretch(two):
    change_first_delay(two, 1.5)


def enlarge(two):
    """Enlarge the queue in front of a link, from 160 kB to 900."""
    shown = two.exec("node1", "tc", "qdisc", "show", "dev", "eth0")
    number = next(line.split()[2] for line in shown.splitlines() if line.startswith("qdisc tbf"))
    queue = f"parent 6777:{number[:-1]} handle {number} tbf rate 1000tbit burst 1514 limit 900000"
    two.exec("node1", "tc", "qdisc", "replace", "dev", "eth0", *queue.split())


@pytest.mark.parametrize(
    ("harm", "part", "broken"),
    [
        pytest.param(
            slow,
            "rates (tc class) (node1)",
            "goodput",
            id="rate",
            marks=pytest.mark.slow,
        ),
        pytest.param(stretch, "not as asked: ", "delay", id="delay"),
        pytest.param(
            enlarge,
            "queues (tc qdisc) (node1)",
            "buffer",
            id="buffer",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_links_made_wrong_behind_our_back_stop_a_launch(
    two, proved, launch, folder, harm, part, broken
):
    harm(two)
    try:
        assert two.json("status")["proof"]["changed"] != ""
        _, said = launch(check=1)
        assert f"changed since: {part}" in said
        assert re.search(rf"broken: node1 -> node2 \([^)]*{broken}", said)
        assert "the links are not what was asked for" in said and "nothing was started" in said
        assert not (two.state_dir / "proof.json").exists()
        assert two.json("status")["proof"] is None
        assert "links: not proved" in two.run("status").stdout
    finally:
        shape_anew(two, folder)


@pytest.fixture
def wire(two, proved):
    return two.json("status")["wire"]
