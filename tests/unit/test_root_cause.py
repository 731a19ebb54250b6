"""What is said about a failed run: its root cause, the consequences, and what its log does not tell."""

import json
import math
import signal
import time

import pytest

from cluster.base.errors import RunFailed
from cluster.base.spec import ClusterSpec
from cluster.engine.node_fate import node_fate
from cluster.run.rank_exit import RankExit, read_report
from cluster.run.rank_placement import place_ranks
from cluster.run.root_cause import cause_document, missing_links, raise_failure, root_cause
from cluster.run.stall import Stall
from node.supervisor.error_file import is_bystander, last_error
from protocol.link import Link
from protocol.rank import LOST

NODES = ClusterSpec(size=4).nodes
RING = [
    Link(f"node{a}", f"node{b}", 1.0, 1.0, 0.0, 0.0, 10.0)
    for a in range(1, 5)
    for b in (a % 4 + 1, (a - 2) % 4 + 1)
]
PLACES = place_ranks(["node1", "node2", "node3"])
RUNNING = {
    "Name": "/gradwire-node2",
    "State": {
        "Running": True,
        "Paused": False,
        "OOMKilled": False,
        "ExitCode": 0,
        "StartedAt": "2026-11-23T01:30:11.798118143Z",
    },
    "NetworkSettings": {"Networks": {"gradwire_data": {}}},
}
SINCE = 1795400000.0  # some time after StartedAt


def said_of(tmp_path, ended, fates=None):
    with pytest.raises(RunFailed) as failed:
        raise_failure(tmp_path, ended, fates or {}, None, (), (), {})
    return failed.value.message.splitlines()


def write_log(tmp_path, name, text):
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / "logs" / f"{name}.log").write_text(text)


def test_the_missing_link_is_named_by_its_nodes():
    log = [f"connect [{NODES[2].address}]:41234: No route to host", f"bound {NODES[0].address}"]
    (words,) = missing_links("node1", log, NODES, RING)
    assert words.startswith("node1 and node3 have no link")
    assert missing_links("node2", log, NODES, RING) == []
    assert missing_links("node1", log, NODES, []) == []


FAULT = """\
  what():  [tcp/pair.cc:534] Connection closed by peer
Fatal Python error: Aborted

Thread 0x00007f1c2a3fe700 (most recent call first):
  File "/usr/lib/python3.13/threading.py", line 359 in wait
  File "/x/loader.py", line 1 in run

Current thread 0x00007f1c400d7b80 (most recent call first):
  File "/x/comm.py", line 12 in all_reduce
  File "/x/train.py", line 99 in <module>

Extension modules: numpy.core._multiarray_umath, torch._C (total: 2)
"""


def test_of_a_rank_that_crashed_what_it_said_and_where_it_was_is_shown(tmp_path):
    before = "".join(f"step {n}\n" for n in range(20)) + "terminate called\n"
    write_log(tmp_path, "node1", before + FAULT)
    said = said_of(tmp_path, [RankExit(PLACES[0], -signal.SIGABRT, 1.0)])
    assert said[1:] == [
        "  | step 19",
        "  | terminate called",
        "  |   what():  [tcp/pair.cc:534] Connection closed by peer",
        "  | Fatal Python error: Aborted",
        "  | Current thread 0x00007f1c400d7b80 (most recent call first):",
        '  |   File "/x/comm.py", line 12 in all_reduce',
        '  |   File "/x/train.py", line 99 in <module>',
    ]


def test_a_crash_of_before_a_rank_was_started_again_is_not_its_end(tmp_path):
    write_log(tmp_path, "node1", FAULT + "boom\n")
    said = said_of(tmp_path, [RankExit(PLACES[0], 1, 1.0)])
    assert said[-1] == "  | boom"
    assert len(said) == 1 + 8


def test_ranks_that_we_stopped_are_not_said_to_be_killed(tmp_path):
    write_log(tmp_path, "node2", "boom\n")
    stopped = RankExit(PLACES[0], -signal.SIGTERM, 1.0, was_stopped=True)
    lines = said_of(tmp_path, [RankExit(PLACES[1], 1, 0.0), stopped])
    assert lines[-1] == "  the others: node1 was stopped"


