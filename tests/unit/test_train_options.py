"""The command line of node.train, on a machine without torch: what is refused, and how."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest

from node.base.options import (
    OptionError,
    describe_options,
    option,
    parse_settings,
    require_options,
    unknown,
)
from node.strategies import STRATEGIES, strategy_class
from node.strategies.fedavg import FedAvg
from node.tasks import TASKS, task_class
from node.training.config import RankEnv, parse_config
from node.training.optim import rate

MAPF = "--task mapf --nnodes 3 --node-rank 0 --master-addr a"
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "node1", "MASTER_PORT": "29501"}


def test_where_to_run_may_be_said_with_torchruns_underscores():
    dashed = "--nnodes 2 --node-rank 1 --master-addr a --master-port 2222"
    underscored = dashed.replace("-rank", "_rank").replace("r-", "r_")
    assert parse_config(underscored.split(), {}) == parse_config(dashed.split(), {})


def test_impala_keeps_the_defaults_of_its_broadcast():
    """Those of `pull_every`, without which a chain is refused."""
    config = parse_config(
        [*MAPF.replace("mapf", "impala").split(), "--task-set", "broadcast=chain"]
    )
    assert config.task_options["pull_every"] == 0


def node_train(*flags):
    command = [sys.executable, "-m", "node.train", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--strategy fedvag", "unknown strategy 'fedvag': did you mean 'fedavg'?"),
        (
            "--strategy xyz",
            "unknown strategy 'xyz': there is ddp, demo, diloco, eager-diloco, fedavg",
        ),
        ("--task fashon-mnist", "unknown task 'fashon-mnist': did you mean 'fashion-mnist'?"),
        ("--optimizer adam", "unknown optimizer 'adam': did you mean 'adamw'?"),
        ("--step 3", "unknown argument '--step': did you mean '--steps'?"),
        ("--stpes 3", "unknown argument '--stpes': did you mean '--steps'?"),
        ("--batch 3", "unknown argument '--batch': did you mean '--batch-size'?"),
        ("--decay 3", "unknown argument '--decay': did you mean '--weight-decay'?"),
        ("--timeout 3", "unknown argument '--timeout': there is --accumulate"),
        ("--strategy fedavg --set h=3", "unknown option of strategy fedavg: 'h': did you mean 'H'"),
        ("--strategy ddp --set H=3", "option of strategy ddp: 'H': there is bucket_mb, hook, over"),
        (
            "--strategy ddp --set hook=pf16",
            "unknown value of --set hook: 'pf16': did you mean 'fp16",
        ),
        ("--strategy ddp --set overlap=yes", "overlap needs bucket_mb"),
        ("--strategy sparta --set p=0", "--set p must be at least 1e-12, not 0.0"),
        ("--strategy sparta-diloco --set p=1e-320", "--set p must be at least 1e-12, not 1e-320"),
        ("--strategy sparta --set p=1.1", "--set p must be at most 1.0, not 1.1"),
        ("--strategy diloco --set outer_momentum=1", "--set outer_momentum must be below 1.0, not"),
        (
            "--strategy fedavg --set island_size=2 --set fraction=0.5",
            "island_size goes with neither",
        ),
        ("--strategy fedavg --set server_momentum=0.5", "server_momentum needs server=momentum or"),
        ("--strategy streaming-diloco --set H=6", "H=6 is no multiple of fragments=4"),
        ("--strategy streaming-diloco --set tau=5", "tau=5 is not less than H/fragments=5"),
        ("--strategy ./mine.py:Mine", "no file mine.py"),
        ("--strategy mine.py", "mine.py: which strategy in it? Write mine.py:NAME"),
        ("--strategy fedavg --set H=0", "--set H must be at least 1, not 0"),
        ("--strategy fedavg --set H=2.5", "--set H: '2.5' is not a whole number"),
        ("--strategy fedavg --set H", "write KEY=VALUE"),
        ("--steps 0", "--steps must be at least 1, not 0"),
        ("--steps many", "argument --steps: invalid int value: 'many'"),
        ("--eval-every -1", "--eval-every must be at least 0"),
        ("--dropout 1", "--task-set dropout must be below 1.0, not 1.0"),
        ("--task-set droput=0.2", "option of task fashion-mnist: 'droput': did you mean 'dropout'"),
        ("--task-set dropout", "--task-set dropout: write KEY=VALUE"),
        (
            "--task ppo --task-set env=CartPol-v1",
            "environment 'CartPol-v1': did you mean 'CartPole",
        ),
        (
            "--task ppo --task-set env=Walker-v5",
            "environment 'Walker-v5': did you mean 'Walker2d-v5'?",
        ),
        (
            "--task impala --task-set env=Hoper-v5",
            "unknown value of --task-set env: 'Hoper-v5': did you mean 'Hopper-v5'?",
        ),
        ("--task ppo --task-set log_std=-1", "log_std: the actions of CartPole-v1 are no numbers"),
        (
            "--task ppo --task-set num_envs=10 --nnodes 3 --node-rank 0 --master-addr a",
            "num_envs: 10 environments cannot be shared evenly by 3 ranks",
        ),
        ("--task ppo --task-set num_minibatches=5", "num_minibatches=5 must divide num_steps=32"),
        (
            "--task ppo --batch-size 8",
            "--batch-size: under --task ppo it follows from num_envs, num",
        ),
        ("--task ppo --accumulate 2", "--accumulate: under --task ppo it follows from num_minibat"),
        ("--task ppo --autocast bf16", "--autocast: under --task ppo it follows from the rollouts"),
        (
            "--task ppo --task-set num_envs=1 --task-set num_minibatches=32",
            "num_minibatches=32 leaves a rank one sample, which norm_adv makes nothing of",
        ),
        ("--task ppo --shard dirichlet", "--shard: under --task ppo it follows from num_envs"),
        ("--task ppo --task-set clip_coef=0", "--task-set clip_coef must be above 0.0, not 0.0"),
        (
            f"{MAPF} --batch-size 192 --task-set capacity=1 --task-set learn_after=1",
            "capacity=1: its 8 sequences are fewer than the 192 of a batch",
        ),
        (
            f"{MAPF} --task-set agents=50 --task-set eval_density=0",
            "agents=50 do not fit on 10 x 10 cells: at most 37 do, with goals and obstacles",
        ),
        (f"{MAPF} --task-set agents=12 --task-set first_map_size=5", "agents=12 do not fit on 5 x"),
        (f"{MAPF} --task-set eval_comm_loss_also=0.5,much", "eval_comm_loss_also: 'much' is not a"),
        (f"{MAPF} --task-set eval_comm_loss_also=0.5,2", "loss_also must be at most 1, not 2.0"),
        ("--task language --task-set size=huge", "'huge': there is large, medium, small"),
        ("--task language --task-set mbyte=1e303", "--task-set mbyte must be at most 1000000.0, n"),
        ("--task language --task-set context=1", "--task-set context must be at least 2, not 1"),
        ("--task ./mine.py:make_task", "no file mine.py"),
        ("--task mine.py", "mine.py: which task in it? Write mine.py:NAME"),
        ("--shard dirichlit", "unknown shard 'dirichlit': did you mean 'dirichlet'?"),
        ("--shard dirichlet --alpha 0", "--alpha must be above 0, not 0.0"),
        ("--alpha 0.3", "--alpha is an option of --shard dirichlet"),
        ("--lr-schedule cosin", "unknown lr-schedule 'cosin': did you mean 'cosine'?"),
        ("--final-lr 0.3", "--final-lr is an option of --lr-schedule cosine"),
        ("--lr-schedule cosine --final-lr 2", "--final-lr must be at most 1, not 2.0"),
        ("--warmup-steps 201", "--warmup-steps must be at most 200, not 201"),
        ("--accumulate 0", "--accumulate must be at least 1, not 0"),
        ("--threads 0", "--threads must be at least 1, not 0"),
        ("--seed 9223372036854775808", "--seed must be at most 9223372036854775807, not 9223372"),
        ("--seed -9223372036854775809", "--seed must be at least -9223372036854775808, not -9"),
        ("--clip-norm -1", "--clip-norm must be at least 0, not -1.0"),
        ("--eval before", "unknown eval 'before': there is after, during"),
        ("--autocast fp16", "unknown autocast 'fp16': did you mean 'bf16'?"),
        ("--lr 0", "--lr must be above 0, not 0.0"),
        ("--lr nan", "argument --lr: invalid number value: 'nan'"),
        ("--momentum 0.9", "--momentum is an option of sgd: add --optimizer sgd"),
        (
            "--strategy demo --optimizer adamw",
            "--optimizer adamw with --strategy demo, which makes steps of its own out of gradients:",
        ),
        ("--strategy demo --momentum 0.9", "--momentum with --strategy demo, which makes steps of"),
        ("--nnodes 3", "--nnodes needs --node-rank and --master-addr"),
        ("--nnodes 3 --node-rank 3 --master-addr a", "--node-rank must be 0 to 2, not 3"),
        ("--node-rank 1", "--node-rank needs --nnodes"),
        ("--nnodes 1 --master-port 99999999", "--master-port must be at most 65535"),
        ("--nnodes 1 --master-port 0", "--master-port must be at least 1, not 0"),
        ("--shard dirichlet --alpha 1e308", "--alpha must be at most 1000000000.0, not 1e+308"),
    ],
)
def test_a_mistake_is_named(flags, message):
    with pytest.raises(OptionError) as error:
        parse_config(flags.split(), {})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "1"}, "no WORLD_SIZE, MASTER_ADDR, MASTER_PORT"),
        (TORCHRUN | {"WORLD_SIZE": "three"}, "WORLD_SIZE: 'three' is not a whole number"),
        (TORCHRUN | {"RANK": "3"}, "RANK=3 with WORLD_SIZE=3: no such rank"),
        (TORCHRUN | {"MASTER_PORT": "-5"}, "MASTER_PORT must be at least 1, not -5"),
        (TORCHRUN | {"GRADWIRE_NEIGHBOURS": "0,3"}, "GRADWIRE_NEIGHBOURS: no rank 3"),
        (TORCHRUN | {"GRADWIRE_NEIGHBOURS": "0,node2"}, "'node2' is not a whole number"),
        ({"GRADWIRE_TIMEOUT_S": "soon"}, "GRADWIRE_TIMEOUT_S: 'soon' is not a number"),
        ({"GRADWIRE_TIMEOUT_S": "-1"}, "GRADWIRE_TIMEOUT_S must be above 0, not -1.0"),
        ({"GRADWIRE_TIMEOUT_S": "1e300"}, "GRADWIRE_TIMEOUT_S must be at most"),
        ({"GRADWIRE_SILENCE_S": "0"}, "GRADWIRE_SILENCE_S must be above 0, not 0.0"),
        ({"GRADWIRE_SLOWEST_MBYTE_S": "-1"}, "above 0"),
    ],
)
def test_a_wrong_environment_is_named(environ, message):
    with pytest.raises(OptionError) as error:
        parse_config([], environ)
    assert message in str(error.value)


def test_a_large_model_has_more_time_on_slow_links():
    """500 MB at 1 MB/s between three nodes: if one uplink carries what each sends each, it takes at least 3000 s."""
    slow = TORCHRUN | {"GRADWIRE_TIMEOUT_S": "230", "GRADWIRE_SLOWEST_MBYTE_S": "1"}
    config = parse_config([], slow)
    assert config.timeout_for_s(0) == 230
    assert config.timeout_for_s(500_000_000) == 230 + 4 * 3000
    assert config.timeout_for_s(10**15) == 366 * 86400  # longer waits may overflow
    assert not {"timeout_s", "silence_s", "slowest_mbyte_s"} & config.decisive().keys()
    assert parse_config([], TORCHRUN).timeout_for_s(500_000_000) == 1800  # the links are unknown


OWN = """
from dataclasses import dataclass

