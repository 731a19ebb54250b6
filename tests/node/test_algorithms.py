"""Tests that strategies with the same mathematics give the same runs, and that each equals its paper.

Finds wrong averages, signs, delays and weights, optimizers other than the requested one, and ranks that drift apart.
All in double precision on the tiny model; reference.py has the papers' algorithms.
"""

import pytest
import reference
import torch
from tiny import train

from node.accounting.metrics import Clock
from node.dist.comm import Comm
from node.strategies import STRATEGIES
from node.strategies.fedavg import FedAvg

# One step of ddp, and of the settings that must equal it.
ATC = "fedavg", "H=1"
SAME = {
    "fedavg, H=1 = ddp": (("ddp", ""), ATC),
    "buckets = one tensor": (("ddp", ""), ("ddp", "bucket_mb=0.005")),
    "overlap = none": (("ddp", ""), ("ddp", "bucket_mb=0.005 overlap=yes")),
    "localsgd that has not begun = ddp": (("ddp", ""), ("localsgd", "H=2 start_after=6")),
    "localsgd from the first step = fedavg": (("fedavg", "H=4"), ("localsgd", "H=4 start_after=0")),
    "localsgd, H=1 = ddp": (("ddp", ""), ("localsgd", "H=1 start_after=2")),
    "diloco, outer SGD = averaging": (
        ("fedavg", "H=2"),
        ("diloco", "H=2 outer_lr=1 outer_momentum=0"),
    ),
    "streaming, 1 fragment, tau 0, alpha 0 = diloco": (
        ("diloco", "H=2"),
        ("streaming-diloco", "H=2 fragments=1 tau=0 alpha=0"),
    ),
    "sparta, p=1 = averaging": (ATC, ("sparta", "p=1")),
    "sparta, p=1, by partition = averaging": (ATC, ("sparta", "p=1 selector=partition")),
    "sparta-diloco that averages nothing = diloco": (
        ("diloco", "H=2"),
        ("sparta-diloco", "H=2 p=1e-12"),
    ),
    "gossip with all = averaging": (ATC, ("gossip", "graph=complete")),
    "gossip with push-sum with all = averaging": (ATC, ("gossip", "graph=complete push_sum=yes")),
    "gossip that always averages globally = averaging": (ATC, ("gossip", "global_every=1")),
    "push-sum on a regular graph = none": (
        ("gossip", "graph=exponential"),
        ("gossip", "graph=exponential push_sum=yes"),
    ),
    "powersgd at full rank = ddp": (("ddp", ""), ("powersgd", "rank=999 min_compression=0")),
    "powersgd that has not begun = ddp": (("ddp", ""), ("powersgd", "rank=1 start_after=6")),
    "demo of all waves and no sign = ddp": (("ddp", ""), ("demo", "topk=9999 sign=no")),
    "islands of everyone = fedavg": (("fedavg", "H=2"), ("fedavg", "H=2 island_size=3")),
    "islands of one = one average at the end": (
        ("fedavg", "H=99"),
        ("fedavg", "H=2 island_size=1"),
    ),
    "weights by equal samples = even": (("fedavg", "H=2"), ("fedavg", "H=2 weights=samples")),
    "fedprox pulls nowhere at H=1": (ATC, ("fedavg", "H=1 mu=5")),
    "fedavgm without momentum = fedavg": (
        ("fedavg", "H=2"),
        ("fedavg", "H=2 server=momentum server_momentum=0"),
    ),
}


def distance(a, b):
    """Return the largest difference between the parameters of two runs' first ranks."""
    return far(a[0]["parameters"], b[0]["parameters"])


def far(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", SAME)
def test_the_same_mathematics(tiny_once, name):
    one, other = (tiny_once(3, strategy, settings) for strategy, settings in SAME[name])
    assert distance(one, other) < 1e-9


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        ("fedavg", "H=2"),
        ("localsgd", "H=2 start_after=1"),
        ("diloco", "H=1"),
        ("sparta", "p=0.5"),
        ("gossip", "graph=exponential"),
        ("powersgd", "rank=1"),
        ("demo", "topk=32 sign=no"),
        ("ddp", "hook=fp16"),
    ],
)
def test_what_is_not_ddp_is_not(tiny_once, strategy, settings):
    """Check that the equalities above can fail."""
    assert distance(tiny_once(3, "ddp", ""), tiny_once(3, strategy, settings)) > 1e-7


@pytest.mark.parametrize("optimizer", [{"momentum": 0.9}, {"optimizer": "adamw", "lr": 0.01}])
def test_ddp_is_one_process_with_all_batches(tiny, optimizer):
    assert distance(tiny(3, "ddp", **optimizer), tiny(1, "ddp", batch=24, **optimizer)) < 1e-9


