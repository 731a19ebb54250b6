"""Which of launch's arguments are about links, and which are about the training."""

import shlex
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

import cluster.launch
from cluster import api
from cluster.base.errors import PrerequisiteError
from cluster.run import program

PLAN = ["--dry-run", "--json", "--name", "t-words", "--nodes", "3", "--profile", "mobile"]


LAUNCH_FLAGS = ("--link-seed", "--stall-timeout", "--verify")


@pytest.fixture
def plan(capsys):
    """A function that returns what `launch --dry-run` prints for additional arguments."""
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


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--run-dir", "out"], "runs/NAME"),
        (["--run-dir=out"], "runs/NAME"),
        (["--nnodes", "1"], "--nodes N"),
        (["--node-rank", "0"], "--rank-order"),
        (["--master-port", "1"], "leave it out"),
    ],
)
def test_what_the_launcher_decides_cannot_be_said_to_the_training(words, hint, capsys):
    assert cluster.launch.main([*PLAN, "--steps", "4", *words]) == 2
    said = capsys.readouterr().err
    assert words[0].partition("=")[0] in said and hint in said


def test_variables_of_this_shell_that_nodes_do_not_have_change_nothing(plan, monkeypatch):
    usual = plan()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("GRADWIRE_TIMEOUT_S", "3")
    assert plan() == usual


def test_the_readmes_learning_rate_schedule_can_be_typed(plan):
    assert plan("--lr-schedule", "cosine")["argv"][-2:] == ["--lr-schedule", "cosine"]


@pytest.mark.parametrize("how", ["a file", "--isolated"])
def test_a_dry_run_shows_the_environment_that_the_launch_would_use(plan, tmp_path, how):
    """It has the links' timeouts, and tells gloo that not every rank can reach every other."""
    topology = tmp_path / "line.yml"
    topology.write_text("links:\n- ends: [node1, node2]\n- ends: [node2, node3]\nisolated: true\n")
    words = ("--topology", str(topology)) if how == "a file" else ("--isolated",)
    shown = plan(*words)
    assert {e["TORCH_GLOO_LAZY_INIT"] for e in shown["environment"].values()} == {"1"}
    environs = shown["environment"].values()
    assert {e["GRADWIRE_TIMEOUT_S"] for e in environs} == {str(shown["collective_timeout_s"])}
    assert {e["GRADWIRE_SILENCE_S"] for e in environs} == {f"{shown['stalled_after_s']:.0f}"}
    assert shown["collective_timeout_s"] >= 1800
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
    assert shown["stalled_after_s"] > 10 * plan()["stalled_after_s"]
    assert shown["collective_timeout_s"] >= shown["stalled_after_s"]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "actors.py"
    path.touch()
    return str(path)


def restarts(shown):
    names = ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS")
    return [[environ[name] for name in names] for environ in shown["environment"].values()]


def test_a_dry_run_shows_which_ranks_may_fail_and_how_often(plan, script):
    shown = plan("--essential-ranks", "0,2", "--", script)
    assert (shown["essential_ranks"], shown["max_restarts"]) == ([0, 2], 3)
    assert restarts(shown) == [["0", "0"], ["0", "3"], ["0", "0"]]
    assert plan("--essential-ranks", "0", "--max-restarts", "0", "--", script)["max_restarts"] == 0
    usual = plan("--", script)
    assert (usual["essential_ranks"], usual["max_restarts"]) == (None, 0)
    assert plan("--essential-ranks", "0,1,2", "--", script)["essential_ranks"] is None


