"""Placement: which rank runs on which node, with which environment. Pure."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cluster.base.errors import UsageError
from protocol import rank_variables as variables
from protocol.link import Link
from protocol.places import error_file, rank_file
from protocol.ports import RENDEZVOUS_PORT

MOST_RANKS = 64  # on a node: each has an SSH session of its own; sshd allows 100 (node/sshd_config)
MAX_RESTARTS = 3  # the default, of each rank that is not essential
PLACEHOLDER = re.compile(r"\{(rank|local_rank|world_size|node|master_addr|master_port)\}")


@dataclass(frozen=True)
class RankPlacement:
    """Where one rank runs.

    Attributes:
        name: name of the rank, for prefixes and files: its node's, or node1-0, node1-1 … if a node has several.
        is_essential: whether the run cannot go on without it, nor with a restarted process in its place.
    """

    name: str
    node: str
    rank: int
    local_rank: int = 0
    local_world_size: int = 1
    is_essential: bool = True

    def file(self, name: str) -> str:
        """Return node.train's name for a file of this rank; the ranks of a node share a folder."""
        return rank_file(name, self.rank, self.local_world_size)


def place_ranks(
    nodes: Sequence[str], nproc_per_node: int = 1, essential: Collection[int] | None = None
) -> list[RankPlacement]:
    """Return the placements of all ranks, in rank order; the ranks of a node are consecutive, as under torchrun.

    Args:
        nodes: names of the nodes.
        nproc_per_node: number of ranks on each node.
        essential: the ranks without which the run cannot go on; None: all.

    Raises:
        UsageError: a node cannot have that many ranks, or an essential rank does not exist.
    """
    if not 1 <= nproc_per_node <= MOST_RANKS:
        raise UsageError(f"{nproc_per_node} ranks a node asked for", f"1 to {MOST_RANKS}")
    size = len(nodes) * nproc_per_node
    essential = range(size) if essential is None else essential
    if strange := sorted(set(essential) - set(range(size))):
        raise UsageError(
            f"rank {strange[0]} is to be essential, and there is none", f"0 to {size - 1}"
        )
    return [
        RankPlacement(
            name=node if nproc_per_node == 1 else f"{node}-{local_rank}",
            node=node,
            rank=number * nproc_per_node + local_rank,
            local_rank=local_rank,
            local_world_size=nproc_per_node,
            is_essential=number * nproc_per_node + local_rank in essential,
        )
        for number, node in enumerate(nodes)
        for local_rank in range(nproc_per_node)
    ]


def resolve_max_restarts(asked: int | None, places: Sequence[RankPlacement]) -> int:
    """Return how often each rank that is not essential is restarted after a failure.

    Args:
        asked: the user's value; None: the default.
        places: the placements of all ranks.

    Raises:
        UsageError: `asked` is negative, or positive although all ranks are essential.
    """
    if asked is not None and asked < 0:
        raise UsageError(f"--max-restarts {asked}", "0 or more")
    if not all(place.is_essential for place in places):
        return MAX_RESTARTS if asked is None else asked
    if asked:
        raise UsageError(
            "--max-restarts: all ranks of this run are essential: a restarted rank could not join its process group",
            "--essential-ranks 0, with a program of your own that goes on without the others",
        )
    return 0


def rank_environment(
    place: RankPlacement,
    places: Sequence[RankPlacement],
    links: Sequence[Link],
    run_id: str,
    run_dir: str,
    timeout_s: float,
    slowest_mbyte_s: float | None = None,
    *,
    silence_s: float,
    isolated: bool = False,
    max_restarts: int = 0,
    shared_dir: str = "",
) -> dict[str, str]:
    """Return the environment of one rank: torchrun's variables, and ours (protocol/rank_variables.py)."""
    size, each = len(places), place.local_world_size
    environ = {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(each),
        "GROUP_RANK": str(place.rank // each),
        "GROUP_WORLD_SIZE": str(size // each),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(place.rank),
        "ROLE_WORLD_SIZE": str(size),
        "MASTER_ADDR": places[0].node,
        "MASTER_PORT": str(RENDEZVOUS_PORT),
        variables.RESTART_COUNT: "0",
        variables.MAX_RESTARTS: "0" if place.is_essential else str(max_restarts),
        variables.RUN_ID: run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        variables.ERROR_FILE: f"{run_dir}/{error_file(place.rank)}",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",  # prints the stacks of a rank that crashes or hangs: node/supervisor/stacks.py
        variables.RUN_DIR: run_dir,
        variables.TIMEOUT_S: f"{timeout_s:.0f}",
        variables.SILENCE_S: f"{silence_s:.0f}",
        variables.NEIGHBOURS: ",".join(map(str, _neighbours(place, places, links))),
    }
    if slowest_mbyte_s is not None:
        environ[variables.SLOWEST_MBYTE_S] = f"{slowest_mbyte_s:g}"
    if shared_dir:
        environ[variables.SHARED_DIR] = shared_dir
    if each > 1:
        environ["OMP_NUM_THREADS"] = "1"  # like torchrun: by default each rank uses all processors
    # By default gloo first connects every pair of ranks, which fails between isolated nodes.
    return environ | {variables.GLOO_LAZY_INIT: "1"} if isolated else environ


def fill_arguments(
    argv: Sequence[str], place: RankPlacement, places: Sequence[RankPlacement]
) -> list[str]:
    """Return a program's arguments for one rank, with {rank}, {node} … replaced; other braces stay as they are."""
    values = {
        "{rank}": str(place.rank),
        "{local_rank}": str(place.local_rank),
        "{world_size}": str(len(places)),
        "{node}": place.node,
        "{master_addr}": places[0].node,
        "{master_port}": str(RENDEZVOUS_PORT),
    }
    return [PLACEHOLDER.sub(lambda found: values[found[0]], word) for word in argv]


def _neighbours(
    place: RankPlacement, places: Sequence[RankPlacement], links: Sequence[Link]
) -> list[int]:
    """Return the ranks on nodes to which this rank's node has a link, and on its own; none if unshaped."""
    near = {link.dst for link in links if link.src == place.node}
    near |= {place.node} if near else set()
    return [other.rank for other in places if other.node in near and other != place]
