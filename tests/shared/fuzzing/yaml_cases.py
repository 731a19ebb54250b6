"""Files that users write or pass on: profiles, topologies, schedules, traces, experiments, sweeps, run folders."""

import functools
import json
import re
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

import yaml
from hypothesis import strategies as st
from past_runs import write_run
from run_folders import make_run

import cluster.export
import cluster.launch
import cluster.profiles
import cluster.report
import cluster.reporting.write
import cluster.sweep
import cluster.whatif
from cluster.base.errors import ClusterError
from cluster.base.paths import CODE_DIR, PROFILES_DIR
from cluster.base.spec import ClusterSpec
from cluster.links.link_spec import link_plans, make_link_spec
from cluster.live.follow import read_pointer, read_state
from cluster.shaping.link_record import plans_to_be
from cluster.shaping.temporary_changes import read_temporary_changes
from cluster.sweeps.records import read_record
from fuzzing.mutations import JSON_VALUES, damaged, texts
from fuzzing.sandbox import call, check, said_of
from protocol.reader import document

EXAMPLES = CODE_DIR / "examples"
PROGRAM = ["train.py", "--epochs", "2"]
SPEC = ClusterSpec("lab", 3, 0)
PLANS = link_plans(SPEC.nodes, make_link_spec("wan", "full", 1, "nfqueue"))
LAUNCH = ("--dry-run", "--nodes", "3")


def read(*paths):
    """Read documents; steps in schedules become seconds, because a user's own program counts no steps."""
    return [
        yaml.safe_load(re.sub(r"at: step (\d+)", r"at: \1s", path.read_text("utf-8")))
        for path in paths
    ]


# with the profiles of two of them
GRIDS = read(*sorted((CODE_DIR / "tests" / "grids").glob("*.yml")))
PROFILES = read(*sorted(PROFILES_DIR.glob("*.yml")), EXAMPLES / "uplinks.yml") + [
    *(grid for grid in GRIDS if "links" not in grid),
    {"rate_mbyte_s": 1, "delay_ms": 20, "duplicate_pct": 1, "corrupt_pct": 1, "reorder_pct": 2}
    | {"loss_pct": 1, "loss_burst": 3, "buffer_ms": 50, "downlink_mbyte_s": 2},
]
TOPOLOGIES = [
    *(grid for grid in GRIDS if "links" in grid),
    "ring",
    {"name": "mine", "base": "star", "links": [{"ends": ["node1", "node2"], "rate_mbyte_s": 2}]},
    {"base": "full", "nodes": {"node1": {"uplink_mbyte_s": 1}}, "isolated": True},
]
SCHEDULES = read(EXAMPLES / "storm.yml", EXAMPLES / "ride.yml", EXAMPLES / "cut_off_actor.yml") + [
    [{"at": "1s", "heal": True}, {"at": "2s", "link": "node1:node2", "rate_mbyte_s": 1}],
]
EXPERIMENTS = [
    {"kind": "experiment", "nodes": 3, "profile": "mobile", "program": PROGRAM, "name": "lab"}
    | {"cpus": {"node3": 0.5}, "memory": "1g", "gpus": {"node1": "0"}, "topology": "ring"}
    | {"link_seed": 3, "wire": "nfqueue", "isolated": True, "essential_ranks": [0], "slot": 4}
    | {"max_restarts": 3, "nproc_per_node": 2, "rank_order": ["node1", "node3", "node2"]}
    | {"max_results": "10g", "stall_timeout": "2m", "allow_undecided": True, "image": "mine"}
    | {"schedule": SCHEDULES[0]},
    {"kind": "experiment", "profile": "profile.yml", "topology": "topology.yml", "program": PROGRAM}
    | {"schedule": "schedule.yml", "folder": ".", "verify": False},
]
TRAININGS = read(EXAMPLES / "experiment.yml")  # a process of node.train checks each
SWEEPS = read(*sorted((EXAMPLES / "sweeps").glob("*.yml")))