def test_what_a_rank_says_of_its_failure_stands_before_its_log(tmp_path):
    write_log(tmp_path, "node1-1", "last words\n")
    place = place_ranks(["node1", "node2"], 2)[1]
    lines = said_of(tmp_path, [RankExit(place, 1, 0.0, "ValueError: out of cheese")])
    assert lines[0].startswith("rank 1 on node1 ended with exit code 1: the root cause")
    assert lines[1:] == ["  ValueError: out of cheese", "  | last words"]


@pytest.mark.parametrize(
    "root",
    [
        RankExit(PLACES[1], 1, 11.0, "ValueError: boom"),  # later than the ranks that saw it go
        RankExit(PLACES[1], LOST, 12.0),
        RankExit(PLACES[1], -signal.SIGKILL, 12.0),
    ],
)
def test_who_saw_another_go_is_never_the_root_cause(root):
    saw = RankExit(PLACES[0], 1, 10.0, "Connection closed by peer", is_bystander=True)
    stopped = RankExit(PLACES[2], -signal.SIGTERM, 9.0, was_stopped=True)
    for ended in ([saw, root, stopped], [stopped, root, saw], [root, stopped, saw]):
        assert root_cause(ended) == root


def test_of_bystanders_alone_the_first_is_named_and_none_that_we_stopped():
    first, second = (RankExit(place, 1, place.rank, is_bystander=True) for place in PLACES[:2])
    stopped = RankExit(PLACES[2], -signal.SIGTERM, 0.0, was_stopped=True)
    assert root_cause([stopped, second, first]) == first


LEARNER, *ACTORS = place_ranks(["node1", "node2", "node3"], essential=[0])


def test_a_rank_that_the_run_did_without_is_not_the_root_cause_but_said_to_have_failed(tmp_path):
    gone = RankExit(ACTORS[0], -signal.SIGKILL, 1.0)
    saw = RankExit(LEARNER, 1, 2.0, "Connection closed by peer", is_bystander=True)
    stopped = RankExit(ACTORS[1], -signal.SIGTERM, 3.0, was_stopped=True)
    lines = said_of(tmp_path, [saw, gone, stopped])
    assert lines[0] == (
        "rank 0 on node1 ended with exit code 1: the root cause (of 2 ranks that failed)"
    )
    assert lines[-2:] == [
        "  before it: node2 was killed by SIGKILL",
        "  the others: node3 was stopped",
    ]


def test_one_that_the_run_could_do_without_is_the_root_cause_where_it_is_stopped(tmp_path):
    held = RankExit(ACTORS[0], -signal.SIGTERM, 3.0, was_stopped=True, stall="it is stopped (T)")
    saw = RankExit(LEARNER, 1, 2.0, "Timed out waiting", is_bystander=True)
    assert root_cause([saw, held]) == held


def test_where_all_essential_ranks_ended_well_nothing_failed(tmp_path):
    ended = [RankExit(LEARNER, 0, 3.0), RankExit(ACTORS[0], LOST, 1.0), RankExit(ACTORS[1], 1, 2.0)]
    raise_failure(tmp_path, ended, {}, None, (), (), {})


def test_a_rank_without_a_log_is_named_all_the_same(tmp_path):
    (line,) = said_of(tmp_path, [RankExit(PLACES[1], 3, 0.0)])
    assert line.startswith("rank 1 on node2 ended with exit code 3")


def test_of_a_long_log_only_the_end_is_read(tmp_path):
    write_log(tmp_path, "node2", "x" * 10**7 + "\nthe end\n")
    assert said_of(tmp_path, [RankExit(PLACES[1], 3, 0.0)])[-1] == "  | the end"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (9, "was killed by SIGKILL"),
        (40, f"was killed by SIGRTMIN+{40 - signal.SIGRTMIN}"),
        (33, "was killed by signal 33"),
    ],
)
def test_every_signal_has_a_name(tmp_path, number, words):
    assert words in said_of(tmp_path, [RankExit(PLACES[1], -number, 0.0)])[0]


