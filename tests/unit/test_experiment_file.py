"""experiment.yml: equivalent to flags, refused in one line with path and key, and distinct from a run's run.yml."""

import json
from argparse import SUPPRESS

import jsonschema
import pytest
import yaml
from past_runs import write_run

import cluster.launch
from cluster import Cluster, Experiment, load_experiment, training
from cluster.base.errors import ClusterError, UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.base.yaml_file import read_yaml
from cluster.cli.launch_options import launch_parser
from cluster.run.experiment_file import KEYS, WITHOUT_KEY, read_experiment_file
from cluster.run.launch_again import experiment_again
from cluster.run.past_run import read_past_launch, read_past_run
from cluster.schedule.events import Event
from cluster.schedule.record import event_record, read_events
from cluster.schedule.schedule_file import load_schedule
from cluster.schema import SCHEMAS

EXAMPLES = PROJECT_DIR / "examples"
EXAMPLE = EXAMPLES / "experiment.yml"
SCHEMA = jsonschema.Draft202012Validator(SCHEMAS["experiment"]())
CLUSTER = {"kind": "experiment", "name": "t-file", "nodes": 3}

FLAGS = """
--name t-file --nodes 3 --cpus node3=0.5 --cpus node1=none --memory 1g --profile wan --topology ring --link-seed 7
--wire nfqueue --isolated --seed=3 --set=H=4 --steps=8 --strategy=diloco --nproc-per-node 2
--rank-order node1,node3,node2 --max-results 500m --stall-timeout 2m --allow-undecided
--shared
"""


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    """Fail a test that tries to start a cluster."""

    def refuse(*_args, **_more):
        raise AssertionError("a pure test wants to start something")

    for verb in ("up", "up_with", "execute"):
        monkeypatch.setattr(Cluster, verb, refuse)


@pytest.fixture
def write(tmp_path):
    def write(**keys):
        path = tmp_path / "experiment.yml"
        path.write_text(yaml.safe_dump(CLUSTER | keys))
        return path

    return write


@pytest.fixture
def plan(capsys):
    """A function that returns what `launch --dry-run --json` prints."""

    def plan(*words):
        assert cluster.launch.main(["--dry-run", "--json", *map(str, words)]) == 0
        return json.loads(capsys.readouterr().out)

    return plan


