"""What a sweep runs, as read from files and flags, and what is refused."""

from argparse import Namespace

import jsonschema
import pytest

from cluster.base.errors import UsageError
from cluster.base.paths import PROJECT_DIR
from cluster.base.yaml_file import read_yaml
from cluster.sweeps.cells import Problem, _count, digest, ordered, sweep_cells
from cluster.sweeps.flags import LISTS, ONE_VALUE, with_flags
from cluster.sweeps.planned import plan_runs
from cluster.sweeps.schema import sweep_schema
from cluster.sweeps.sweep_file import load_document, parse_sweep

DOCUMENT = {
    "nodes": 2,
    "profile": ["mobile", "wan"],
    "seed": [1, 2],
    "options": {"steps": 12, "eval": "after"},
    "variants": {
        "ddp": {"strategy": "ddp"},
        "diloco": {"strategy": "diloco", "set": {"H": [4, 8]}},
    },
    "target": {"test_accuracy": 0.6},
}
CHECK = jsonschema.Draft202012Validator(sweep_schema())
SHIPPED = sorted((PROJECT_DIR / "examples" / "sweeps").glob("*.yml"))


def flags(*rest, **said):
    none = dict.fromkeys((*ONE_VALUE, *LISTS))
    plain = {"target": [], "no_verify": False, "isolated": False}
    args = Namespace(**none | plain | said)
    return with_flags({}, args, rest)


def test_every_combination_is_a_cell_with_the_arguments_of_its_own():
    cells = sweep_cells(parse_sweep(DOCUMENT))
    assert len(cells) == 2 * 2 * 3
    assert [cell.variant for cell in cells[::2]] == ["ddp", "diloco H=4", "diloco H=8"] * 2
    words = [
        "--steps",
        "12",
        "--eval",
        "after",
        "--strategy",
        "diloco",
        "--set",
        "H=8",
        "--seed",
        "2",
    ]
    assert cells[-1].words == tuple(words)
    assert cells[-1].problem == Problem("", "wan", "full", "auto")
    assert cells[-1].name == "wan, full, diloco H=8, links 1, seed 2"


def test_tasks_are_problems_of_their_own_and_lists_of_options_are_variants():
    options = {"task": ["fashion-mnist", "language"], "strategy": ["ddp", "gossip"], "lr": [0.1, 1]}
    cells = sweep_cells(parse_sweep({"profile": "wan", "options": options}))
    assert {cell.problem.task for cell in cells} == {"fashion-mnist", "language"}
    names = ["ddp lr=0.1", "ddp lr=1", "gossip lr=0.1", "gossip lr=1"]
    assert [cell.variant for cell in cells] == names * 2


def test_the_only_variant_is_called_by_its_strategy_or_its_script():
    [cell] = sweep_cells(parse_sweep({"profile": "wan", "options": {"strategy": "ddp"}}))
    assert (cell.variant, cell.seed) == ("ddp", 1)
    [cell] = sweep_cells(parse_sweep({"profile": "wan", "program": "train.py --fast"}))
    assert (cell.variant, cell.seed, cell.words) == ("train.py", None, ())


def test_true_is_a_flag_and_false_is_none():
    options = {"nesterov": [True, False], "clip": 2}
    cells = sweep_cells(parse_sweep({"profile": "wan", "program": ["a.py"], "options": options}))
    assert [cell.words for cell in cells] == [("--nesterov", "--clip", "2"), ("--clip", "2")]
    assert [cell.variant for cell in cells] == ["nesterov=True", "nesterov=False"]


def test_too_many_cells_are_counted_before_any_is_made(monkeypatch):
    """Nine lists of ten values; to make that many would take more memory than there is."""
    monkeypatch.setattr("cluster.sweeps.cells._variants", lambda sweep: pytest.fail("made"))
    options = {f"a{n}": list(range(10)) for n in range(9)}
    with pytest.raises(UsageError, match="a sweep of 2000000000 runs"):
        sweep_cells(parse_sweep({"profile": ["mobile", "wan"], "options": options}))


def test_the_count_is_that_of_the_cells():
    for more in ({}, {"seed": 7}, {"link_seed": [1, 2, 3]}, {"program": "a.py", "seed": [1, 2]}):
        plan = parse_sweep(DOCUMENT | more)
        assert len(sweep_cells(plan)) == _count(plan)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_target_that_no_test_can_reach_is_refused(value):
    with pytest.raises(UsageError, match=f"test_loss is {value}"):
        parse_sweep(DOCUMENT | {"target": {"test_loss": float(value)}})
    with pytest.raises(UsageError, match=f"test_loss is {value}"):
        parse_sweep(flags(profile="wan", target=[f"test_loss={value}"]))


