"""Who makes, joins and leaves a swarm: never one that was there, and never while somebody else needs it."""

from dataclasses import replace

import pytest

from cluster.base.errors import UsageError
from cluster.hosts.swarm_plan import IN, Joining, Member, plan_joining, plan_leaving

A, B, C = Member("a"), Member("b"), Member("c")
IDS = frozenset({"a", "b"})
MANAGER = Member("a", IN, "a", is_manager=True, is_ours=True, ready=IDS, has_our_bridge=True)
WORKER = Member("b", IN, "b", has_our_bridge=True)
NETWORK = "gradwire_data"


def theirs(*members):
    """The same, of a swarm that we have not made."""
    return [replace(member, is_ours=False, has_our_bridge=False) for member in members]


@pytest.mark.parametrize(
    ("members", "plan"),
    [
        ([A, B, C], Joining("a", makes=True, joins=("b", "c"))),
        ([MANAGER, WORKER], Joining("a", makes=False, joins=())),
        ([WORKER, MANAGER], Joining("a", makes=False, joins=())),
        ([MANAGER, WORKER, C], Joining("a", makes=False, joins=("c",))),
        (theirs(MANAGER, WORKER), Joining("a", makes=False, joins=())),
        # A host that comes back after the others have gone on, or have gone.
        ([A, WORKER], Joining("a", makes=True, joins=("b",), leaves=("b",))),
        (
            [A, replace(WORKER, state="pending", node_id="")],
            Joining("a", makes=True, joins=("b",), leaves=("b",)),
        ),
        (
            [replace(MANAGER, ready=frozenset({"a"})), WORKER],
            Joining("a", makes=False, joins=("b",), leaves=("b",)),
        ),
    ],
)
def test_hosts_become_one_swarm(members, plan):
    assert plan_joining(members) == plan


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([replace(A, state="pending"), B], "host a: the swarm that it is in is in state 'pending'"),
        (
            theirs(WORKER, replace(WORKER, host="c", node_id="c")),
            "host b, c is in a swarm that none of the hosts manages",
        ),
        ([*theirs(MANAGER), replace(C, state=IN, node_id="c")], "host c is in another swarm"),
        ([*theirs(MANAGER), C], "host c is not in the swarm of host a, which is not ours"),
        # It has a network of another cluster, so it is not ours to move.
        ([A, replace(WORKER, overlays=("x_data",))], "host b is in a swarm that none"),
    ],
)
def test_a_swarm_that_is_not_ours_to_change_is_named(members, words):
    with pytest.raises(UsageError, match=words):
        plan_joining(members)


@pytest.mark.parametrize(
    ("members", "leaving"),
    [
        ([MANAGER, WORKER], ["b", "a"]),
        ([A, B], []),
        (theirs(MANAGER, WORKER), []),
        # What the cluster itself still has there, because of a host that is lost, keeps nobody.
        ([replace(MANAGER, overlays=(NETWORK,)), replace(WORKER, overlays=(NETWORK,))], ["b", "a"]),
        ([replace(MANAGER, overlays=("x_data",)), WORKER], ["b"]),
        (
            [replace(MANAGER, overlays=("x_data",)), replace(WORKER, overlays=("x_data",))],
            [],
        ),
        # A machine that is not in the hosts file is in it: somebody has had it join.
        ([replace(MANAGER, ready=IDS | {"z"}), WORKER], ["b"]),
        # The manager is lost.
        ([WORKER], ["b"]),
        ([replace(WORKER, state="pending")], ["b"]),
        ([replace(WORKER, has_our_bridge=False)], []),
        # The worker is.
        ([replace(MANAGER, ready=frozenset({"a"}))], ["a"]),
    ],
)
def test_only_ours_is_left_and_by_those_that_nothing_else_needs(members, leaving):
    assert plan_leaving(members, NETWORK) == leaving