@pytest.mark.parametrize("strategy", ["ddp", "fedavg", "localsgd", "powersgd", "gossip", "sparta"])
def test_alone_every_strategy_but_outer_ones_is_plain_training(tiny, strategy):
    settings = "rank=999 min_compression=0" if strategy == "powersgd" else ""
    assert distance(tiny(1, "ddp"), tiny(1, strategy, settings)) < 1e-9


@pytest.mark.parametrize("codec", ["none", "fp16", "bf16", "int8"])
def test_eager_alone_is_diloco(tiny, codec):
    one, other = (
        tiny(1, "diloco", "H=2"),
        tiny(1, "eager-diloco", f"H=2 outer_lr=0.7 codec={codec}"),
    )
    assert distance(one, other) < 1e-9


def test_fedavgm_at_h_1_is_sgd_with_momentum(tiny):
    server = tiny(3, "fedavg", "H=1 server=momentum server_momentum=0.8")
    assert distance(server, tiny(3, "ddp", momentum=0.8)) < 1e-9


@pytest.mark.parametrize("H", [1, 2])
def test_fedadam_is_its_paper(tiny, pools, H):  # noqa: N803
    paper = pools(1).run(reference.fedadam, 3, 6, H, 0.02)[0]
    ours = tiny(3, "fedavg", f"H={H} server=adam server_lr=0.02")
    assert far(ours[0]["parameters"], paper) < 1e-9


def test_fedprox_keeps_ranks_near_the_average(tiny):
    start = tiny(3, "fedavg", "H=6", lr=1e-12)
    free, pulled = (tiny(3, "fedavg", f"H=6 mu={mu}") for mu in (0, 5))
    assert distance(start, pulled) < 0.9 * distance(start, free)


def test_weights_are_the_samples_that_a_rank_has(tiny):
    """Only rank 0 has weight: the result is as if all ranks had its samples."""
    alone = tiny(3, "fedavg", "H=2", same_data=True)
    assert distance(alone, tiny(3, "fedavg", "H=2 weights=samples", own_samples=[8, 0, 0])) < 1e-9
    mixed = tiny(3, "fedavg", "H=2 weights=samples", own_samples=[8, 8, 0])
    assert distance(alone, mixed) > 1e-4


