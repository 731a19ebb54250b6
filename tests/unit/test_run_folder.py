"""The run folder: its name, how the ranks' files are sorted into it, and which of them can be read."""

import json
import os
import subprocess
import sys

import pytest

from cluster.accounting.collective_stats import read_collectives
from cluster.accounting.metrics import LastLines
from cluster.base.errors import ClusterError
from cluster.base.json_file import json_text, write_json
from cluster.base.paths import PROJECT_DIR
from cluster.run.rank_placement import place_ranks
from cluster.run.run_folder import check_writable, last_events, make_run_folder, sort_results

METRICS = '{"event": "start", "rank": 1, "time": 1.0}\n{"event": "end", "rank": 1, "time": 2.0}\n'
PART = {
    "time": 1.0,
    "step": 1,
    "kind": "all_reduce",
    "purpose": "train",
    "bytes": 8,
    "sent_bytes": 8,
    "hops": 1,
    "messages": 1,
    "to": {"0": 8},
    "done_s": 1.0,
    "waited_s": 1.0,
    "hidden": False,
}
NOBODY = 65534


def came_to_its_end(folder):
    lines = last_events(folder, "node2")
    return bool(lines.start and lines.end)


@pytest.fixture
def sort(tmp_path):
    """A function that sorts the files of node2, rank 1, into the run: names and texts, None for a folder."""
    places = place_ranks(["node1", "node2"])

    def call(node="node2", **left):
        folder = tmp_path / "files" / node
        folder.mkdir(parents=True)
        for name, text in left.items():
            path = folder / name.replace("_", ".")
            if text is None:
                path.mkdir()
            else:
                path.write_text(text)
        sort_results(tmp_path, node, [place for place in places if place.node == node])

    return call


def test_metrics_have_a_place_of_their_own(sort, tmp_path):
    sort(metrics_jsonl=METRICS, collectives_jsonl="{}\n")
    assert came_to_its_end(tmp_path)
    assert (tmp_path / "metrics" / "node2.collectives.jsonl").exists()
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize("words", ["loss 0.5\n", '{"loss": 0.5}\n', "[1]\n", "", "\0\n"])
def test_a_users_own_file_of_that_name_is_the_users(sort, tmp_path, words):
    sort(metrics_jsonl=words, collectives_jsonl=words)
    assert (tmp_path / "files" / "node2" / "metrics.jsonl").read_text() == words
    assert (tmp_path / "files" / "node2" / "collectives.jsonl").read_text() == words
    assert last_events(tmp_path, "node2") == LastLines()


def test_the_model_is_rank_0s(sort, tmp_path):
    for node in ("node1", "node2"):
        sort(node, model_pt=node)
    assert (tmp_path / "model.pt").read_text() == "node1"
    assert (tmp_path / "files" / "node2" / "model.pt").read_text() == "node2"


def test_folders_where_files_should_be_stay_where_they_are(sort, tmp_path):
    sort(metrics_jsonl=METRICS, collectives_jsonl=None)
    assert (tmp_path / "files" / "node2" / "collectives.jsonl").is_dir()
    assert came_to_its_end(tmp_path)
    assert read_collectives(tmp_path, ["node1", "node2"]) == []


END = {"event": "end", "rank": 1, "time": 2.0}
DEEP = '{"a":' * 100_000


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "end", "rank": 1, "time": 2.0, "cut": {}',  # cut off after a }
        '{"time": 2.0, "rank": 1}',
        "5",
        "[]",
        "\0\xff",
        DEEP,
        json.dumps(END | {"time": "late"}),
        json.dumps(END | {"rank": "../x"}),
        json.dumps(END | {"event": ["end"]}),
        json.dumps(END | {"seconds": [1]}),
        json.dumps(END | {"seconds": {"comm": "much"}}),
        json.dumps(END | {"seconds": {"comm": 1e400}}),
        json.dumps(END | {"steps": 10**400}),
        json.dumps(END | {"tested": {"\x1b[31m": 1.0}}),
        json.dumps(END | {"link_bytes": {"node1": -1}}),
        json.dumps(END | {"collectives": [{"kind": "all_reduce"}]}),
        json.dumps(END | {"test_accuracy": "0.9"}),
    ],
    ids=lambda line: line[-40:],
)
def test_a_line_of_metrics_that_is_none_counts_as_not_there(tmp_path, line):
    (tmp_path / "metrics").mkdir()
    good = json.dumps(END | {"time": 1.0})
    text = f"{METRICS}{good}\n{line}\n"
    (tmp_path / "metrics" / "node2.jsonl").write_bytes(text.encode("latin-1"))
    assert came_to_its_end(tmp_path)
    assert last_events(tmp_path, "node2").end.time == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": 5},
        {"to": {"x": 1}},
        {"to": {"-1": 1}},
        {"messages": 10**12},
        {"time": None},
        {"sources": "all"},
        {"done_s": float("nan")},
    ],
)
def test_so_do_lines_of_collectives(tmp_path, wrong):
    (tmp_path / "metrics").mkdir()
    lines = [PART, PART | wrong, {"no": "part"}, PART]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"time": 1}\n}\n'
    (tmp_path / "metrics" / "node1.collectives.jsonl").write_text(text)
    assert len(read_collectives(tmp_path, ["node1"])) == 2


