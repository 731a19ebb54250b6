"""Placement: which rank runs on which node, with which environment. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.base.errors import UsageError
from cluster.links.link import Link

MASTER_PORT = 29500
MOST_RANKS = 64  # of a node: each has a session of its own, and sshd allows 100 (node/sshd_config)


@dataclass(frozen=True)
class RankPlacement:
    """Where one rank runs.

    Attributes:
        name: of the rank, for prefixes and files: its node's, or node1-0, node1-1 … where a node has several.
    """

    name: str
    node: str
    rank: int
    local_rank: int = 0
    local_world_size: int = 1

    def file(self, name: str) -> str:
        """What node.train calls a file of this rank's, for the ranks of a node share a folder."""
        stem, dot, end = name.rpartition(".")
        return name if self.local_world_size == 1 else f"{stem}-rank{self.rank}{dot}{end}"


def place_ranks(nodes: Sequence[str], nproc_per_node: int = 1) -> list[RankPlacement]:
    """The places of all ranks, by rank: those of a node follow one another, as under torchrun.

    Raises:
        UsageError: a node cannot have so many.
    """
    if not 1 <= nproc_per_node <= MOST_RANKS:
        raise UsageError(f"{nproc_per_node} ranks a node asked for", f"1 to {MOST_RANKS}")
    return [
        RankPlacement(
            name=node if nproc_per_node == 1 else f"{node}-{local_rank}",
            node=node,
            rank=number * nproc_per_node + local_rank,
            local_rank=local_rank,
            local_world_size=nproc_per_node,
        )
        for number, node in enumerate(nodes)
        for local_rank in range(nproc_per_node)
    ]


def rank_environment(
    place: RankPlacement,
    places: Sequence[RankPlacement],
    links: Sequence[Link],
    run_id: str,
    run_dir: str,
    timeout_s: float,
    slowest_mbyte_s: float | None = None,
    *,
    isolated: bool = False,
) -> dict[str, str]:
    """Torchrun's contract for one rank, and ours: docs/formats.md."""
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
        "MASTER_PORT": str(MASTER_PORT),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": f"{run_dir}/error-rank{place.rank}.json",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "PYTHONUNBUFFERED": "1",
        "GRADWIRE_RUN_DIR": run_dir,
        "GRADWIRE_TIMEOUT_S": f"{timeout_s:.0f}",
        "GRADWIRE_NEIGHBOURS": ",".join(map(str, _neighbours(place, places, links))),
    }
    if slowest_mbyte_s is not None:
        environ["GRADWIRE_SLOWEST_MBYTE_S"] = f"{slowest_mbyte_s:g}"
    if each > 1:
        environ["OMP_NUM_THREADS"] = "1"  # as torchrun: else each takes all processors
    # Else gloo connects every rank with every other before it does anything.
    return environ | {"TORCH_GLOO_LAZY_INIT": "1"} if isolated else environ


def _neighbours(
    place: RankPlacement, places: Sequence[RankPlacement], links: Sequence[Link]
) -> list[int]:
    """The ranks on nodes to which this one's has a link, and the others on its own; none where nothing is shaped."""
    near = {link.dst for link in links if link.src == place.node}
    near |= {place.node} if near else set()
    return [other.rank for other in places if other.node in near and other != place]