def test_each_block_has_every_cell_of_its_seeds_once_in_an_order_of_its_own():
    cells = sweep_cells(parse_sweep(DOCUMENT | {"seed": [1, 2, 3, 4]}))
    found = ordered(cells, 1)
    blocks = [found[start : start + 6] for start in range(0, 24, 6)]
    for number, block in enumerate(blocks, start=1):
        assert {cell.seed for cell in block} == {number}
        assert len({(cell.problem, cell.variant) for cell in block}) == 6
    orders = {tuple((cell.problem, cell.variant) for cell in block) for block in blocks}
    assert len(orders) > 1
    assert found == ordered(cells, 1) != ordered(cells, 2)


def test_a_digest_tells_experiments_apart_and_not_the_order_of_their_keys():
    assert digest({"a": 1, "b": [2, 3]}) == digest({"b": [2, 3], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_flags_say_what_a_file_does():
    words = [
        "--strategy",
        "ddp,diloco",
        "--set",
        "H=4,8",
        "--set",
        "p=0.1",
        "--steps=12",
        "--verbose",
    ]
    found = flags(*words, profile="mobile,wan", seed="1,2", nodes="2", target=["test_loss=0.3"])
    assert found == {
        "nodes": 2,
        "profile": ["mobile", "wan"],
        "seed": [1, 2],
        "target": {"test_loss": 0.3},
        "options": {
            "strategy": ["ddp", "diloco"],
            "set": {"H": ["4", "8"], "p": ["0.1"]},
            "steps": ["12"],
            "verbose": True,
        },
    }
    assert len(sweep_cells(parse_sweep(found))) == 2 * 2 * 2 * 2


def test_flags_go_over_the_file_option_by_option():
    plain = {"target": [], "no_verify": True, "isolated": False}
    args = Namespace(**dict.fromkeys((*ONE_VALUE, *LISTS)) | plain)
    document = DOCUMENT | {"options": {"steps": 12, "set": {"H": 4}}}
    found = with_flags(document, args, ["--steps", "7", "--set", "p=0.1"])
    assert found["options"] == {"steps": ["7"], "set": {"H": 4, "p": ["0.1"]}}
    assert found["verify"] is False
    assert document["options"]["steps"] == 12


def test_a_flag_goes_over_the_file_however_that_spells_it():
    args = Namespace(
        **dict.fromkeys((*ONE_VALUE, *LISTS)), target=[], no_verify=False, isolated=False
    )
    document = {"profile": "wan", "options": {"--lr": 0.1, "--set": {"H": 4}}}
    found = parse_sweep(with_flags(document, args, ["--lr", "0.2", "--set", "beta=1"]))
    assert found.options == {("lr", ""): ("0.2",), ("set", "H"): (4,), ("set", "beta"): ("1",)}


def test_ranks_of_a_node_and_isolated_nodes_decide_a_run_by_file_and_by_flags(tmp_path):
    by_flags = flags("--strategy", "ddp", profile="wan", nproc_per_node="2", isolated=True)
    by_file = {"profile": "wan", "nproc_per_node": 2, "isolated": True}
    by_file["options"] = {"strategy": "ddp"}
    digests = set()
    for document in (by_flags, by_file, by_file | {"nproc_per_node": 3}, {"profile": "wan"}):
        plan = parse_sweep(document)
        [one] = plan_runs(plan, sweep_cells(plan), tmp_path / "out")
        assert one.experiment["nproc_per_node"] == document.get("nproc_per_node", 1)
        assert one.link_spec.topology.isolated == document.get("isolated", False)
        digests.add(one.digest)
    assert len(digests) == 3


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_sweep_can_be_run(path):
    assert sweep_cells(parse_sweep(load_document(path)))


def test_the_shipped_comparison_has_every_strategy():
    from node.strategies import STRATEGIES

    found = parse_sweep(load_document(PROJECT_DIR / "examples" / "sweeps" / "strategies.yml"))
    assert set(found.variants) == set(STRATEGIES)


BAD = [
    ({}, "a sweep without profile"),
    ({"profile": []}, "profile is an empty list"),
    ({"profile": {"wan": 1}}, "profile: {'wan': 1} is no word"),
    ({"profile": ["wan", "wan"]}, "profile has a value twice"),
    ({"profile": "wan", "wire": "copper"}, "unknown wire 'copper'"),
    ({"profile": "wan", "nodes": [2, 3]}, "nodes is [2, 3]"),
    ({"profile": "wan", "nodes": 0}, "nodes is 0"),
    ({"profile": "wan", "nproc_per_node": 0}, "nproc_per_node is 0"),
    ({"profile": "wan", "isolated": "yes"}, "isolated is 'yes'"),
    ({"profile": "wan", "nodes": "two"}, "nodes is 'two'"),
    ({"profile": "wan", "seed": [1, -1]}, "seed: -1 is no whole number"),
    ({"profile": "wan", "seed": True}, "seed: True is no whole number"),
    ({"profile": "wan", "link_seed": [1.5]}, "link_seed: 1.5 is no whole number"),
    ({"profile": "wan", "image": ["a", "b"]}, "image is ['a', 'b']"),
    ({"profile": "wan", "program": 3}, "program is 3"),
    ({"profile": "wan", "options": ["steps"]}, "options is ['steps']"),
    ({"profile": "wan", "options": {"steps": None}}, "options: steps is None"),
    ({"profile": "wan", "options": {"steps": []}}, "options: steps is an empty list"),
    ({"profile": "wan", "options": {"seed": 3}}, "options: seed cannot be an option of a sweep"),
    ({"profile": "wan", "options": {"set": {"H": {"a": 1}}}}, "options: set H is {'a': 1}"),
    ({"profile": "wan", "variants": {}}, "variants is {}"),
    ({"profile": "wan", "variants": {"a": "fast"}}, "variants: a is 'fast'"),
    ({"profile": "wan", "variants": {"a": []}}, "variants: a is []"),
    ({"profile": "wan", "target": {"accuracy": 1}}, "unknown figure of a target 'accuracy'"),
    ({"profile": "wan", "target": {"test_accuracy": "high"}}, "target: test_accuracy is 'high'"),
    ({"profile": "wan", "verify": "look"}, "verify is 'look'"),
]


@pytest.mark.parametrize(("document", "words"), BAD, ids=str)
def test_what_cannot_be_run_is_refused_by_name(document, words):
    with pytest.raises(UsageError) as refused:
        parse_sweep(document)
    assert words in refused.value.message
    assert refused.value.hint


TWICE = [
    ({"variants": {1: {}, "1": {"lr": 1}}}, "variants: 1 is there twice"),
    ({"options": {"lr": 0.1, "--lr": 0.2}}, "options: lr is there twice"),
    ({"options": {"set": {1: 1, "1": 2}}}, "options: set 1 is there twice"),
    ({"options": {"set": {"H": 1}, "--set": {"H": 2}}}, "options: set is there twice"),
]


@pytest.mark.parametrize(("document", "words"), TWICE, ids=str)
def test_keys_that_become_the_same_text_are_refused(document, words):
    with pytest.raises(UsageError, match=words):
        parse_sweep({"profile": "wan"} | document)


def test_two_variants_that_nobody_could_tell_apart_are_refused():
    variants = {"x": {"lr": 1}, "y": {"lr": 2}}
    document = {"profile": "wan", "options": {"task": ["a", "a b"]}, "variants": variants}
    assert len(sweep_cells(parse_sweep(document))) == 4
    same = {"profile": "wan", "options": {"lr": [1, "1"]}}
    with pytest.raises(UsageError, match="two variants are called lr=1"):
        sweep_cells(parse_sweep(same))


def test_variants_of_one_name_are_refused_though_their_options_differ():
    """Each would take the other's place in the ranking."""
    variants = {"fedavg": {"set": {"H": [20, 40]}}, "fedavg H=20": {"set": {"H": 20}, "lr": 0.1}}
    with pytest.raises(UsageError, match="two variants are called fedavg H=20"):
        sweep_cells(parse_sweep({"profile": "wan", "variants": variants}))
    tasks = {"pictures": {"task": ["a", "b"]}, "text": {"task": "c"}}
    assert len(sweep_cells(parse_sweep({"profile": "wan", "variants": tasks}))) == 3


def test_more_runs_than_anybody_has_time_for_are_refused():
    with pytest.raises(UsageError, match="a sweep of 20000 runs"):
        sweep_cells(
            parse_sweep({"profile": "wan", "seed": list(range(200)), "link_seed": list(range(100))})
        )


@pytest.mark.parametrize(
    ("text", "words"),
    [("- 1", "a sweep is a mapping"), ("profil: wan", "unknown key in"), ("a: [", "not YAML")],
)
def test_a_file_that_is_no_sweep_is_refused_in_one_line(tmp_path, text, words):
    path = tmp_path / "sweep.yml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        load_document(path)


def test_a_sweep_may_name_its_kind_and_an_experiment_is_sent_to_launch(tmp_path):
    path = tmp_path / "sweep.yml"
    path.write_text("kind: sweep\nprofile: wan\n")
    assert load_document(path) == {"profile": "wan"}
    assert CHECK.is_valid(read_yaml(path))
    path.write_text("kind: experiment\nprofile: wan\n")
    assert not CHECK.is_valid(read_yaml(path))
    with pytest.raises(UsageError, match=r"sweep\.yml: kind is 'experiment'") as refused:
        load_document(path)
    assert refused.value.hint == (
        "kind: sweep, or leave it out; to run an experiment: python -m cluster.launch -f FILE"
    )


def test_paths_of_a_sweep_are_relative_to_the_current_folder(tmp_path, monkeypatch):
    """Unlike an experiment's: as the same words would be on the command line, which may override any of them."""
    (tmp_path / "sweeps").mkdir()
    path = tmp_path / "sweeps" / "sweep.yml"
    path.write_text("profile: ./mine.yml\nprogram: [train.py]\n")
    (tmp_path / "mine.yml").write_text("rate_mbyte_s: 2\ndelay_ms: 8\n")
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    plan = parse_sweep(load_document(path))
    [one] = plan_runs(plan, sweep_cells(plan), tmp_path / "runs")
    assert (one.program.folder, one.link_spec.profile.name) == (tmp_path, "mine")


def test_numbers_of_a_file_are_used_as_they_were_typed(tmp_path):
    path = tmp_path / "sweep.yml"
    path.write_text(
        "profile: wan\nprogram: [train.py, 010]\noptions: {lr: [0x10, 1e-3], set: {H: 1_000}}\n"
        "variants: {slow: {batch: 007}}\nseed: [1, 2]\n"
    )
    sweep = parse_sweep(load_document(path))
    cells = sweep_cells(sweep)
    assert (sweep.program, sweep.seeds) == (("train.py", "010"), (1, 2))
    assert [cell.words[:6] for cell in cells[::2]] == [
        ("--lr", lr, "--set", "H=1_000", "--batch", "007") for lr in ("0x10", "1e-3")
    ]


def test_variants_with_the_same_arguments_are_refused_not_found_to_be_equal():
    same = {"profile": "wan", "variants": {"a": {"lr": 0.1}, "b": {"lr": "0.1"}}}
    with pytest.raises(UsageError, match="the variants a and b are the same run"):
        sweep_cells(parse_sweep(same))


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ({"nodes": "two"}, "3, one for all runs"),
        ({"nodes": "2,3"}, "nodes: 3, one for all runs"),
        ({"nproc_per_node": "0"}, "nproc_per_node: 3, one for all runs"),
        ({"seed": "1,x"}, "1,2,3"),
        ({"seed": "1,1"}, "leave one of them out"),
    ],
)
def test_what_is_one_for_all_runs_is_not_told_to_be_a_list(said, hint):
    with pytest.raises(UsageError) as refused:
        parse_sweep(flags(profile="wan", **said))
    assert refused.value.hint == hint