def _few_runs(document):
    """Return the document with just enough runs to show its keys, because a process of node.train checks each."""
    if "variants" in document:
        few = dict(list(document["variants"].items())[:2])
        document = document | {"variants": few, "seed": 1}
    return document


def launch(place, words, files):
    """Run `launch --dry-run` in a folder with a program and these files."""
    for name, data in {"train.py": b"", **files}.items():
        (place.work / name).write_bytes(data)
    _verb(place, cluster.launch.main, words)


def _verb(place, main, words, most_characters=4000):
    ended = call(main, [str(word) for word in words])
    place.count(f"exit {ended.exit_code}")
    check(ended, most_characters)


def profile(place, data):
    (place.work / "mine.yml").write_bytes(data)
    _verb(place, cluster.profiles.main, ["./mine.yml"])
    launch(place, [*LAUNCH, "--profile", "mine.yml", "--", "train.py"], {})


def topology(place, data):
    words = ["--profile", "wan", "--topology", "mine.yml", "--", "train.py"]
    launch(place, [*LAUNCH[:2], "4", *words], {"mine.yml": data})


def schedule(place, data):
    ride = (EXAMPLES / "ride.csv").read_bytes()
    words = ["--profile", "mobile", "--schedule", "storm.yml", "--", "train.py"]
    launch(place, [*LAUNCH, *words], {"storm.yml": data, "ride.csv": ride})


def trace(place, data):
    event = b"[{at: 0s, trace: ride.csv, link: node1:node2, loop: true}]"
    words = ["--profile", "mobile", "--schedule", "storm.yml", "--", "train.py"]
    launch(place, [*LAUNCH, *words], {"storm.yml": event, "ride.csv": data})


def experiment(place, data):
    files = {"profile.yml": b"{rate_mbyte_s: 1, delay_ms: 1}", "topology.yml": b"ring"}
    files |= {"schedule.yml": b"[{at: 1s, profile: wan}]", "experiment.yml": data}
    launch(place, ["--dry-run", "-f", "experiment.yml"], files)


def sweep(place, data):
    (place.work / "sweep.yml").write_bytes(data)
    (place.work / "examples").mkdir(exist_ok=True)
    shutil.copy(EXAMPLES / "lan.yml", place.work / "examples")  # a sweep names it
    _verb(place, cluster.sweep.main, ["sweep.yml", "--dry-run"])


RUN_FILES = ("run.yml", "links.json", "contract.json", "summary.json", "events.jsonl", "links.csv")


@functools.cache
def good_run():
    """Return two run folders as launches leave them: one to launch again, and one with all that a report shows."""
    event = {"time": 1_700_000_003.0, "after_s": 3.0, "what": "node1->node2 is down"}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        write_run(home / "launched")
        make_run(home / "reported", nodes=2, steps=4, every=2, events=[event])
        files = (path for path in home.rglob("*") if path.is_file())
        return {path.relative_to(home): path.read_bytes() for path in files}


@st.composite
def run_folders(draw):
    """Draw a run folder with one file mutated: the file's path in it, and its bytes."""
    files = good_run()
    path = draw(st.sampled_from(sorted(path for path in files if path.name in RUN_FILES)))
    if path.suffix in (".csv", ".jsonl"):
        return path, draw(damaged(files[path]))
    document = yaml.safe_load(files[path])
    kind = texts([document]) if path.suffix == ".yml" else texts([document], JSON_VALUES)
    return path, draw(kind)


def write_folder(place, changed, data):
    """Write a good run folder into the sandbox, with other bytes in one file; return the folder."""
    home = place.work / "runs"
    for path, content in good_run().items():
        target = home / path
        if path.parts[0] == changed.parts[0]:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data if path == changed else content)
    return home / changed.parts[0]