def test_of_our_own_training_the_task_says_which_ranks_may_fail(plan, monkeypatch):
    assert plan()["essential_ranks"] is None
    resolve = program._resolve

    def as_of_actors(args, ranks):
        return resolve(args, ranks) | {"essential_ranks": [0]}

    monkeypatch.setattr(program, "_resolve", as_of_actors)
    shown = plan("--max-restarts", "5")
    assert (shown["essential_ranks"], shown["max_restarts"]) == ([0], 5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--essential-ranks", "0,3", "--", "SCRIPT"],
            "rank 3 is to be essential, and there is none",
        ),
        (["--essential-ranks", "0,x", "--", "SCRIPT"], "--essential-ranks 0,x: 'x' is no rank"),
        (["--essential-ranks", "0-2", "--", "SCRIPT"], "'0-2' is no rank"),
        (["--essential-ranks", "0,", "--", "SCRIPT"], "'' is no rank"),
        (["--essential-ranks", "-1", "--", "SCRIPT"], "'-1' is no rank"),
        (["--essential-ranks", "0"], "--essential-ranks 0 is for programs of your own"),
        (["--max-restarts", "1", "--", "SCRIPT"], "all ranks of this run are essential"),
        (["--max-restarts", "1"], "all ranks of this run are essential"),
        (["--max-restarts", "often", "--", "SCRIPT"], "--max-restarts 'often': not a whole number"),
    ],
)
def test_ranks_that_cannot_be_essential_are_refused_in_one_line(capsys, script, words, message):
    with suppress(SystemExit):  # raised by the parser
        assert cluster.launch.main([*PLAN, *(script if w == "SCRIPT" else w for w in words)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("task", ["ppo", "impala"])
def test_an_environment_that_the_node_image_lacks_is_refused_before_anything_starts(
    capsys, monkeypatch, task
):
    def no_engine(engine, request):
        raise PrerequisiteError("no Docker")

    monkeypatch.setattr(api, "inspect_cluster", no_engine)
    engine = SimpleNamespace(image_source=lambda tag: "0123", limits=None, containers=None)
    monkeypatch.setattr(api.Cluster, "engine", engine)
    words = ["--task", task, "--task-set", "env=Hopper-v5"]
    assert cluster.launch.main([*PLAN[2:], *words]) == 2
    said = capsys.readouterr().err
    assert "env=Hopper-v5 needs mujoco, which gradwire-node is built without" in said
    assert "python -m cluster.image --mujoco" in said


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *(("--force", ""), ("--H", ""), ("--epochs", ""), ("lab", "")),
        *(
            ("--link", "--link-seed"),
            ("--timeout", "--stall-timeout"),
            ("--verify-full", "--verify"),
        ),
        *(("--stpes", "--steps"), ("--batch", "--batch-size"), ("--step", "--steps")),
        ("--lr-schedul", "--lr-schedule"),
    ],
)
def test_what_is_no_flag_is_taken_for_a_similar_one_alone(capsys, word, meant):
    assert cluster.launch.main([*PLAN, word, "20"]) == 2
    said = capsys.readouterr().err
    assert f"did you mean {meant!r}?" in said if meant else "did you mean" not in said
    if meant not in LAUNCH_FLAGS:
        assert said.endswith(
            "\n  try: python -m cluster.launch --help, or for the training's options python -m node.train --help\n"
        )
        assert ": there is" not in said


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("python train.py", "train.py"),
        ("python3 -u train.py --epochs 2", "train.py --epochs 2"),
        ("python3.11 -m package.module --lr 1", "-m package.module --lr 1"),
        ("torchrun --nproc-per-node 2 train.py 'two words'", "train.py 'two words'"),
        (".venv/bin/python train.py", "train.py"),
        ("python train", "train"),
        ("python", "train.py"),
        ("python -c 'print(1)'", "train.py"),
    ],
)
def test_an_interpreter_is_no_script(capsys, monkeypatch, tmp_path, words, hint):
    """One in the program's own folder would be sent, and run as a script."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch()
    monkeypatch.chdir(tmp_path)
    first, *more = shlex.split(words)
    assert cluster.launch.main([*PLAN, "--", first, *more]) == 2
    said = capsys.readouterr().err
    assert said == f"error: {first} is not a script\n  try: leave it out: -- {hint}\n"


def test_a_file_that_is_an_options_value_is_no_script(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint.pt").touch()
    assert cluster.launch.main([*PLAN, "--resume", "checkpoint.pt", "--stepz", "3"]) == 2
    assert "without --" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("SCRIPT", "SCRIPT"),
        ("none.py --nodes 3", "none.py"),
        ("SCRIPT --epochs 2", "SCRIPT --epochs 2"),
        ("--epochs 2 SCRIPT", "SCRIPT --epochs 2"),
        ("--lr 0.1 SCRIPT", "SCRIPT --lr 0.1"),
        ("python3 SCRIPT 7", "SCRIPT 7"),
        ("torchrun --epochs=2 SCRIPT", "SCRIPT --epochs=2"),
        ("--task TASK.py:make_task SCRIPT", "SCRIPT --task TASK.py:make_task"),
        ("configure 7", "configure 7"),
        ("topology.py", "topology.py"),  # as a flag is called
    ],
)
def test_a_script_without_dashes_before_it_is_no_option_of_the_training(
    capsys, monkeypatch, script, words, hint
):
    folder = Path(script).parent
    monkeypatch.chdir(folder)
    (folder / "configure").touch()
    (folder / "TASK.py").write_text("def make_task():\n    return None\n")
    named = hint.split()[0].replace("SCRIPT", script)
    assert cluster.launch.main([*PLAN, *words.replace("SCRIPT", script).split()]) == 2
    assert capsys.readouterr().err == (
        f"error: {named} is given without --\n"
        f"  try: python -m cluster.launch … -- {hint.replace('SCRIPT', script)}\n"
    )


@pytest.mark.parametrize("words", ["--stpes 3 --strategy SCRIPT", "--profil lan SCRIPT"])
def test_what_is_more_probably_another_mistake_is_said_first(capsys, script, words):
    assert cluster.launch.main([*PLAN, *words.replace("SCRIPT", script).split()]) == 2
    assert "did you mean '--" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--attache", "--fi"])
def test_a_flag_that_only_gradwire_itself_passes_is_offered_to_nobody(capsys, script, word):
    for words in ([word, "--", script], [word]):
        assert cluster.launch.main([*PLAN, *words]) == 2
        said = capsys.readouterr().err
        assert "--attached" not in said and "--fit" not in said


def test_a_dry_run_counts_a_schedule_in(plan, tmp_path):
    storm = tmp_path / "storm.yml"
    storm.write_text("- {at: 1s, link: node1:node2, loss_pct: 100, for: 500s}\n")
    longer = plan("--schedule", str(storm))["stalled_after_s"]
    assert longer == plan()["stalled_after_s"] + 500