def averaged_by_samples(ranks, dtype):
    """Return parameters that all ranks have before and after an average, and the bytes that this rank sent."""
    torch.manual_seed(1)
    model = torch.nn.Linear(40, 40, dtype=getattr(torch, dtype))
    strategy, comm = FedAvg(H=1, weights="samples"), Comm(ranks, Clock(0.0))
    strategy.setup(model, torch.optim.SGD(model.parameters(), lr=0.1), comm, 1)
    strategy.samples = 60_000
    before = strategy.flat_parameters().tolist()
    strategy.step(1)  # without a gradient
    return before, strategy.flat_parameters().tolist(), comm.sent_bytes["train"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_weights_by_samples_have_all_their_digits_in_half_precision(pools, dtype):
    """In bf16 60,000 are 59,904, and in fp16 three times that is infinite: float32 is sent."""
    found = pools(3).run(averaged_by_samples, dtype)
    for before, after, _ in found:
        assert far(before, after) < 1e-7
    assert sum(sent for *_, sent in found) == pytest.approx(4 * 4 * (len(before) + 1), rel=0.01)


def test_a_fraction_of_the_ranks_is_averaged_and_all_get_it(tiny):
    same = tiny(3, "fedavg", "H=2", same_data=True)
    assert distance(same, tiny(3, "fedavg", "H=2 fraction=0.3", same_data=True)) < 1e-9
    one = tiny(3, "fedavg", "H=2 fraction=0.3")
    assert len({tuple(rank["outer"]) for rank in one}) == 1
    # In each of three rounds one rank's parameters went to two others.
    size = 8 * len(one[0]["parameters"])
    assert sum(sum(rank["sent"]) for rank in one) == 3 * 2 * size


def test_islands_differ_until_the_end(tiny):
    ranks = tiny(4, "fedavg", "H=1 island_size=2", look=own_parameters)
    third = [rank["seen"][2] for rank in ranks]
    assert len({tuple(round(value, 9) for value in one) for one in third}) == 2
    assert len({tuple(rank["parameters"]) for rank in ranks}) == 1


def test_localsgd_is_its_paper(tiny, pools):
    """Two synchronous steps, then rounds of three local steps; the last round is cut short."""
    paper = pools(1).run(reference.localsgd, 3, 7, 2, 3)
    ranks = tiny(3, "localsgd", "H=3 start_after=2", steps=8, look=own_parameters)
    for rank, own in zip(ranks, paper[0], strict=True):
        assert far(rank["seen"][7], own) < 1e-9
    assert far(ranks[0]["outer"], ranks[0]["parameters"]) < 1e-9


def test_localsgd_is_tested_with_what_ranks_last_agreed_on(tiny):
    agreed = [rank["seen"] for rank in tiny(3, "localsgd", "H=2 start_after=2", look=outer)]
    assert agreed[0] == agreed[1] == agreed[2]
    assert agreed[0][1] is None  # the model itself is tested
    assert agreed[0][2] is not None
    assert agreed[0][2] == agreed[0][3] != agreed[0][4]


def outer(strategy, comm, step):
    return None if strategy.outer is None else strategy.outer.tolist()


def own_parameters(strategy, comm, step):
    return strategy.flat_parameters().tolist()


def test_diloco_is_its_paper(tiny, pools):
    paper = pools(1).run(reference.diloco, 3, 6, 2)[0]
    assert far(tiny(3, "diloco", "H=2")[0]["outer"], paper) < 1e-9


def test_streaming_diloco_is_its_paper(tiny, pools):
    """Up to the last step but one; after the last, all fragments are synchronised."""
    paper = pools(1).run(reference.streaming, 3, 11, 4, 2, 1, 0.3)[0]
    ranks = tiny(
        3, "streaming-diloco", "H=4 fragments=2 tau=1 alpha=0.3", steps=12, look=own_parameters
    )
    for rank, own in zip(ranks, paper, strict=True):
        assert far(rank["seen"][11], own) < 1e-9


def test_eager_diloco_is_its_paper(tiny, pools):
    """Up to the end of a round; after the last round, the others' part is added and an average taken."""
    paper = pools(1).run(reference.eager, 3, 6, 2)[0]
    ranks = tiny(3, "eager-diloco", "H=2 outer_lr=0.7", steps=7, look=own_parameters)
    for rank, own in zip(ranks, paper, strict=True):
        assert far(rank["seen"][6], own) < 1e-9


def test_powersgd_is_its_paper(tiny, pools):
    paper = pools(1).run(reference.powersgd, 3, 6, 2)[0]
    assert far(tiny(3, "powersgd", "rank=2 min_compression=5")[0]["parameters"], paper) < 1e-9


CONSTANT = [0.05] * 6
WARM_UP_AND_DECAY = [0.01, 0.05, 0.1, 0.03, 0.005, 0.001]


@pytest.mark.parametrize("rates", [CONSTANT, WARM_UP_AND_DECAY])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_demo_is_its_reference(tiny, pools, rates, clip):
    """Also tests how momentum is weighted under a schedule, and that each rank clips its own gradient.

    The chunk is larger than any dimension, so each parameter is one chunk.
    """
    theirs = pools(1).run(reference.demo, 3, rates, 0.9, 20, clip)[0]
    ours = tiny(3, "demo", "decay=0.9 topk=20 chunk=181", rates=rates, clip=clip or 0.0)
    assert far(ours[0]["parameters"], theirs) < 1e-9


def test_what_tells_demos_references_apart(pools):
    """Check that the equality above can fail: it depends on the learning rates over time and on clipping."""
    runs = [
        pools(1).run(reference.demo, 3, rates, 0.9, 20, clip)[0]
        for rates, clip in ((CONSTANT, None), (CONSTANT, 0.5), (WARM_UP_AND_DECAY, None))
    ]
    assert min(far(runs[0], runs[1]), far(runs[0], runs[2])) > 1e-3


def test_demo_without_sign_follows_the_learning_rate_once(tiny):
    """The momentum accumulates lr * g, so the step is not multiplied by lr again; also with lr 0."""
    one, other = (
        tiny(3, strategy, settings, rates=[*WARM_UP_AND_DECAY[:5], 0.0])
        for strategy, settings in (("ddp", ""), ("demo", "topk=9999 sign=no"))
    )
    assert distance(one, other) < 1e-9


# node 0 has a link to each of the others, which have links only to it
STAR = [[1, 2, 3], [0], [0], [0]]
RING = [[1, 3], [0, 2], [1, 3], [2, 0]]
RING_MATRIX = [[1 / 3 if s == r or s in RING[r] else 0.0 for s in range(4)] for r in range(4)]
# Metropolis-Hastings: weight 1 / (1 + the larger degree) per link; each node keeps the rest.
STAR_MATRIX = [[0.25] * 4, *([0.25] + [0.75 * (s == r) for s in range(1, 4)] for r in range(1, 4))]
# Push-sum: the centre sends a quarter to each node and keeps one; a leaf sends a half.
STAR_PUSH = [
    [0.25, 0.5, 0.5, 0.5],
    *([0.25] + [0.5 * (s == r) for s in (1, 2, 3)] for r in (1, 2, 3)),
]


@pytest.mark.parametrize(
    ("algorithm", "settings", "links", "matrix"),
    [
        ("gossip", "graph=ring", None, RING_MATRIX),
        ("gossip", "", None, RING_MATRIX),  # the links are unknown
        # or every pair has a link
        ("gossip", "", [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]], RING_MATRIX),
        ("gossip", "", RING, RING_MATRIX),
        ("gossip", "", STAR, STAR_MATRIX),
        ("push_sum", "push_sum=yes", STAR, STAR_PUSH),
    ],
)
def test_gossip_is_its_paper(tiny, pools, algorithm, settings, links, matrix):
    paper = pools(1).run(getattr(reference, algorithm), 4, 5, matrix)[0]
    ranks = tiny(4, "gossip", settings, neighbours=links, look=own_parameters)
    for rank, own in zip(ranks, paper, strict=True):
        assert far(rank["seen"][5], own) < 1e-9


