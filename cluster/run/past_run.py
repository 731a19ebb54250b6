"""Reads a run folder again: what was launched, over which links, what its ranks recorded.

Nodes wrote a part of it, and somebody may have sent all of it: what is not as it should be is refused in one line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard, TypeVar

from cluster.accounting.alternatives import Recorded
from cluster.accounting.bounds import Network
from cluster.accounting.collective_stats import read_collectives
from cluster.accounting.collectives import Collective
from cluster.accounting.routes import make_network
from cluster.base.errors import ClusterError, UsageError, shown
from cluster.base.spec import ClusterSpec
from cluster.base.yaml_file import is_file, read_yaml
from cluster.links.link import draw_access
from cluster.links.link_spec import LinkSpec
from cluster.run.placement import RankPlacement, place_ranks
from cluster.run.rank_order import parse_rank_order
from cluster.run.run_folder import last_events
from protocol.link import Link
from protocol.reader import FormatError, read

MOST_BYTES = 1 << 26  # of links.json and contract.json
MOST_MTU = 65_536
HINT = "the folder of a run: runs/<time>-<profile>-<what>"
T = TypeVar("T")


@dataclass(frozen=True)
class PastLaunch:
    """What was launched, whatever became of it.

    Attributes:
        folder: of the run.
        config: run.yml.
        spec: the cluster that it ran on.
        places: of its ranks, in order.
        link_spec: what its links were drawn from; None where they were not shaped.
        links: in force when it began.
    """

    folder: Path
    config: Mapping[str, object]
    spec: ClusterSpec
    places: Sequence[RankPlacement]
    link_spec: LinkSpec | None
    links: Sequence[Link]

    @property
    def nodes(self) -> list[str]:
        """As their ranks follow one another."""
        return list(dict.fromkeys(place.node for place in self.places))

    @property
    def training(self) -> Mapping[str, object]:
        """Its configuration, where it is one of ours."""
        said = self.config.get("training")
        return said if isinstance(said, dict) else {}


@dataclass(frozen=True)
class PastRun(PastLaunch):
    """A run that is over, over links of which something is known.

    Attributes:
        link_spec: what its links were drawn from.
        recorded: what predictions need.
        source: where the figures of its links are from: 'measured' or 'asked'.
    """

    link_spec: LinkSpec
    recorded: Recorded
    source: str

    @property
    def took_s(self) -> float | None:
        """From the first rank's start to the last one's end; None where one did not come so far."""
        return took_s(self.folder, [place.name for place in self.places])


def read_past_launch(folder: Path) -> PastLaunch:
    """A launch of any program, over links that were shaped or not.

    Raises:
        UsageError: it is none, or a file of it is missing or damaged.
    """
    config = _read_config(folder)
    spec, places, links = _spec(config, folder), _places(config, folder), _read_links(folder)
    return PastLaunch(folder, config, spec, places, _link_spec(config, folder, links), links)


def read_past_run(folder: Path) -> PastRun:
    """A run of node.train, or of a program that leaves the same, over links that stayed as they were.

    Raises:
        UsageError: it is none, a file of it is missing or damaged, or nothing can be said of its links.
    """
    past = read_past_launch(folder)
    if past.config.get("schedule"):
        raise UsageError(
            f"{folder}: a schedule changed links or nodes during this run",
            f"a run without --schedule; this one can be launched again: launch -f {folder}",
        )
    config, spec, places, links, link_spec = (
        past.config,
        past.spec,
        past.places,
        past.links,
        past.link_spec,
    )
    if link_spec is None:
        raise UsageError(
            f"{folder}: the links of this run were not shaped", "a run with --profile NAME"
        )
    collectives = _read_collectives(folder, spec, places)
    network = _network(folder, config, spec, places, links, link_spec)
    recorded = Recorded(
        collectives,
        network,
        links,
        past.nodes,
        places[0].local_world_size,
        link_spec.profile.slow_start_after_idle,
        past.training,
    )
    return PastRun(folder, config, spec, places, link_spec, links, recorded, network.source)


def took_s(folder: Path, ranks: Sequence[str]) -> float | None:
    """Seconds from the first rank's start to the last one's end; None where one did not come so far."""
    told = [last_events(folder, rank) for rank in ranks]
    starts = [lines.start.time for lines in told if lines.start]
    ends = [lines.end.time for lines in told if lines.end]
    if not len(starts) == len(ends) == len(told):
        return None
    return float(max(ends) - min(starts))


def same_links(links: Sequence[Link], others: Sequence[Link]) -> bool:
    """Whether they are the same but for what delays and drops on them."""

    def key(some: Sequence[Link]) -> list[Link]:
        return sorted(link._replace(wire="auto") for link in some)

    return key(links) == key(others)


def _read_config(folder: Path) -> Mapping[str, object]:
    if not is_file(folder / "run.yml"):
        raise UsageError(f"{folder} is no run folder: there is no run.yml in it", HINT)
    config = read_yaml(folder / "run.yml", HINT)
    if not isinstance(config, dict):
        raise UsageError(f"{folder / 'run.yml'} is no mapping", HINT)
    return config


def _spec(config: Mapping[str, object], folder: Path) -> ClusterSpec:
    said = config.get("cluster")
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        raise UsageError(f"{folder / 'run.yml'}: cluster is {shown(said)}", HINT)
    size, slot = (number(said, key, folder) for key in ("nodes", "slot"))
    plain = ClusterSpec(said["name"], size, slot)
    image = said.get("image", plain.image)
    return replace(plain, image=image) if isinstance(image, str) else plain


def _places(config: Mapping[str, object], folder: Path) -> list[RankPlacement]:
    """Where its ranks ran; raises as `number` where it is not said."""
    nodes = [node.name for node in _spec(config, folder).nodes]
    said = config.get("rank_order", nodes)
    if not is_words(said):
        raise UsageError(f"{folder / 'run.yml'}: rank_order is {shown(said)}", HINT)
    order = parse_rank_order(",".join(said), nodes)
    return place_ranks(
        order, number(config, "nproc_per_node", folder), essential_of(config, folder)
    )


def _read_collectives(
    folder: Path, spec: ClusterSpec, places: Sequence[RankPlacement]
) -> list[Collective]:
    addresses = spec.addresses([place.node for place in places])
    collectives = read_collectives(folder, [place.name for place in places], addresses)
    if not collectives:
        raise UsageError(
            f"{folder}: its ranks left no record of collectives",
            "a run of node.train with two ranks or more: of other programs nothing is known",
        )
    return collectives


def _network(
    folder: Path,
    config: Mapping[str, object],
    spec: ClusterSpec,
    places: Sequence[RankPlacement],
    links: Sequence[Link],
    link_spec: LinkSpec,
) -> Network:
    """Between its ranks, as measured where it was."""
    nodes, contract = [place.node for place in places], _read_contract(folder)
    access, mtu = _access(link_spec, spec), _mtu(config, folder)
    isolated = link_spec.topology.isolated
    return _undamaged(
        folder / "contract.json",
        lambda: make_network(nodes, links, access, mtu, contract, isolated=isolated),
    )


def number(said: Mapping[str, object], key: str, folder: Path) -> int:
    """A whole number of run.yml.

    Raises:
        UsageError: it is none.
    """
    value = said.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{folder / 'run.yml'}: {key} is {shown(value)}", HINT)
    return value


def essential_of(config: Mapping[str, object], folder: Path) -> list[int] | None:
    """Those without which it could not go on; None: all; raises as `number`."""
    said = config.get("essential_ranks")
    if said is None:
        return None
    if not isinstance(said, list) or not all(isinstance(rank, int) for rank in said):
        raise UsageError(f"{folder / 'run.yml'}: essential_ranks is {shown(said)}", HINT)
    return said


def _link_spec(
    config: Mapping[str, object], folder: Path, links: Sequence[Link]
) -> LinkSpec | None:
    """What its links were drawn from; None where there are none."""
    if not links:
        return None
    shaping = _shaping(config, folder)
    return _undamaged(folder / "run.yml", lambda: LinkSpec.from_origin(_origin(shaping)))


def _shaping(config: Mapping[str, object], folder: Path) -> Mapping[str, object]:
    said = config.get("shaping")
    if not isinstance(said, dict):
        path = folder / "run.yml"
        raise UsageError(f"{path} is not what a run leaves there: shaping is {shown(said)}", HINT)
    return said


def _origin(shaping: Mapping[str, object]) -> Mapping[str, object]:
    return {key: shaping[key] for key in ("profile", "topology", "seed", "wire")}


def _mtu(config: Mapping[str, object], folder: Path) -> int:
    mtu = number(_shaping(config, folder), "mtu", folder)
    if not 0 < mtu <= MOST_MTU:
        raise UsageError(f"{folder / 'run.yml'}: mtu is {mtu}", f"1 to {MOST_MTU}")
    return mtu


def _access(link_spec: LinkSpec, spec: ClusterSpec) -> dict[str, dict[str, float]]:
    """What nodes could send and receive in all: drawn again, as the run folder has only where from."""
    drawn = {
        node.name: draw_access(link_spec.profile, link_spec.topology, node, link_spec.seed)
        for node in spec.nodes
    }
    return {
        kind: {name: rate for name, own in drawn.items() if (rate := own[f"{kind}_mbyte_s"])}
        for kind in ("uplink", "downlink")
    }


def _read_links(folder: Path) -> tuple[Link, ...]:
    path = folder / "links.json"
    try:
        return tuple(read(list[Link], _read_json(path)))
    except FormatError as error:
        raise UsageError(f"{path} is not what a run leaves there: {error}", HINT) from error


def is_words(value: object) -> TypeGuard[list[str]]:
    """Whether it is a list of words."""
    return isinstance(value, list) and all(
        isinstance(word, str) and "\0" not in word for word in value
    )


def _read_contract(folder: Path) -> Mapping[str, object] | None:
    """contract.json; None where the links were not measured."""
    path = folder / "contract.json"
    if not is_file(path):
        return None
    document = _read_json(path)
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not what a run leaves there", HINT)
    return document


def _read_json(path: Path) -> object:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than any run leaves there", HINT)
        document: object = json.loads(path.read_text(encoding="utf-8"))
        return document
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", HINT) from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no JSON: cut short, or damaged", HINT) from None


def _undamaged(path: Path, make: Callable[[], T]) -> T:
    """What a file's values make, or one line that says that they are none."""
    try:
        return make()
    except UsageError:
        raise
    except (ArithmeticError, AttributeError, ClusterError, LookupError, TypeError, ValueError):
        raise UsageError(f"{path} is not what a run leaves there", HINT) from None