@pytest.fixture
def refusal(capsys):
    """A function that returns the one line with which launch refuses, and its hint."""

    def refusal(*words):
        assert cluster.launch.main(["--dry-run", *map(str, words)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        line, *hints = said.err.strip().splitlines()
        assert len(hints) <= 1
        return f"{line} {''.join(hints)}"

    return refusal


def test_every_flag_has_a_key_or_a_reason_why_not():
    known = {key.flag for key in KEYS.values()} | WITHOUT_KEY.keys()
    for action in launch_parser("")._actions:
        if action.help is not SUPPRESS and action.dest != "help":
            assert known & set(action.option_strings), action.option_strings
    assert known - {""} <= {f for a in launch_parser("")._actions for f in a.option_strings}


def test_the_shipped_example_loads_and_shows_every_key():
    document = read_yaml(EXAMPLE)
    SCHEMA.validate(document)
    file = read_experiment_file(EXAMPLE)
    assert file.options[:2] == ("--strategy=diloco", "--set=H=5")
    assert [event.step for event in file.values["schedule"]] == [5, 15]
    lines = EXAMPLE.read_text().splitlines()
    shown = [line.removeprefix("# ").partition(":")[0] for line in lines]
    assert sorted(name for name in shown if name in KEYS) == sorted(KEYS)
    for line in lines:  # commented-out ones, too
        name, colon, _ = line.removeprefix("# ").partition(":")
        if line.startswith("# ") and colon and name in KEYS:
            SCHEMA.validate({"kind": "experiment", **yaml.safe_load(line.removeprefix("# "))})


def test_a_file_plans_what_its_flags_plan(write, plan):
    path = write(
        cpus={"node3": 0.5, "node1": None},
        memory="1g",
        profile="wan",
        topology="ring",
        link_seed=7,
        wire="nfqueue",
        isolated=True,
        options={"strategy": "diloco", "set": {"H": 4}, "steps": 8, "seed": 3},
        nproc_per_node=2,
        rank_order=["node1", "node3", "node2"],
        max_results="500m",
        stall_timeout="2m",
        schedule="storm.yml",
        allow_undecided=True,
        shared=True,
    )
    storm = "- {at: step 5, link: node1:node2, loss_pct: 1, for: 5s}\n"
    (path.parent / "storm.yml").write_text(storm)
    by_file = plan("-f", path)
    assert by_file == plan(*FLAGS.split(), "--schedule", path.parent / "storm.yml")
    asked = by_file["experiment"]
    assert asked["shaping"]["profile"]["name"] == "wan"
    assert (asked["stall_timeout_s"], asked["allow_undecided"]) == (120, True)
    assert asked["shared"] is True
    assert asked["limits"]["node3"] == {"cpus": 0.5, "memory_bytes": 2**30}
    assert asked["events"][0]["changes"] == [
        {"src": "node1", "dst": "node2", "values": {"loss_pct": 1}}
    ]
    assert by_file["environment"].keys() == by_file["arguments"].keys()


def test_flags_win_over_the_file_and_the_file_over_the_environment(write, plan, monkeypatch):
    path = write(profile="wan", options={"steps": 8}, cpus={"node3": 0.5}, verify=False)
    monkeypatch.setenv("GRADWIRE_PROFILE", "lan")
    monkeypatch.setenv("GRADWIRE_MAX_RESULTS", "1m")
    asked = plan("-f", path)["experiment"]
    assert (asked["shaping"]["profile"]["name"], asked["verify"]) == ("wan", "none")
    assert asked["max_results_bytes"] == 2**20  # not in the file
    for flags, verify in ((["--verify", "full"], "full"), (["--verify=look"], "look")):
        assert plan("-f", path, *flags)["experiment"]["verify"] == verify
    path.write_text(path.read_text().replace("verify: false", "verify: full"))
    assert plan("-f", path)["experiment"]["verify"] == "full"
    assert plan("-f", path, "--no-verify")["experiment"]["verify"] == "none"
    over = plan("-f", path, "--profile", "mobile", "--nodes", "2", "--steps", "9", "--cpus", "1")
    assert over["experiment"]["shaping"]["profile"]["name"] == "mobile"
    assert [node["cpus"] for node in over["nodes"]] == [1, 1]
    assert over["experiment"]["training"]["steps"] == 9
    (path.parent / "other.py").touch()
    other = plan("-f", path, "--", path.parent / "other.py")
    assert other["argv"] == ["python3", "other.py"]


def test_paths_start_at_the_files_folder(write, plan, monkeypatch):
    path = write(
        profile="near.yml",
        topology="./line.yml",
        program=["job/train.py", "--epochs", 2],
        folder=".",
        schedule=[
            {"at": "1s", "trace": "lte.csv", "link": "node1:node2"},
            {"at": "9s", "profile": "near.yml"},
        ],
    )
    folder = path.parent
    (folder / "near.yml").write_text("rate_mbyte_s: 6\ndelay_ms: 2\n")
    (folder / "line.yml").write_text("links:\n- ends: [node1, node2]\n- ends: [node2, node3]\n")
    (folder / "lte.csv").write_text("time_s,rate_mbyte_s\n0,1\n1,2\n")
    (folder / "job").mkdir()
    (folder / "job" / "train.py").touch()
    (folder / "storm.yml").write_text("- {at: 1s, profile: ./near.yml}\n")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    for where, name in ((elsewhere, "../experiment.yml"), (folder, "experiment.yml")):
        monkeypatch.chdir(where)
        asked = plan("-f", name)["experiment"]
        assert asked["program"]["argv"] == ["python3", "job/train.py", "--epochs", "2"]
        assert asked["program"]["folder"] == str(folder)
        assert asked["shaping"]["topology"]["name"] == "line"
        assert asked["events"][0]["trace"]["path"] == str(folder / "lte.csv")
        assert asked["events"][1]["profile"]["rate_mbyte_s"] == [6, 6]
        assert plan("-f", name, "--schedule", EXAMPLES / "ride.yml", "--topology", "full")
    write(profile="wan", schedule="storm.yml", program="-m job.train")
    monkeypatch.chdir(elsewhere)
    asked = plan("-f", "../experiment.yml")["experiment"]
    assert asked["program"]["argv"] == ["python3", "-m", "job.train"]
    assert asked["program"]["folder"] == str(folder)
    assert asked["events"][0]["profile"]["name"] == "near"


@pytest.mark.parametrize("task", ["ppo", "mapf", "impala"])
def test_each_example_of_reinforcement_learning_is_a_launch(task, plan):
    asked = plan("-f", EXAMPLES / f"{task}.yml")["experiment"]
    assert asked["training"]["task"] == task
    SCHEMA.validate(yaml.safe_load((EXAMPLES / f"{task}.yml").read_text()))


def test_a_strategy_of_ones_own_lies_beside_the_file(write, plan, monkeypatch):
    path = write(options={"strategy": "./mine.py:Mine", "steps": 4})
    (path.parent / "mine.py").write_text("import torch\n")
    monkeypatch.chdir("/")
    asked = plan("-f", path)["experiment"]
    assert asked["program"]["folder"] == str(path.parent)
    assert "mine.py:Mine" in asked["program"]["argv"]


def test_numbers_in_place_of_words_are_as_typed(write):
    path = write(nodes=0x3)
    (path.parent / "x.py").touch()
    typed = "[x.py, --seed, 010, --at, 1:30, --version, 1.10, --big, 1_000, --hex, 0x1F, 0.001, 1e-3, 40]"
    path.write_text(f"{path.read_text()}program: {typed}\nimage: 1.10\nessential_ranks: [00, 01]\n")
    file = read_experiment_file(path)
    assert file.program == (str(path.parent / "x.py"), *typed[1:-1].split(", ")[1:])
    assert (file.values["nodes"], file.values["image"]) == (3, "1.10")
    assert file.values["essential_ranks"] == "00,01"
    path.write_text(
        "kind: experiment\noptions: {lr: 1.0e-5, steps: 40, set: {H: 1_0, beta: 1.10}}\n"
    )
    assert read_experiment_file(path).options == (
        *("--lr=1.0e-5", "--steps=40"),
        *("--set=H=1_0", "--set=beta=1.10"),
    )


BAD = [
    ({"profil": "wan"}, "unknown key in PATH: 'profil'   try: did you mean 'profile'?"),
    ({"strategy": "ddp"}, "unknown key in PATH: 'strategy'"),
    ({"name": "UPPER"}, "PATH: name: cluster name 'UPPER' is not usable"),
    ({"nodes": 0}, "PATH: nodes: 0 nodes asked for"),
    ({"nodes": "3"}, "PATH: nodes: '3' is no whole number"),
    ({"nodes": True}, "PATH: nodes: True is no whole number"),
    ({"slot": 100}, "PATH: slot: slot 100 asked for"),
    ({"image": ["a"]}, "PATH: image: ['a'] is no word"),
    ({"cpus": {}}, "PATH: cpus: an empty mapping"),
    ({"cpus": [1]}, "PATH: cpus: ['1'] is no word"),
    ({"profile": ""}, "PATH: profile: '' is no word"),
    ({"profile": "wan", "wire": "netme"}, "PATH: wire: unknown wire 'netme'"),
    ({"isolated": "yes please"}, "PATH: isolated: 'yes please' is neither true nor false"),
    ({"options": ["ddp"]}, "PATH: options: ['ddp'] is no mapping"),
    ({"options": {"steps": [1, 2]}}, "PATH: options: steps is ['1', '2']"),
    ({"options": {"steps": None}}, "PATH: options: steps is None"),
    ({"options": {"nodes": 2}}, "PATH: options: 'nodes' is no option of a training"),
    ({"options": {"dry-run": True}}, "PATH: options: 'dry-run' is no option"),
    ({"program": []}, "PATH: program: [] is no program"),
    ({"program": "a.py", "options": {"steps": 8}}, "PATH: program and options exclude each other"),
    ({"rank_order": []}, "PATH: rank_order: an empty list"),
    ({"verify": "no thanks"}, "PATH: verify: unknown verification 'no thanks'"),
    ({"verify": 1}, "PATH: verify: 1 is no verification"),
    (
        {"verify": "none", "allow_undecided": True},
        "PATH: --allow-undecided and --no-verify exclude each other",
    ),
    (
        {"verify": False, "allow_undecided": True},
        "PATH: --allow-undecided and --no-verify exclude each other",
    ),
    ({"schedule": {"at": "1s"}}, "PATH: schedule: a schedule is a list"),
    ({"schedule": [{"at": "1s"}]}, "PATH: schedule: item 1 has 0 of"),
    ({"schedule": [{"at": "1s", "heel": True, "heal": True}]}, "did you mean 'heal'?"),
]
BAD_BEYOND_A_SCHEMA = [
    ({"image": "No Image"}, "PATH: image: 'No Image' is no image's name"),
    ({"cpus": {"node3": 0}}, "PATH: cpus: cpus of node3 is '0'"),
    ({"cpus": {"node9": 1}}, "PATH: unknown node 'node9'"),
    ({"memory": "much"}, "PATH: memory: memory of all is 'much'"),
    ({"gpus": "x"}, "PATH: gpus: gpus of all is 'x'"),
    ({"profile": "wam"}, "PATH: profile: unknown profile 'wam'   try: did you mean 'wan'?"),
    ({"profile": "./none.yml"}, "PATH: profile: no profile file"),
    ({"topology": "rign"}, "PATH: topology: unknown topology 'rign'"),
    ({"topology": "ring"}, "PATH: --topology without --profile"),
    ({"options": {"stepz": 8}}, "PATH: unknown argument '--stepz': did you mean '--steps'?"),
    ({"options": {"set": {"G": 8}}}, "PATH: unknown option of strategy"),
    ({"program": "none.py"}, "PATH: no script"),
    ({"folder": "."}, "PATH: --folder without a program"),
    ({"nproc_per_node": 100_000}, "PATH: "),
    ({"rank_order": "node1,node1"}, "PATH: "),
    ({"essential_ranks": "0,x"}, "PATH: essential_ranks: --essential-ranks 0,x: 'x' is no rank"),
    ({"essential_ranks": 0}, "PATH: --essential-ranks 0 is for programs of your own"),
    ({"max_restarts": 2}, "PATH: --max-restarts: all ranks of this run are essential"),
    ({"max_results": "lots"}, "PATH: max_results: "),
    (
        {"stall_timeout": "1s"},
        "PATH: stall_timeout: --stall-timeout 1s is too short to detect a stall",
    ),
    ({"schedule": "none.yml"}, "PATH: schedule: cannot read"),
    (
        {"schedule": [{"at": "1s", "trace": "none.csv", "link": "node1:node2"}]},
        "PATH: schedule: item 1: no trace none.csv",
    ),
    (
        {"profile": "wan", "schedule": [{"at": "1s", "link": "node1:node9", "loss_pct": 1}]},
        "PATH: unknown link 'node1:node9'",
    ),
]


@pytest.mark.parametrize(("keys", "words"), [*BAD, *BAD_BEYOND_A_SCHEMA], ids=str)
def test_what_cannot_be_is_refused_in_one_line_with_path_and_key(write, refusal, keys, words):
    path = write(**keys)
    assert words.replace("PATH", str(path)) in refusal("-f", path)


@pytest.mark.parametrize(("keys", "words"), BAD, ids=str)
def test_what_is_refused_is_refused_by_the_schema(keys, words):
    assert SCHEMA.is_valid(CLUSTER)
    assert not SCHEMA.is_valid(CLUSTER | keys)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "mine.yml",
            "nodes: 3\n",
            "mine.yml: kind is None   try: kind: experiment; a sweep: python -m cluster.sweep FILE; to repeat",
        ),
        ("mine.yml", "- 1\n", "mine.yml: kind is None"),
        (
            "mine.yml",
            "kind: run\n",
            "cluster.sweep FILE; to repeat a run, name its folder: runs/NAME",
        ),
        ("run.yml", "kind: sweep\n", "run.yml: kind is 'sweep'"),
        ("mine.yml", "kind: [1", "mine.yml: not YAML"),
        ("x", None, "directory   try: write it like examples/experiment.yml; to repeat a run"),
        ("run.yml", "nodes: 3\n", "run.yml: cluster is None"),  # of an older run
        ("run.yml", "kind: run\n", "run.yml: cluster is None"),
        ("run.yml", None, "there is no run.yml in it"),
        ("mine.yml", None, "cannot read"),
    ],
)
def test_an_experiment_and_a_run_are_told_apart_by_a_key(tmp_path, refusal, name, text, words):
    if text is not None:
        (tmp_path / name).write_text(text)
    assert words in refusal("-f", tmp_path / name)