from node.strategies.base import Strategy


@dataclass
class Mine(Strategy):
    '''Mine.'''


def make(width: int = 3):
    ...
"""


def test_a_file_of_ones_own_is_the_same_in_any_folder(tmp_path):
    """On nodes it is in another one, and a rank of a local fit gets its whole path."""
    (tmp_path / "mine.py").write_text(OWN)
    words = ("--strategy", f"{tmp_path}/mine.py:Mine", "--task", f"{tmp_path}/mine.py:make")
    config = parse_config(words, TORCHRUN)
    assert config.strategy == f"{tmp_path}/mine.py:Mine"
    assert config.decisive()["strategy"] == "mine.py:Mine"
    assert json.loads(config.shared())["task"] == "mine.py:make"


def test_flag_then_environment_then_default(tmp_path):
    assert parse_config([], {}).ranks == RankEnv(0, 1, 0, 1, "127.0.0.1", 29500)
    assert parse_config([], TORCHRUN).ranks == RankEnv(1, 3, 0, 1, "node1", 29501)
    linked = TORCHRUN | {"GRADWIRE_NEIGHBOURS": "0,2"}
    assert parse_config([], linked).ranks.neighbours == (0, 2)
    by_hand = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "node2"]
    assert parse_config(by_hand, TORCHRUN).ranks == RankEnv(1, 2, 0, 1, "node2", 29500)

    environ = {"OMP_NUM_THREADS": "2", "GRADWIRE_RUN_DIR": "a", "GRADWIRE_TIMEOUT_S": "7"}
    config = parse_config([], environ)
    assert (config.threads, str(config.run_dir), config.timeout_s) == (2, "a", 7.0)
    config = parse_config(["--threads", "3", "--run-dir", "b"], environ)
    assert (config.threads, str(config.run_dir)) == (3, "b")
    config = parse_config([], {})
    assert (config.threads, config.run_dir, config.timeout_s) == (1, None, 1800.0)


def test_learning_rate_follows_the_optimizer_unless_given():
    assert parse_config([], {}).lr != parse_config(["--optimizer", "sgd"], {}).lr
    assert parse_config(["--optimizer", "sgd", "--lr", "3"], {}).lr == 3


def test_demo_steps_with_plain_sgd_at_a_rate_for_signs():
    for flags in ("--strategy demo", "--strategy demo --optimizer sgd"):
        config = parse_config(flags.split(), {})
        assert (config.optimizer, config.momentum, config.weight_decay) == ("sgd", 0.0, 0.0)
        assert config.lr == 0.001 < parse_config(["--optimizer", "sgd"], {}).lr
        assert config.to_json()["optimizer"] == "sgd"
    assert parse_config(["--strategy", "demo", "--lr", "3"], {}).lr == 3
    others = {
        parse_config(["--strategy", name], {}).optimizer for name in STRATEGIES.keys() - {"demo"}
    }
    assert others == {"adamw"}


def test_ranks_must_share_what_decides_the_result_and_nothing_else():
    config = parse_config([], {})
    assert parse_config([], TORCHRUN | {"GRADWIRE_RUN_DIR": "x"}).shared() == config.shared()
    assert parse_config(["--threads", "2", "--data-dir", "x"], {}).shared() == config.shared()
    assert parse_config(["--seed", "2"], {}).shared() != config.shared()


def test_all_ranks_go_on_or_none():
    """A rank that reads a checkpoint and one that does not would wait for each other until the timeout."""
    fresh, resumed, elsewhere = (
        parse_config(flags, {}) for flags in ([], ["--resume", "a"], ["--resume", "b"])
    )
    assert resumed.shared() == elsewhere.shared() != fresh.shared()
    assert resumed.decisive() == fresh.decisive()


@pytest.mark.parametrize("name", TASKS)
def test_every_task_says_what_it_and_its_options_do(name):
    cls = task_class(name)
    assert cls.__doc__
    assert all(field.metadata["help"] for field in dataclasses.fields(cls))


def test_the_learning_rate_warms_up_and_then_follows_its_schedule():
    def rates(flags):
        config = parse_config(["--steps", "9", *flags.split()], {})
        return [rate(config, step) for step in range(1, 10)]

    assert rates("") == [1.0] * 9
    assert rates("--warmup-steps 4") == [0.25, 0.5, 0.75, *[1.0] * 6]
    # From step 1 to step 9: half a cosine wave, with its middle at step 5.
    cosine = rates("--lr-schedule cosine")
    assert (cosine[0], cosine[4], cosine[8]) == pytest.approx((1, 0.55, 0.1))
    assert cosine == sorted(cosine, reverse=True)
    linear = rates("--lr-schedule linear --final-lr 0.2")
    assert linear == pytest.approx([1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])
    both = rates("--lr-schedule cosine --warmup-steps 5 --final-lr 0")
    assert both == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 0.853553, 0.5, 0.146447, 0], abs=1e-6)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_says_what_it_and_its_options_do(name):
    cls = strategy_class(name)
    assert cls.__doc__
    assert all(field.metadata["help"] for field in dataclasses.fields(cls))


def test_settings_have_the_type_of_their_default_and_the_last_one_counts():
    @dataclasses.dataclass
    class Mine:
        on: bool = option(False, "a switch")
        share: float = option(0.5, "a share", at_least=0.1)
        name: str = option("mean", "a word")
        rounds: int = option(3, "a number")

    defaults = {"on": False, "share": 0.5, "name": "mean", "rounds": 3}
    assert parse_settings("mine", Mine, []) == defaults
    given = ["on=yes", "share=1e-1", "name=a=b", "rounds=1", "rounds=4"]
    values = {"on": True, "share": 0.1, "name": "a=b", "rounds": 4}
    assert parse_settings("mine", Mine, given) == values
    for wrong in ("on=maybe", "share=inf", "share=0.05", "rounds=x"):
        with pytest.raises(OptionError, match=wrong.partition("=")[0]):
            parse_settings("mine", Mine, [wrong])
    assert parse_settings("fedavg", FedAvg, ["H=7"])["H"] == 7


def test_choices_may_be_numbers():
    @dataclasses.dataclass
    class Mine:
        bits: int = option(8, "of a number", choices=(4, 8))

    assert parse_settings("mine", Mine, ["bits=4"]) == {"bits": 4}
    with pytest.raises(OptionError, match="unknown value of --set bits: '5': there is 4, 8"):
        parse_settings("mine", Mine, ["bits=5"])
    assert describe_options(Mine) == ["bits=8              of a number (4 | 8)"]


def test_an_option_must_have_a_default_of_a_kind_that_can_be_typed():
    @dataclasses.dataclass
    class Mine:
        limit: float | None = None

    with pytest.raises(OptionError, match="mine: limit must be true or false, .*, not None"):
        require_options("mine", Mine)


@pytest.mark.parametrize(("module", "is_there"), [("torch.nn", True), ("a_module", False)])
def test_a_missing_module_is_said_to_be_in_the_image_only_if_it_is(tmp_path, module, is_there):
    if is_there:
        (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No torch', name='torch')")
    (tmp_path / "mine.py").write_text(f"import {module}\n")
    result = node_train("--strategy", f"{tmp_path}/mine.py:Mine")
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert ("it is in the node image" in result.stderr) == is_there


def test_nearest_name_ignores_case_and_far_names_are_not_offered():
    assert "did you mean 'H'" in str(unknown("option", "h", ["H"]))
    assert "did you mean" not in str(unknown("option", "zzz", ["H", "alpha"]))
    flags = ["--alpha", "--dry-run", "--lr", "--optimizer"]
    for far in ("--force", "--link", "--H", "--timeout", "--verify-full", "--all"):
        assert "did you mean" not in str(unknown("argument", far, flags))


def test_a_mistake_is_one_line_and_exit_2():
    result = node_train("--strategy", "fedvag")
    assert result.returncode == 2
    assert result.stderr == (
        "node.train: error: unknown strategy 'fedvag': did you mean 'fedavg'?\n"
    )


def test_help_starts_with_examples_and_lists_strategy_options():
    result = node_train("--help")
    assert result.returncode == 0
    assert result.stdout.startswith("examples:\n  python -m node.train")
    for name in STRATEGIES:
        assert f"\n  {name} " in result.stdout
        for field in dataclasses.fields(strategy_class(name)):
            line = f"\n      {field.name}={field.default} +{re.escape(field.metadata['help'])}"
            assert re.search(line, result.stdout)
    assert re.search(r"H=20 +local steps between two averages \(at least 1\)", result.stdout)
    assert re.search(r"hook=none +encoding of gradients \(none \| fp16 \| bf16\)", result.stdout)


@pytest.mark.parametrize("flag", ["--help", "--dry-run"])
def test_what_nobody_reads_ends_without_a_word(flag):
    """As with `| head`, which leaves once it has enough."""
    command = [sys.executable, "-m", "node.train", flag]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdout.close()
    assert running.communicate(timeout=20)[1] == b""


def test_dry_run_prints_the_resolved_configuration():
    result = node_train("--dry-run", "--strategy", "fedavg", "--set", "H=5")
    config = json.loads(result.stdout)
    assert config["strategy_options"]["H"] == 5
    assert config["strategy_options"]["server"] == "avg"
    assert config["steps"] == 200
    assert config["ranks"]["world_size"] == 1


def test_ppo_is_trained_as_its_environment_wants_unless_it_is_told_otherwise():
    def config(words):
        return parse_config(["--task", "ppo", *words.split()], {})

    cart_pole = config("")
    assert (cart_pole.lr, cart_pole.lr_schedule, cart_pole.final_lr) == (0.001, "linear", 0.0)
    assert (cart_pole.clip_norm, cart_pole.weight_decay) == (0.5, 0.0)
    # 100,000 environment steps are 261 rollouts of 12 x 32, each used 20 times.
    assert (cart_pole.steps, cart_pole.batch_size) == (261 * 20, 12 * 32)
    two = config("--nnodes 2 --node-rank 1 --master-addr a --steps 7 --lr-schedule constant")
    assert (two.steps, two.batch_size, two.lr_schedule) == (7, 6 * 32, "constant")
    pendulum = config("--task-set env=Pendulum-v1 --task-set gamma=0.8 --lr 0.5")
    assert pendulum.task_options["gamma"] == 0.8 and pendulum.lr == 0.5
    assert pendulum.task_options["num_steps"] != cart_pole.task_options["num_steps"]
    assert pendulum.task_options["vf_coef"] == cart_pole.task_options["vf_coef"] == 1.0
    # Stable-Baselines3 has 4,096 samples per rollout, in minibatches of 64.
    assert (pendulum.steps, pendulum.batch_size) == (25 * 10 * 68, 60)


def test_mujocos_environments_are_trained_as_the_zoo_does_and_named_to_whoever_starts_ranks():
    config = parse_config(["--dry-run", "--task", "ppo", "--task-set", "env=Hopper-v5"], {})
    assert config.needed_packages == {"mujoco": "env=Hopper-v5"}
    # 1,000,000 environment steps are 1,737 rollouts of 12 x 48, each used 5 times in batches of 36.
    assert (config.steps, config.batch_size) == (1737 * 5 * 16, 36)
    assert (config.lr, config.clip_norm) == (9.80828e-5, 0.7)
    assert config.task_options["log_std"] == -2.0
    assert config.task_options["vf_coef"] == 2 * 0.835671  # the zoo weights the whole squared error
    assert parse_config(["--task", "ppo"], {}).needed_packages == {}


@pytest.mark.parametrize(
    "options",
    [
        *("agents=37 eval_density=0", "agents=9 first_map_size=5", "capacity=24 learn_after=9"),
        *("eval_comm_loss_also=0.25,1", "preset=full"),
    ],
)
def test_path_finding_that_can_be_done_is_not_refused(options):
    words = [*MAPF.split(), "--batch-size", "192"]
    for one in options.split():
        words += ["--task-set", one]
    assert parse_config(words, {}).task == "mapf"


@pytest.mark.parametrize("env", ["Hopper-v5", "Walker2d-v5"])
def test_a_rank_without_mujoco_says_in_one_line_what_installs_it(env, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(OptionError, match=f"^env={env} needs mujoco, which is not here: [^\n]*$"):
        parse_config(["--task", "ppo", "--task-set", f"env={env}"], {})
