"""Bad input gets one clear message and an exit code; nothing is started, nothing is left behind."""

import os
import subprocess
import sys

import pytest
from containers import PROJECT_DIR, TIMEOUT_S, Gradwire
from forked import run_forked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["up", "--profile", "mobil"], "did you mean 'mobile'"),
        (["up", "--profile", "./none.yml"], "no profile file"),
        (["up", "--topology", "ful", "--profile", "wan"], "did you mean 'full'"),
        (["up", "--topology", "./none.yml", "--profile", "wan"], "no topology file"),
        (["up", "--wire", "netm", "--profile", "wan"], "did you mean 'netem'"),
        (["up", "--topology", "ring"], "--topology without --profile"),
        (["up", "--wire", "netem"], "--wire without --profile"),
        (["up", "--seed", "7"], "--link-seed without --profile"),
        (["launch", "--link-seed", "7", "--no-verify"], "--link-seed without --profile"),
        (["launch", "--seed", "7", "--", "Makefile"], "did you mean '--link-seed'"),
        (["launch", "--lr-schedule", "cosin"], "did you mean 'cosine'"),
        (["launch", "--schedule", "cosine"], "for one of the learning rate: --lr-schedule"),
        (["launch", "--isolated", "--no-verify"], "--isolated without --profile"),
        (["up", "--cpus", "node9=1"], "unknown node 'node9'"),
        (["launch", "--cpus", "node3=0"], "cpus of node3 is '0'"),
        (["up", "--memory", "1x"], "memory of all is '1x'"),
        (["up", "--nodes", "0"], "0 nodes"),
        (["up", "--nodes", "many"], "--nodes 'many': not a whole number"),
        (["up", "--slot", "100"], "slot 100"),
        (["up", "--profil", "wan"], "did you mean --profile"),
        (["launch", "--strategy", "fedagv"], "error: unknown strategy 'fedagv'"),
        (["launch", "--schedule", "none.yml"], "cannot read none.yml: No such file"),
        (["launch", "--set", "K=3", "--strategy", "fedavg"], "K"),
        (["launch", "--steps", "0"], "--steps"),
        (["launch", "--profil", "wan"], "did you mean '--profile'"),
        (["launch", "--profle", "wan", "--", "Makefile"], "did you mean '--profile'"),
        (["launch", "--", "none.py"], "no script none.py"),
        (["launch", "--", "-m", "no.such.module"], "no module no.such.module"),
        (["launch", "--nodes", "-1", "--", "Makefile"], "-1 nodes"),
        (["shape"], "one of --profile NAME, --link SRC:DST and --clear"),
        (["logs", "--grep", "("], "no regular expression"),
    ],
)
def test_a_mistake_is_named_with_what_to_try_and_starts_nothing(make_cluster, words, message):
    cluster = make_cluster("mistake")
    done = cluster.run(words[0], *words[1:], check=2)
    assert message in done.stderr, done.stderr
    assert done.stdout == ""
    assert cluster.things() == []


@pytest.mark.parametrize("verb", ["shape --profile wan", "verify", "logs", "status"])
def test_without_a_cluster_a_verb_says_how_to_get_one(make_cluster, verb):
    cluster = make_cluster("none")
    done = cluster.run(*verb.split(), check=1)
    assert f"no cluster {cluster.name!r} is up" in done.stderr
    assert "python -m cluster.up" in done.stderr


def test_a_bad_name_is_refused():
    done = Gradwire("Not/A/Name").run("up", check=2)
    assert "not usable" in done.stderr


def test_no_docker_is_said_in_one_line(make_cluster, tmp_path):
    environ = {"PATH": str(tmp_path), "DOCKER_HOST": "unix:///nowhere.sock", "HOME": str(tmp_path)}
    done = make_cluster("x").run("up", check=2, env=environ)
    assert "no Docker here" in done.stderr
    assert "try:" in done.stderr


def test_docker_without_an_engine_is_said_in_one_line(make_cluster):
    environ = os.environ | {"DOCKER_HOST": "unix:///nowhere.sock"}
    done = make_cluster("x").run("status", check=2, env=environ)
    assert "does not answer" in done.stderr


def test_docker_without_permission_says_how_to_get_it(tmp_path):
    """Runs as a user who is not in the group docker."""
    argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    readable = subprocess.run([*argv, "test", "-r", PROJECT_DIR / "cluster" / "status.py"])
    if readable.returncode != 0:
        pytest.skip("this checkout is not readable for other users, so it cannot be tried as one")
    code = "import sys; from cluster.status import main; sys.exit(main([]))"
    site = next(path for path in sys.path if path.endswith("site-packages"))
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": f"{PROJECT_DIR}:{site}",
    }
    done = subprocess.run(
        [*argv, "/usr/bin/python3", "-c", code],
        cwd="/",
        capture_output=True,
        text=True,
        env=environ,
    )
    assert done.returncode == 2, done.stderr
    assert "may not use it" in done.stderr


def test_a_program_folder_that_is_too_large_is_refused(make_cluster, tmp_path):
    (tmp_path / "job.py").write_text("")
    with (tmp_path / "big.bin").open("wb") as big:
        big.truncate(300 * 10**6)
    done = make_cluster("x").run("launch", "--", tmp_path / "job.py", check=2)
    assert "more than 200 MB" in done.stderr
    assert "--folder" in done.stderr


def test_every_verb_has_help_that_starts_with_examples(make_cluster):
    cluster = make_cluster("x")
    listed = subprocess.run(
        [sys.executable, "-m", "cluster"], cwd=PROJECT_DIR, capture_output=True, text=True
    )
    verbs = [line.split()[0] for line in listed.stdout.splitlines() if line.startswith("  ")]
    assert {"up", "down", "status", "launch", "shape", "verify", "logs", "doctor"} <= set(verbs)
    for verb in verbs:
        shown = run_forked(f"cluster.{verb}", ["--help"], TIMEOUT_S)
        assert shown.returncode == 0
        assert f"python -m cluster.{verb}" in shown.stdout.split("options:")[0].split("\n\n", 1)[1]
    assert cluster.things() == []