def test_lack_of_memory_is_said(tmp_path):
    killed = RankExit(PLACES[1], -signal.SIGKILL, 0.0, out_of_memory=True)
    assert "was killed for lack of memory" in said_of(tmp_path, [killed])[0]
    worker = RankExit(PLACES[1], 1, 0.0, out_of_memory=True)
    assert "exit code 1; the kernel killed a process of it" in said_of(tmp_path, [worker])[0]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"Paused": True}, "its container is paused: docker unpause gradwire-node2"),
        ({"Running": False, "ExitCode": 137}, "its container ended (exit code 137, SIGKILL)"),
        ({"Running": False, "ExitCode": 1}, "its container ended (exit code 1)"),
        (
            {"Running": False, "OOMKilled": True, "ExitCode": 137},
            "its container ran out of memory and ended (exit code 137, SIGKILL)",
        ),
        (
            {"StartedAt": "2026-12-23T01:30:11.798118143Z"},
            "its container ended and was started again at 2026-12-23T01:30:11Z",
        ),
        ({}, ""),
    ],
)
def test_what_became_of_a_lost_node_is_said_as_the_engine_knows_it(tmp_path, state, words):
    inspected = RUNNING | {"State": RUNNING["State"] | state}
    assert node_fate(inspected, SINCE) == words
    lost = said_of(tmp_path, [RankExit(PLACES[1], LOST, 0.0)], {"node2": words})[0]
    assert lost.startswith(f"rank 1 on node2 was lost ({words or 'its connection broke'})")


def test_a_node_without_network_or_container_is_said_to_be_that():
    assert node_fate(None, SINCE) == "its container has been removed"
    off = RUNNING | {"NetworkSettings": {"Networks": {}}}
    assert node_fate(off, SINCE) == "its container is connected to no network"


@pytest.mark.parametrize(
    "words",
    [
        "",
        "5",
        "null",
        "[]",
        "{}",
        '{"exit_code": null, "time": 1, "reported": 1}',
        '{"exit_code": 1, "time": []}',
    ]
    + ["[" * 100_000, '{"exit_code": 1e999, "time": 1, "reported": 1}', "x\x00y"]
    + [
        '{"exit_code": 1, "time": NaN, "reported": 1}',
        '{"exit_code": -1000, "time": 1, "reported": 1}',
        '{"exit_code": true, "time": 1, "reported": 1}',
    ]
    + [json.dumps({"exit_code": 1, "time": 1, "reported": 1, "error": "x" * 301})],
)
def test_whatever_stands_in_for_a_report_is_an_end(words):
    assert read_report(PLACES[0], 7, words).exit_code == 7
    assert read_report(PLACES[0], 0, words).exit_code == LOST  # it may not have finished


def report_of(exit_code, time_s, reported_s, **more):
    return json.dumps({"exit_code": exit_code, "time": time_s, "reported": reported_s} | more)


def test_a_report_is_read_and_its_time_is_one():
    text = report_of(-9, 12.5, time.time(), error="a", bystander=True, out_of_memory=True)
    end = read_report(PLACES[0], 137, f"noise\n{text}")
    assert end == RankExit(PLACES[0], -9, 12.5, "a", is_bystander=True, out_of_memory=True)
    assert read_report(PLACES[0], 1, report_of(3, math.nan, 1)).time > 0


@pytest.mark.parametrize("apart_s", [-3600, -30, 30, 3600])
def test_the_time_of_a_failure_is_by_our_clock_if_the_nodes_is_wrong(apart_s):
    """By its own, a rank that we stopped failed first, on a host whose clock is behind: the root cause."""
    now = time.time()
    end = read_report(PLACES[1], 143, report_of(-15, now + apart_s - 2, now + apart_s))
    assert end.time == pytest.approx(now - 2, abs=1)


@pytest.mark.parametrize(
    "words",
    [
        "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.77.0.12]:41",
        "RuntimeError: [..] Timed out waiting 60000ms for recv operation to complete",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /a",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        "DistNetworkError: failed to recv, got 0 bytes. Connection was likely closed.",
        "DistNetworkError: recvValue failed: Connection was likely closed.",
        "DistBackendError: NCCL error in: x.cpp:1, remote process exited or there was a network error",
    ],
)
def test_words_of_another_ranks_end_are_known(words):
    assert is_bystander(words)


@pytest.mark.parametrize("words", ["ValueError: boom", "", "KeyError: 'peer'", "MemoryError"])
def test_words_of_an_own_failure_are_not_taken_for_those(words):
    assert not is_bystander(words)