def test_from_python_a_file_is_a_value_and_its_cluster(write):
    path = write(profile="wan", options={"steps": 8}, stall_timeout="90s")
    experiment = load_experiment(path)
    assert experiment == load_experiment(str(path))
    assert (experiment.request.name, experiment.request.size) == ("t-file", 3)
    assert experiment.stall_timeout_s == 90
    assert experiment.program.config["steps"] == 8
    own = Cluster.of(experiment)
    assert (own.name, own.request) == ("t-file", experiment.request)
    with pytest.raises(UsageError, match="of another cluster, or other arguments beside it"):
        Cluster("other").launch(experiment)
    with pytest.raises(UsageError, match="of another cluster, or other arguments beside it"):
        own.launch(experiment, verify=False)
    program = training(["--steps", "8"])
    assert Experiment(own.request, program, stall_timeout_s=90.0).request.link_spec is not None


# Schedules in run.yml.


def events_of(tmp_path):
    (tmp_path / "near.yml").write_text("rate_mbyte_s: [6, 7]\ndelay_ms: 2\n")
    (tmp_path / "ride.csv").write_bytes((EXAMPLES / "ride.csv").read_bytes())
    (tmp_path / "more.yml").write_text(
        "- {at: 1s, profile: near.yml}\n- {at: 2.5s, heal: true}\n- {at: step 9, cpus: {all: none}}\n"
        "- {at: step 3, flap: node1:node3, down: 400ms, up: 2s, times: 3}\n"
        "- {at: 4s, trace: ride.csv, link: node1:node2, both: true, loop: true, for: 9s}\n"
    )
    return (
        *load_schedule(EXAMPLES / "storm.yml"),
        *load_schedule(tmp_path / "more.yml", tmp_path),
    )


