"""The protocol between launcher and rank: its types, and that both sides follow them."""

import json

import pytest

from cluster.run.rank_placement import place_ranks, rank_environment
from node.dist.rank_env import read_rank_env
from node.training.config import parse_config
from protocol.checkpoint_name import CheckpointName, read_checkpoint_name
from protocol.fit_order import EarlierFit, FitOrder
from protocol.places import COLLECTIVES, METRICS, rank_file
from protocol.rank import MOST_ERROR_CHARACTERS, RankReport, StartOrder
from protocol.reader import FormatError, document, parse
from protocol.training import Training, read_training

START = StartOrder(
    "run-1", ["python3", "train.py"], "/root", "/run/gradwire/runs/run-1", {"A": "b"}
)
REPORT = RankReport(-9, 12.5, 12.6, "ValueError: boom", bystander=True, out_of_memory=True)


@pytest.mark.parametrize("value", [START, REPORT])
def test_an_order_and_a_report_survive_their_way(value):
    assert parse(type(value), json.dumps(document(value))) == value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"argv": []}, "argv: expected at least one word"),
        ({"argv": ["python3", 1]}, r"argv\[1\]: expected a text"),
        ({"run": "a b"}, "run: expected one word"),
        ({"env": {"RANK": 0}}, "env.RANK: expected a text"),
        ({"cmd": []}, "cmd: unknown key"),
    ],
)
def test_an_order_that_is_none_is_refused_by_its_key(change, words):
    with pytest.raises(FormatError, match=words):
        parse(StartOrder, json.dumps(document(START) | change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"exit_code": -1000}, "exit_code: -1000 is not between"),
        ({"exit_code": 10**400}, "exit_code: expected a whole number"),
        ({"time": 1e30}, "time: expected a number"),
        ({"error": "x" * (MOST_ERROR_CHARACTERS + 1)}, "error: expected at most 300 characters"),
        ({"bystander": 1}, "bystander: expected true or false"),
    ],
)
def test_a_hostile_report_is_refused_by_its_key(change, words):
    with pytest.raises(FormatError, match=words):
        parse(RankReport, json.dumps(document(REPORT) | change))


def test_an_order_of_a_fit_survives_its_way_with_a_seed_of_64_bits():
    order = FitOrder(2, 2**64 - 1, "0a", [EarlierFit("boom", "RuntimeError")], "")
    assert parse(FitOrder, json.dumps(document(order))) == order
    wrong = document(order._replace(ended=[EarlierFit("boom", "SystemExit")]))
    with pytest.raises(FormatError, match=r"ended\[0\]\.error: expected one of"):
        parse(FitOrder, json.dumps(wrong))


@pytest.mark.parametrize("words", [[], ["--task", "mapf"], ["--task", "ppo"]])
def test_a_dry_run_has_all_that_a_launcher_reads(words):
    ranks = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "node1", "MASTER_PORT": "1"}
    config = parse_config([*words, "--dry-run"], ranks).to_json()
    assert set(Training._fields) <= config.keys()
    training = read_training(json.loads(json.dumps(config)))
    for name, value in training._asdict().items():
        said = config[name]
        assert value == (list(said) if isinstance(said, tuple) else said)


def test_of_a_program_of_the_users_own_a_launcher_knows_nothing():
    assert read_training({}) == Training()
    with pytest.raises(FormatError, match=r"essential_ranks\[0\]: expected a whole number"):
        read_training({"essential_ranks": ["0"], "lr": 1})


def test_a_rank_reads_of_its_environment_what_the_launcher_has_set():
    places = place_ranks(["node1", "node2"], 2, essential=[0])
    environ = rank_environment(
        places[2], places, (), "run", "/run", 1800, 2.5, silence_s=60, max_restarts=3
    )
    ranks = read_rank_env(environ)
    assert (ranks.rank, ranks.world_size, ranks.local_world_size) == (2, 4, 2)
    assert (ranks.master_addr, ranks.master_port) == ("node1", 29500)
    config = parse_config([], environ)
    assert str(config.run_dir) == "/run"
    assert (config.timeout_s, config.silence_s, config.slowest_mbyte_s) == (1800.0, 60.0, 2.5)


def test_a_file_of_a_rank_has_its_number_where_ranks_share_a_folder():
    assert rank_file(METRICS, 3, 1) == "metrics.jsonl"
    assert rank_file(COLLECTIVES, 3, 2) == "collectives-rank3.jsonl"


def test_names_of_checkpoints_are_read_and_others_are_none():
    name = CheckpointName(rank=3, step=40)
    assert str(name) == "checkpoint-rank3-step40.pt"
    assert read_checkpoint_name(str(name)) == name
    for wrong in (
        "checkpoint-rank3-step40.pt.part",
        "checkpoint-rank-step1.pt",
        "../a",
        "model.pt",
    ):
        assert read_checkpoint_name(wrong) is None