def test_gossip_over_links_that_ranks_have_sends_over_no_other(tiny):
    ranks = tiny(4, "gossip", "", neighbours=STAR)
    size = 8 * len(ranks[0]["parameters"])
    assert [rank["sent"][0] for rank in ranks] == [3 * size, size, size, size]


def test_a_partition_covers_every_parameter(tiny):
    """After 1/p steps with a learning rate of 0, parameters that differed between ranks are equal again."""
    ranks = tiny(3, "sparta", "p=0.25 selector=partition", steps=5, lr=0.0, look=perturbed)
    last = [rank["seen"][4] for rank in ranks]
    assert max(far(last[0], other) for other in last[1:]) < 1e-12
    assert far(ranks[0]["seen"][3], ranks[1]["seen"][3]) > 0.5


def perturbed(strategy, comm, step):
    """Shift each rank's parameters by its rank before the first step."""
    if step == 1:
        strategy.load_parameters(strategy.flat_parameters() + comm.rank)
    return strategy.flat_parameters().tolist()


@pytest.mark.parametrize(
    "settings", ["hook=fp16", "hook=bf16", "hook=fp16 bucket_mb=0.005 overlap=yes"]
)
def test_gradients_in_half_numbers_are_near(tiny, settings):
    assert 0 < distance(tiny(3, "ddp"), tiny(3, "ddp", settings)) < 1e-3


@pytest.mark.parametrize(
    "strategy", ["diloco", "streaming-diloco", "eager-diloco", "sparta-diloco"]
)
@pytest.mark.parametrize("codec", ["fp16", "bf16", "int8"])
def test_outer_gradients_in_fewer_bits_are_near(tiny, strategy, codec):
    one, other = (tiny(3, strategy, f"H=8 codec={c}", steps=8) for c in ("none", codec))
    assert 0 < distance(one, other) < 2e-3


def test_overlap_sends_while_the_backward_pass_goes_on(tiny):
    begun = tiny(3, "ddp", "bucket_mb=0.005 overlap=yes", look=collectives)[0]["seen"]
    waits = tiny(3, "ddp", "bucket_mb=0.005", look=collectives)[0]["seen"]
    assert begun[0] > 0 and waits[0] == 0


def collectives(strategy, comm, step):
    return comm.collectives


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_ranks_end_with_the_same_bits(tiny, strategy, dtype):
    settings = "H=8" if "H" in _options(strategy) else ""
    ranks = tiny(4, strategy, settings, steps=11, dtype=dtype, optimizer="adamw", lr=0.01)
    assert len({tuple(rank["parameters"]) for rank in ranks}) == 1
    assert ranks[0]["outer"] == ranks[0]["parameters"]
    assert len({tuple(rank["losses"]) for rank in ranks}) == 4  # each rank had its own samples


def _options(strategy):
    from node.strategies import strategy_class

    return strategy_class(strategy).__dataclass_fields__


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_optimizer_asked_for_is_used(tiny, strategy):
    """EXO Gym's FedAvg and DeMo train with an optimizer of their own."""
    runs = [
        tiny(2, strategy),
        tiny(2, strategy, lr=0.02),
        tiny(2, strategy, momentum=0.9),
        tiny(2, strategy, optimizer="adamw"),
    ]
    assert len({tuple(run[0]["parameters"]) for run in runs}) == len(runs)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_learns(tiny, strategy):
    settings = "H=8" if "H" in _options(strategy) else ""
    steps = 200 if strategy == "eager-diloco" else 100  # its average comes a round late
    for rank in tiny(3, strategy, settings, steps=steps, optimizer="adamw", lr=0.01):
        assert sum(rank["losses"][-5:]) < 0.8 * sum(rank["losses"][:5])


def test_pools_name_what_failed(pools):
    with pytest.raises(AssertionError, match="unknown strategy 'no such strategy'"):
        pools(2).run(train, "no such strategy")
