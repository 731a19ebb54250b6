"""The rank's environment: torchrun's variables, and the launcher's."""

from collections.abc import Mapping
from dataclasses import dataclass

from node.base.options import OptionError, check_bounds, parse_environ, parse_value
from protocol.ports import RENDEZVOUS_PORT
from protocol.rank_variables import NEIGHBOURS, RESTART_COUNT

PORTS = {"at least": 1, "at most": 65535}


@dataclass(frozen=True)
class RankEnv:
    """Who this process is, in torchrun's terms.

    Attributes:
        neighbours: the ranks to which this rank's node has a link of its own; empty: all.
        restarts: how often this rank was restarted.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = RENDEZVOUS_PORT
    neighbours: tuple[int, ...] = ()
    restarts: int = 0


def read_rank_env(environ: Mapping[str, str]) -> RankEnv:
    """Read torchrun's environment; without one, this process is alone.

    Raises:
        OptionError: it is incomplete, or contradicts itself.
    """
    wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [key for key in wanted if key not in environ]
    if missing and not ("RANK" in missing and "WORLD_SIZE" in missing):
        raise OptionError(f"torchrun's environment is not complete: no {', '.join(missing)}")
    if missing:
        return RankEnv()
    ranks = RankEnv(
        rank=parse_environ(environ, "RANK", 0),
        world_size=parse_environ(environ, "WORLD_SIZE", 1),
        local_rank=parse_environ(environ, "LOCAL_RANK", 0),
        local_world_size=parse_environ(environ, "LOCAL_WORLD_SIZE", 1),
        master_addr=environ["MASTER_ADDR"],
        master_port=parse_environ(environ, "MASTER_PORT", RENDEZVOUS_PORT),
        neighbours=_read_neighbours(environ),
        restarts=parse_environ(environ, RESTART_COUNT, 0),
    )
    if not 0 <= ranks.rank < ranks.world_size:
        raise OptionError(f"RANK={ranks.rank} with WORLD_SIZE={ranks.world_size}: no such rank")
    check_bounds("MASTER_PORT", ranks.master_port, PORTS)
    for rank in ranks.neighbours:
        if rank not in range(ranks.world_size):
            raise OptionError(f"{NEIGHBOURS}: no rank {rank}")
    return ranks


def _read_neighbours(environ: Mapping[str, str]) -> tuple[int, ...]:
    words = environ.get(NEIGHBOURS, "").split(",")
    return tuple(parse_value(NEIGHBOURS, word, int) for word in words if word)
