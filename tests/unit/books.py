"""Made-up runs: the lines that their ranks would have written."""

from cluster.accounting.better_link import with_rate
from cluster.accounting.bounds import Network, RankRoute
from cluster.accounting.collectives import make_part, put_together
from protocol.collectives import read_collective
from protocol.metrics import End, Start, read_line


def line(kind, to, *, at=0.0, done_s=1.0, waited_s=None, size=None, sources=None, **values):
    """One line of a rank's collectives.jsonl."""
    return {
        "time": at,
        "step": 1,
        "kind": kind,
        "purpose": "train",
        "bytes": sum(to.values()) if size is None else size,
        "sent_bytes": sum(to.values()),
        "hops": 1,
        "messages": 1,
        "to": {str(peer): count for peer, count in to.items()},
        "done_s": done_s,
        "waited_s": done_s if waited_s is None else waited_s,
        "hidden": False,
        **({"sources": sources} if sources is not None else {}),
        **values,
    }


def part(rank, *args, **values):
    return make_part(rank, read_collective(line(*args, **values)))


def end_line(**values) -> End:
    """A rank's last line; its sums may lack `to` and other fields."""
    rest = {"kind": "all_reduce", "purpose": "train", "bytes": 1, "count": 1, "waited_s": 0.0}
    sums = [{**rest, "to": {}, **one} for one in values.pop("collectives", [])]
    return read_line({"event": "end", "rank": 0, "time": 1.0, "collectives": sums, **values})


def start_line(**values) -> Start:
    """A rank's first line."""
    return read_line({"event": "start", "rank": 0, "time": 1.0, **values})


def ring(world_size, size, *, entered=None, ended=None, messages=None):
    """The parts of a ring all-reduce."""
    sent = round(2 * (world_size - 1) / world_size * size)
    entered = entered or [0.0] * world_size
    return [
        part(
            rank,
            "all_reduce",
            {(rank - 1) % world_size: sent},
            at=entered[rank],
            done_s=(ended or 1.0) - entered[rank],
            size=size,
            messages=messages or 4 * (world_size - 1),
        )
        for rank in range(world_size)
    ]


def exchanges(neighbours, rounds=100):
    """What ranks make that each send 100 kB to their neighbours in every round, which takes 0.5 s."""

    def of_round(number, rank, peers):
        to, took = dict.fromkeys(peers, 100_000), {"at": float(number), "done_s": 0.5}
        return part(rank, "exchange", to, sources=peers, step=number, **took)

    return put_together(
        [
            [of_round(number, rank, peers) for number in range(rounds)]
            for rank, peers in enumerate(neighbours)
        ]
    )


def ring_links(nodes, *, slow):
    """Links both ways between neighbours on a ring, 5 MB/s and 20 ms; one of them has a tenth of that rate."""
    pairs = [pair for n in range(nodes) for pair in ((n, (n - 1) % nodes), ((n - 1) % nodes, n))]
    names = {pair: f"node{pair[0] + 1}->node{pair[1] + 1}" for pair in pairs}
    routes = {pair: RankRoute(0.02, 5e6, (name,)) for pair, name in names.items()}
    rates, delays = dict.fromkeys(names.values(), 5e6), dict.fromkeys(names.values(), 0.02)
    return with_rate(Network(routes, rates, "asked", delays), slow, 5e5)


def mesh(world_size, *, delay_s=0.1, byte_s=1e6):
    """A network with a link for every pair of ranks, all alike."""
    pairs = [(a, b) for a in range(world_size) for b in range(world_size) if a != b]
    routes = {(a, b): RankRoute(delay_s, byte_s, (f"{a}->{b}",)) for a, b in pairs}
    return Network(routes, {f"{a}->{b}": byte_s for a, b in pairs}, "asked")
