"""A run exported for Perfetto: slices only nest, arrows connect tracks, and each track has its name."""

import json

import pytest
from run_folders import BEGAN, make_run

from cluster.export import main
from cluster.reporting.read_run import read_run
from cluster.reporting.trace import Piece, _lanes, trace


@pytest.fixture
def events(tmp_path):
    said = [{"time": BEGAN + 3, "after_s": 3.0, "step": 5, "what": "at: 3s, link: node1:node2"}]
    return trace(read_run(make_run(tmp_path / "run", events=said)))["traceEvents"]


def test_slices_of_a_track_only_nest(events):
    tracks = {}
    for event in (one for one in events if one["ph"] == "X"):
        assert isinstance(event["ts"], int) and event["dur"] > 0
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for own in tracks.values():
        open_until = []
        for event in sorted(own, key=lambda one: (one["ts"], -one["dur"])):
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            assert not open_until or event["ts"] + event["dur"] <= open_until[-1], event
            open_until.append(event["ts"] + event["dur"])
    assert len([key for key in tracks if key[0] == 1]) == 3


def test_in_a_step_is_its_collective_and_in_that_are_waiting_and_transfer(events):
    first = [one for one in events if one["ph"] == "X" and (one["pid"], one["tid"]) == (1, 1)]
    names = [one["name"] for one in first]
    at = names.index("step 5")
    assert names[at : at + 2] == ["step 5", "all_reduce"]
    assert set(names[at + 2 : at + 4]) <= {"waiting", "transfer", "step 6"}
    inside = [one for one in first if one["name"] in ("waiting", "transfer")]
    whole = sum(one["dur"] for one in first if one["name"] == "all_reduce")
    assert sum(one["dur"] for one in inside) == whole


def test_tracks_have_names_and_arrows_lead_from_sender_to_receiver(events):
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [named[1, track] for track in (1, 2, 3)] == ["node1", "node2", "node3"]
    assert {name for (process, _), name in named.items() if process == 2} == {
        *("node1->node2", "node2->node3", "node3->node1")
    }
    starts, ends = ({e["id"]: e for e in events if e["ph"] == kind} for kind in ("s", "f"))
    assert len(starts) == 12 and starts.keys() == ends.keys()  # 4 collectives, 3 ranks
    for number, start in starts.items():
        assert ends[number]["tid"] == start["tid"] % 3 + 1
        assert start["ts"] <= ends[number]["ts"]


def test_events_of_a_schedule_are_marks(events):
    (mark,) = [one for one in events if one["ph"] == "i"]
    assert (mark["name"], mark["ts"], mark["s"]) == ("at: 3s, link: node1:node2", 5_000_000, "g")


def test_export_writes_it(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    assert main([str(folder), "--trace"]) == 0
    assert capsys.readouterr().out == f"{folder / 'trace.json'}\n"
    assert json.loads((folder / "trace.json").read_text())["displayTimeUnit"] == "ms"
    assert not (folder / "metrics.csv").exists()
    foreign = make_run(tmp_path / "foreign", program=True)
    assert main([str(foreign), "--trace"]) == 2
    assert "no metrics in" in capsys.readouterr().err


def test_pieces_that_overlap_take_the_first_free_lane():
    spans = [(0, 9), (1, 3), (2, 4), (3, 5), (4, 6), (9, 10)]
    lanes = _lanes(Piece("x", start, end, {}) for start, end in reversed(spans))
    found = [[(one.start_us, one.end_us) for one in lane] for lane in lanes]
    assert found == [[(0, 9), (9, 10)], [(1, 3), (3, 5)], [(2, 4), (4, 6)]]