def test_events_come_back_from_run_yml_as_they_were(tmp_path):
    events = events_of(tmp_path)
    written = yaml.safe_dump([event_record(event) for event in events])
    (tmp_path / "near.yml").unlink()
    (tmp_path / "more.yml").unlink()
    (tmp_path / "run.yml").write_text(written)
    assert read_events(read_yaml(tmp_path / "run.yml"), "run.yml") == events
    assert event_record(Event("at: 2s, heal: true", 2.0, heal=True)) == {
        "words": "at: 2s, heal: true",
        "after_s": 2.0,
        "heal": True,
    }


def test_a_run_with_a_schedule_is_launched_again_with_it(tmp_path, plan):
    events = events_of(tmp_path)[:-1]
    folder = write_run(tmp_path / "run", schedule=events)
    past = read_past_launch(folder)
    assert experiment_again(past).schedule == events
    again = plan("-f", folder)
    config = yaml.safe_load((folder / "run.yml").read_text())
    assert config["kind"] == "run"
    for key in ("events", "schedule", "training", "program", "shaping", "rank_order", "limits"):
        expected = config[key] if key != "limits" else {f"node{n}": {} for n in (1, 2, 3)}
        assert again["experiment"][key] == expected
    assert again["collective_timeout_s"] == config["collective_timeout_s"]
    with pytest.raises(UsageError, match="a schedule changed links"):
        read_past_run(folder)