@pytest.mark.parametrize(
    ("words", "said", "found"),
    [
        ((), {"seed": "1,x"}, "--seed: 'x' is no number"),
        ((), {"target": ["high"]}, "--target high"),
        (("steps",), {}, "steps belongs to no option"),
        (("--set", "H", "--set", "lr=0.1"), {}, "--set H: write NAME=VALUE"),
        (("--set", "H=20", "--set", "lr"), {}, "--set lr: write NAME=VALUE"),
        (("--set", "--set", "H=2"), {}, "--set: write NAME=VALUE"),
        (("--set", "H=2", "--set"), {}, "--set: write NAME=VALUE"),
    ],
)
def test_a_flag_that_cannot_be_is_refused(words, said, found):
    with pytest.raises(UsageError, match=found):
        flags(*words, **said)


def test_no_record_of_a_sweep_has_a_token_of_its_program(tmp_path):
    (tmp_path / "in").mkdir()
    script = tmp_path / "in" / "train.py"
    script.touch()
    digests = set()
    for token in ("hf_geheim", "hf_other"):
        program = [str(script), "--hf-token", token]
        plan = parse_sweep({"profile": "wan", "program": program, "folder": str(script.parent)})
        [one] = plan_runs(plan, sweep_cells(plan), tmp_path / "out")
        assert token not in str(one.experiment)
        assert token in one.program.argv
        digests.add(one.digest)
    assert len(digests) == 1  # nor does the token make a different run