@pytest.mark.parametrize(
    "name", ["../../../evil", "/etc/x", "a/b", "n" * 300, "ü" * 200, "\x1b[31m", "..", "", "\0"]
)
def test_no_name_leads_the_folder_of_a_run_elsewhere(tmp_path, name):
    for profile, program in ((name, "train"), ("mobile", name), (name, name)):
        folder = make_run_folder(tmp_path / "runs", profile, program)
        assert folder.parent == tmp_path / "runs"
        assert folder.is_dir() and len(folder.name.encode()) <= 200
        assert set(folder.name) <= set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
        )
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


def test_a_place_for_runs_that_cannot_be_written_is_told_in_one_line(tmp_path):
    (tmp_path / "runs").write_text("a file")
    for act in (check_writable, lambda path: make_run_folder(path, "mobile", "train")):
        with pytest.raises(ClusterError, match="cannot be"):
            act(tmp_path / "runs")
    check_writable(tmp_path / "new" / "runs")


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, which only root may")
def test_a_place_of_somebody_else_is_told_too(tmp_path):
    code = (
        f"import os, pathlib, cluster.run.run_folder; os.setuid({NOBODY})\n"
        f"cluster.run.run_folder.check_writable(pathlib.Path({str(tmp_path)!r}))"
    )
    tmp_path.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_DIR, capture_output=True)
    assert b"cannot be written: Permission denied" in done.stderr


def test_what_json_has_no_number_for_is_null(tmp_path):
    nan, inf = float("nan"), float("inf")
    document = {"loss": nan, "all": [inf, -inf, 1.5], "deep": {"pair": (nan, 2)}, "text": "NaN"}
    good = {"loss": None, "all": [None, None, 1.5], "deep": {"pair": [None, 2]}, "text": "NaN"}
    assert json.loads(json_text(document), parse_constant=pytest.fail) == good
    write_json(tmp_path / "summary.json", document)
    text = (tmp_path / "summary.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == good


def test_a_file_that_could_not_be_written_is_as_it_was(tmp_path):
    """A low limit on the size of the process's files acts like a full disk."""
    write_json(tmp_path / "summary.json", {"whole": 1})
    code = (
        "import pathlib, resource, signal\nfrom cluster.base.json_file import write_json\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"write_json(pathlib.Path({str(tmp_path)!r}, 'summary.json'), ['x' * 5000])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_DIR, capture_output=True)
    assert b"File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    assert json.loads((tmp_path / "summary.json").read_text()) == {"whole": 1}


SMALL_FILES = """\
import pathlib, resource, signal
from cluster.base.errors import system_error
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
folder = pathlib.Path({folder!r})
try:
    {write}
except OSError as error:
    print(system_error(error))
"""


@pytest.mark.parametrize(
    ("name", "write"),
    [
        (
            "run.yml",
            "from cluster.run.run_folder import write_config; write_config(folder, {'x': 'y' * 5000})",
        ),
        (
            "links.json",
            "from cluster.base.json_file import write_json; write_json(folder / 'links.json', ['x' * 5000])",
        ),
        (
            "known_hosts",
            "from cluster.base.files import write_text; write_text(folder / 'known_hosts', 'x' * 5000)",
        ),
    ],
)
def test_a_file_for_which_there_is_no_room_is_named_and_no_half_of_it_stays(tmp_path, name, write):
    code = SMALL_FILES.format(folder=str(tmp_path), write=write)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_DIR, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"File too large: {tmp_path / name}\n  try: ulimit -f unlimited\n"
    assert list(tmp_path.iterdir()) == []