def test_a_trace_that_is_gone_or_another_one_is_refused_in_one_line(tmp_path, refusal):
    *_, event = events_of(tmp_path)
    folder = write_run(tmp_path / "run", schedule=[event])
    trace = tmp_path / "ride.csv"
    trace.write_text(trace.read_text() + "# more\n")
    where = f"{folder / 'run.yml'}: events[0]: "
    assert f"{where}{trace} is not the trace that was played" in refusal("-f", folder)
    trace.unlink()
    assert f"{where}no trace ride.csv" in refusal("-f", folder)


def test_a_schedule_of_an_older_run_is_refused_in_one_line(tmp_path, refusal):
    folder = write_run(tmp_path / "run", schedule=load_schedule(EXAMPLES / "storm.yml"))
    path = folder / "run.yml"
    config = yaml.safe_load(path.read_text())
    del config["events"], config["kind"]
    path.write_text(yaml.safe_dump(config))
    assert "it had a schedule, and this run is of an older gradwire" in refusal("-f", path)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (7, "events[0]: expected an object"),
        ({}, "events[0].words: missing"),
        ({"words": "x", "aftr_s": 1}, "events[0].aftr_s: unknown key, did you mean after_s?"),
        ({"words": "x", "after_s": -1}, "events[0].after_s: -1 is not between"),
        ({"words": "x", "step": True}, "events[0].step: expected a whole number"),
        ({"words": "x", "profile": {"name": "../x"}}, "events[0]: profile cannot be read"),
        ({"words": "x", "profile": {"name": "x"}}, "events[0]: the profile in force: rate_mb"),
        (
            {"words": "x", "changes": [{"src": "a", "dst": "b", "values": {"speed": 1}}]},
            "events[0]: unknown value of a link: 'speed'",
        ),
        (
            {"words": "x", "changes": [{"src": "a", "dst": "b", "values": {"loss_pct": 101}}]},
            "events[0]: loss_pct is 101",
        ),
        ({"words": "x", "partition": [["node1"]]}, "events[0]: partition is"),
        ({"words": "x", "cpus": {"node1": 0.0}}, "events[0]: cpus of node1 is"),
        (
            {"words": "x", "trace": {"path": "a\0b", "sha256": "", "links": [], "loops": True}},
            "events[0]: trace: embedded null",
        ),
    ],
)
def test_events_that_cannot_be_are_refused_in_one_line(record, words):
    with pytest.raises(ClusterError) as refused:
        read_events([record], "run.yml")
    assert words in refused.value.message
    assert "\n" not in refused.value.message
