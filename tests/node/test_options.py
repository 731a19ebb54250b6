"""Tests that every option of every strategy has an effect. EXO Gym ignores unknown options, and some known ones."""

import dataclasses
from functools import cache

import pytest

from node.strategies import STRATEGIES, strategy_class

# strategy, option: the settings to try, and those to compare with.
EFFECTS = {
    ("ddp", "bucket_mb"): ("bucket_mb=0.005", ""),
    ("ddp", "hook"): ("hook=bf16", "hook=fp16"),
    ("ddp", "overlap"): ("bucket_mb=0.005 overlap=yes", "bucket_mb=0.005"),
    ("fedavg", "H"): ("H=2", "H=3"),
    ("fedavg", "fraction"): ("H=2 fraction=0.5", "H=2"),
    ("fedavg", "island_size"): ("H=2 island_size=2", "H=2"),
    ("fedavg", "weights"): ("H=2 weights=samples", "H=2"),
    ("fedavg", "mu"): ("H=2 mu=0.1", "H=2"),
    ("fedavg", "server"): ("H=2 server=adam", "H=2 server=momentum"),
    ("fedavg", "server_lr"): ("H=2 server_lr=0.9", "H=2"),
    ("fedavg", "server_momentum"): ("H=2 server=adam server_momentum=0.8", "H=2 server=adam"),
    ("localsgd", "H"): ("H=2 start_after=1", "H=3 start_after=1"),
    ("localsgd", "start_after"): ("H=2 start_after=1", "H=2 start_after=3"),
    ("diloco", "H"): ("H=2", "H=3"),
    ("diloco", "outer_lr"): ("H=2 outer_lr=0.6", "H=2"),
    ("diloco", "outer_momentum"): ("H=2 outer_momentum=0.8", "H=2"),
    ("diloco", "codec"): ("H=2 codec=int8", "H=2 codec=bf16"),
    ("streaming-diloco", "H"): ("H=4 fragments=1", "H=2 fragments=1"),
    ("streaming-diloco", "fragments"): ("H=4 fragments=2", "H=4 fragments=1"),
    ("streaming-diloco", "tau"): ("H=4 fragments=1 tau=2", "H=4 fragments=1"),
    ("streaming-diloco", "alpha"): ("H=4 fragments=1 alpha=0.4", "H=4 fragments=1"),
    ("streaming-diloco", "outer_lr"): ("H=4 fragments=1 outer_lr=0.6", "H=4 fragments=1"),
    ("streaming-diloco", "outer_momentum"): ("H=2 fragments=1 outer_momentum=0", "H=2 fragments=1"),
    ("streaming-diloco", "codec"): ("H=4 fragments=1 codec=int8", "H=4 fragments=1"),
    ("eager-diloco", "H"): ("H=2", "H=3"),
    ("eager-diloco", "outer_lr"): ("H=2 outer_lr=0.6", "H=2"),
    ("eager-diloco", "outer_momentum"): ("H=2 outer_momentum=0.8", "H=2"),
    ("eager-diloco", "codec"): ("H=2 codec=int8", "H=2"),
    ("sparta", "p"): ("p=0.1", "p=0.2"),
    ("sparta", "selector"): ("p=0.1 selector=partition", "p=0.1"),
    ("sparta-diloco", "p"): ("H=2 p=0.1", "H=2 p=0.2"),
    ("sparta-diloco", "selector"): ("H=2 p=0.1 selector=partition", "H=2 p=0.1"),
    ("sparta-diloco", "H"): ("H=2", "H=3"),
    ("sparta-diloco", "outer_lr"): ("H=2 outer_lr=0.6", "H=2"),
    ("sparta-diloco", "outer_momentum"): ("H=2 outer_momentum=0.8", "H=2"),
    ("sparta-diloco", "codec"): ("H=2 codec=int8", "H=2"),
    ("demo", "decay"): ("decay=0.9", ""),
    ("demo", "topk"): ("topk=16", ""),
    ("demo", "chunk"): ("chunk=16", ""),
    ("demo", "sign"): ("sign=no", ""),
    ("powersgd", "rank"): ("rank=2", "rank=3"),
    ("powersgd", "min_compression"): ("min_compression=9", ""),
    ("powersgd", "start_after"): ("start_after=3", ""),
    ("gossip", "graph"): ("graph=exponential", "graph=ring"),
    ("gossip", "push_sum"): ("push_sum=yes", ""),
    ("gossip", "global_every"): ("global_every=2", ""),
}
STAR = [[1, 2, 3], [0], [0], [0]]


@pytest.fixture(scope="module")
def seen(tiny):
    """A function that returns what ranks learn and send with these settings; each is trained once."""

    @cache
    def see(strategy, settings):
        ranks = tiny(
            4, strategy, settings, neighbours=STAR, own_samples=[8, 9, 9, 8], look=collectives
        )
        return [(rank["parameters"], rank["sent"], rank["seen"]) for rank in ranks]

    return see


@pytest.mark.parametrize(("strategy", "option"), EFFECTS)
def test_an_option_has_an_effect(seen, strategy, option):
    """The effect is on the parameters, the bytes sent, or the time at which they are sent."""
    one, other = (seen(strategy, settings) for settings in EFFECTS[strategy, option])
    assert one != other


def collectives(strategy, comm, step):
    return comm.collectives


def test_every_option_is_tried():
    options = {
        (name, field.name)
        for name in STRATEGIES
        for field in dataclasses.fields(strategy_class(name))
    }
    assert options == EFFECTS.keys()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_another_seed_gives_another_run(tiny, strategy):
    assert tiny(2, strategy)[0]["losses"] != tiny(2, strategy, seed=2)[0]["losses"]