def test_the_last_exception_of_a_program_is_found_by_what_it_printed():
    chained = (
        "Traceback (most recent call last):\n  File 'a'\nConnectionError: closed by peer\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n  File 'b', line 1\n    f()\nValueError: boom\n"
        "[W] sendBytes failed: Broken pipe\n"
    )
    assert last_error(chained) == "ValueError: boom"
    ranked = "".join(f"[rank1]: {line}\n" for line in chained.splitlines())
    assert last_error(ranked) == "ValueError: boom"
    assert last_error("all is well\n") == last_error("") == ""


def test_a_log_is_something_to_see_and_nothing_to_try(tmp_path):
    write_log(tmp_path, "node1", "boom\n")
    ended = [RankExit(place, 1 if place.rank == 0 else 0, 1.0) for place in PLACES]
    with pytest.raises(RunFailed) as failed:
        raise_failure(tmp_path, ended, {}, None, (), (), {})
    assert str(failed.value).splitlines()[-1] == f"  see: {tmp_path}/logs/node1.log"
    assert "try:" not in str(failed.value)


def test_the_root_cause_is_recorded_as_it_is_told():
    saw = RankExit(PLACES[0], 1, 10.0, "Connection closed by peer", is_bystander=True)
    own = RankExit(PLACES[2], 1, 11.0, "ValueError: boom")
    assert cause_document([saw, own], {}, None) == {
        "rank": "node3",
        "words": "ended with exit code 1: ValueError: boom",
    }
    lost = RankExit(PLACES[1], LOST, 9.0)
    found = cause_document([saw, lost], {"node2": "its container is paused"}, None)
    assert found == {"rank": "node2", "words": "was lost (its container is paused)"}


@pytest.mark.parametrize(
    ("done", "words"),
    [
        ({0: 9.0}, "node1, and with rank 0 ended the store by which ranks find each other; "),
        ({1: 11.0}, "node2; "),
        ({0: 9.0, 1: 9.5}, "node1, node2, and with rank 0 ended the store"),
    ],
)
def test_whoever_was_done_too_early_for_a_rank_is_named(tmp_path, done, words):
    ended = [RankExit(PLACES[rank], 0, time) for rank, time in done.items()]
    ended += [RankExit(PLACES[2], 1, 10.0, "Broken pipe", is_bystander=True)]
    (said,) = [line for line in said_of(tmp_path, ended) if "done by then" in line]
    assert said.startswith(f"  done by then: {words}")
    assert said.endswith("with dist.barrier() as their last step")
    recorded = cause_document(ended, {}, None)
    assert recorded["words"] == f"ended with exit code 1: Broken pipe; {said.strip()}"


def test_whoever_was_told_to_end_was_not_done_by_then(tmp_path):
    saw = RankExit(PLACES[2], 1, 10.0, "Broken pipe", is_bystander=True)
    ended = [RankExit(PLACES[0], 0, 16.0, was_stopped=True), saw]
    assert not any("done by then" in line for line in said_of(tmp_path, ended))


def test_whoever_was_done_before_a_rank_failed_by_itself_is_not_named(tmp_path):
    ended = [RankExit(PLACES[0], 0, 9.0), RankExit(PLACES[1], 1, 10.0, "ValueError: boom")]
    assert not any("done by then" in line for line in said_of(tmp_path, ended))


def test_no_rank_is_recorded_of_a_run_that_none_made_fail():
    ended = [RankExit(LEARNER, 0, 3.0), RankExit(ACTORS[0], LOST, 1.0), RankExit(ACTORS[1], 1, 2.0)]
    assert cause_document(ended, {}, None) is None


def test_a_stall_is_recorded_with_the_rank_that_caused_it_if_that_is_known():
    stopped = [RankExit(place, -signal.SIGTERM, 1.0, was_stopped=True) for place in PLACES]
    nothing = "nothing has moved for 60 s: no output, no computing, no bytes sent"
    found = cause_document(stopped, {}, Stall(60.0, None, "", ["rank 0 …"]))
    assert found == {"rank": "", "words": f"stalled: {nothing}; ended by --stall-timeout"}
    found = cause_document(stopped, {}, Stall(60.0, PLACES[1], "it is stopped (T)", []))
    words = f"stalled: it is stopped (T); {nothing}; ended by --stall-timeout"
    assert found == {"rank": "node2", "words": words}