def run_folder(place, changed, data):
    """Run all verbs that read the folder of an earlier run."""
    folder = write_folder(place, changed, data)
    read_again(place, folder)
    if changed.name in ("run.yml", "links.json"):
        launch(place, ["-f", folder, "--dry-run"], {})


def launch_again(place, data):
    """Use a run folder whose run.yml was changed."""
    folder = write_folder(place, RUN_YML, data)
    launch(place, ["-f", folder, "--dry-run"], {})
    _verb(place, cluster.whatif.main, [folder])


class Pictures:
    """vl-convert without its engine, which would take a second per report."""

    __version__ = "0"

    @staticmethod
    def vegalite_to_svg(specification, vl_version):
        """Accept any valid JSON."""
        json.dumps(specification, allow_nan=False)
        return '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" viewBox="0 0 9 9"/>'

    @staticmethod
    def javascript_bundle(vl_version):
        """Return nothing, as no script runs here."""
        return ""


def read_again(place, folder):
    """Make the report, tables, Perfetto's trace, and what-if."""
    before = set(folder.parent.iterdir())
    with patch.object(cluster.reporting.write, "converter", Pictures):
        _verb(place, cluster.report.main, [folder])
    _verb(place, cluster.export.main, [folder, "--trace", "--csv"])
    _verb(place, cluster.whatif.main, [folder])
    assert set(folder.parent.iterdir()) == before, "a report wrote outside of its run folder"


def drawn_report(place, changed, data):
    """Make the report with the real engine."""
    _verb(place, cluster.report.main, [write_folder(place, changed, data)])


RECORD = {"status": "done", "folder": "runs/x", "reason": "", "summary": {"wall_s": 3.0}}
NOTE = {"pid": 1, "started": "5", "what": "a schedule", "limits": {"node1": {"cpus": 1.5}}}
STATE_FILES = {
    "run.json": {"folder": "runs/x", "pid": 1, "started": "5"},
    "temporary-1-1.json": NOTE,
    "links.json": {
        node.name: document(plan) for node, plan in zip(SPEC.nodes, PLANS.values(), strict=True)
    },
}


@st.composite
def state_files(draw):
    """Draw a record that the host keeps for itself, damaged: its name and bytes."""
    name = draw(st.sampled_from(sorted(STATE_FILES)))
    return name, draw(texts([STATE_FILES[name]], JSON_VALUES)), draw(texts([RECORD], JSON_VALUES))


def state_file(place, name, data, record):
    """Run all that reads the host's records: if one is damaged, verbs must say so or do without it."""
    SPEC.state_dir.mkdir(parents=True)
    (SPEC.state_dir / name).write_bytes(data)
    (place.work / "cells").mkdir()
    (place.work / "cells" / "x.json").write_bytes(record)
    read_temporary_changes(SPEC)
    if pointer := read_pointer(SPEC.state_dir):
        read_state(pointer.folder)
    for read_one in (lambda: plans_to_be(SPEC, None), lambda: read_record(place.work, "x")):
        try:
            read_one()
        except ClusterError as error:
            place.count(said_of(error))
        else:
            place.count("taken")


RUN_YML = Path("launched/run.yml")
CASES = {
    "launch_again": (
        st.deferred(lambda: texts([yaml.safe_load(good_run()[RUN_YML])])),
        launch_again,
    ),
    "state_file": (state_files(), state_file),
    "profile": (texts(PROFILES), profile),
    "topology": (texts(TOPOLOGIES), topology),
    "schedule": (texts(SCHEDULES), schedule),
    "trace": (damaged((EXAMPLES / "ride.csv").read_bytes()), trace),
    "experiment": (texts(EXPERIMENTS), experiment),
    "training": (texts(TRAININGS), experiment),
    "run_folder": (run_folders(), run_folder),
    "drawn_report": (run_folders(), drawn_report),
    "sweep": (texts([_few_runs(one) for one in SWEEPS]), sweep),
}
