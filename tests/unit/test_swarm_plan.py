"""Which hosts create, join and leave a swarm: never a swarm that was there before, nor one that is still needed."""

from dataclasses import replace

import pytest

from cluster.base.errors import UsageError
from cluster.hosts.swarm_plan import (
    IN,
    Joining,
    Member,
    is_settled,
    lost_may_leave,
    plan_joining,
    plan_leaving,
    stranded,
)

A, B, C = Member("a"), Member("b"), Member("c")
IDS = frozenset({"a", "b"})
MANAGER = Member("a", IN, "a", is_manager=True, is_ours=True, ready=IDS, has_our_mark=True)
WORKER = Member("b", IN, "b", has_our_mark=True)
NETWORK = "gradwire_data"


def theirs(*members):
    """Return the members as those of a swarm that we did not make."""
    return [replace(member, is_ours=False, has_our_mark=False) for member in members]


@pytest.mark.parametrize(
    ("members", "plan"),
    [
        ([A, B, C], Joining("a", makes=True, joins=("b", "c"))),
        ([MANAGER, WORKER], Joining("a", makes=False, joins=())),
        ([WORKER, MANAGER], Joining("a", makes=False, joins=())),
        ([MANAGER, WORKER, C], Joining("a", makes=False, joins=("c",))),
        (theirs(MANAGER, WORKER), Joining("a", makes=False, joins=())),
        # A host that comes back after the others continued without it, or left.
        ([A, WORKER], Joining("a", makes=True, joins=("b",), leaves=("b",))),
        # Its nodes are still there, on the cluster's own network.
        (
            [A, replace(WORKER, overlays=(NETWORK,))],
            Joining("a", makes=True, joins=("b",), leaves=("b",)),
        ),
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
    assert plan_joining(members, NETWORK) == plan


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([replace(A, state="pending"), B], "host a: its swarm is in state 'pending'"),
        (
            theirs(WORKER, replace(WORKER, host="c", node_id="c")),
            "host b, c is in a swarm that none of the hosts manages",
        ),
        ([*theirs(MANAGER), replace(C, state=IN, node_id="c")], "host c is in another swarm"),
        ([*theirs(MANAGER), C], "host c is not in the swarm of host a, which is not ours"),
        # It is only late, as a worker of a busy host: its nodes may be in use.
        (
            [
                replace(MANAGER, ready=frozenset({"a"}), listed=IDS),
                replace(WORKER, overlays=(NETWORK,)),
            ],
            "host b is in another swarm than host a, or lost to it",
        ),
        # It has a network of another cluster, so we may not move it.
        ([A, replace(WORKER, overlays=("x_data",))], "host b is in a swarm that none"),
    ],
)
def test_a_swarm_that_is_not_ours_to_change_is_named(members, words):
    with pytest.raises(UsageError, match=words):
        plan_joining(members, NETWORK)


@pytest.mark.parametrize(
    ("members", "leaving"),
    [
        ([MANAGER, WORKER], ["b", "a"]),
        ([A, B], []),
        (theirs(MANAGER, WORKER), []),
        # The cluster's own network, still there because of a lost host, does not stop any host from leaving.
        ([replace(MANAGER, overlays=(NETWORK,)), replace(WORKER, overlays=(NETWORK,))], ["b", "a"]),
        ([replace(MANAGER, overlays=("x_data",)), WORKER], ["b"]),
        (
            [replace(MANAGER, overlays=("x_data",)), replace(WORKER, overlays=("x_data",))],
            [],
        ),
        # A machine that is not in the hosts file is in the swarm: somebody made it join.
        ([replace(MANAGER, ready=IDS | {"z"}), WORKER], ["b"]),
        # The manager is lost.
        ([WORKER], ["b"]),
        ([replace(WORKER, state="pending")], ["b"]),
        ([replace(WORKER, has_our_mark=False)], []),
        # The worker is lost.
        ([replace(MANAGER, ready=frozenset({"a"}))], ["a"]),
    ],
)
def test_only_ours_is_left_and_by_those_that_nothing_else_needs(members, leaving):
    assert plan_leaving(members, NETWORK) == leaving


@pytest.mark.parametrize(
    ("members", "settled"),
    [
        ([A, B], True),
        ([MANAGER, WORKER], True),
        ([A, WORKER], True),  # its manager has left: no host will register any more
        # The manager was restarted and has not heard from its worker yet.
        ([replace(MANAGER, ready=frozenset({"a"})), WORKER], False),
        ([replace(MANAGER, ready=frozenset()), WORKER], False),
        ([replace(A, state="pending"), WORKER], False),
        ([MANAGER, replace(WORKER, state="pending", node_id="")], False),
        ([MANAGER, replace(WORKER, state="locked", node_id="")], True),  # until somebody unlocks it
    ],
)
def test_a_swarm_in_which_hosts_are_still_to_register_is_looked_at_again(members, settled):
    assert is_settled(members) is settled


@pytest.mark.parametrize(
    ("members", "may"),
    [
        ([replace(MANAGER, ready=frozenset({"a"}))], True),
        ([replace(MANAGER, overlays=(NETWORK,))], True),
        (theirs(MANAGER), False),
        ([replace(MANAGER, overlays=(NETWORK, "x_data"))], False),
        # The manager is lost: our mark shows which hosts we made join.
        ([WORKER], True),
        (theirs(WORKER), False),
        ([replace(WORKER, overlays=("x_data",))], False),
        ([A, B], False),
    ],
)
def test_a_lost_host_is_told_to_leave_our_swarm_only_where_nothing_else_needs_it(members, may):
    assert lost_may_leave(members, NETWORK) is may


def test_hosts_that_stay_in_a_swarm_without_its_manager_are_said():
    assert stranded([WORKER, A, replace(C, state="pending")]) == ["b", "c"]
    assert stranded([MANAGER, WORKER]) == []
