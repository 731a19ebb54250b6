"""Reads a run folder: what was launched, over which links, and what its ranks recorded.

Nodes wrote part of the folder, and all of it may come from elsewhere, so malformed content is refused with a one-line
error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard, TypeVar

from cluster.accounting.alternatives import Recorded
from cluster.accounting.bounds import Network
from cluster.accounting.collective_stats import read_collectives
from cluster.accounting.collectives import Collective
from cluster.accounting.other_links import OtherLinks
from cluster.accounting.routes import make_network
from cluster.accounting.tcp_timing import restarts_after_idle
from cluster.base.errors import ClusterError, UsageError, shown
from cluster.base.spec import ClusterSpec
from cluster.base.yaml_file import is_file, read_yaml
from cluster.links.link import draw_access
from cluster.links.link_spec import LinkSpec
from cluster.links.profiles import Profile
from cluster.run.rank_order import parse_rank_order
from cluster.run.rank_placement import RankPlacement, place_ranks
from cluster.run.run_folder import last_events
from protocol.link import Link
from protocol.reader import FormatError, read

MOST_BYTES = 1 << 26  # of links.json, contract.json and summary.json
MOST_MTU = 65_536
HINT = "name a complete run folder: runs/<time>-<profile>-<what>"
T = TypeVar("T")


@dataclass(frozen=True)
class PastLaunch:
    """An earlier launch, whether or not it succeeded.

    Attributes:
        folder: the run folder.
        config: the content of run.yml.
        spec: the cluster that it ran on.
        places: the placements of its ranks, in order.
        link_spec: what its links were drawn from; None if they were not shaped.
        links: the links in force when it began.
    """

    folder: Path
    config: Mapping[str, object]
    spec: ClusterSpec
    places: Sequence[RankPlacement]
    link_spec: LinkSpec | None
    links: Sequence[Link]

    @property
    def nodes(self) -> list[str]:
        """The nodes in the order of their ranks."""
        return list(dict.fromkeys(place.node for place in self.places))

    @property
    def training(self) -> Mapping[str, object]:
        """The configuration of node.train; empty for other programs."""
        said = self.config.get("training")
        return said if isinstance(said, dict) else {}


@dataclass(frozen=True)
class PastRun(PastLaunch):
    """A run that has ended, over links with known figures.

    Attributes:
        link_spec: what its links were drawn from.
        recorded: the input of predictions.
        source: where the figures of its links come from: 'measured' or 'asked'.
    """

    link_spec: LinkSpec
    recorded: Recorded
    source: str

    @property
    def took_s(self) -> float | None:
        """Seconds from the first rank's start to the last one's end; None if a rank did not get that far."""
        return took_s(self.folder, [place.name for place in self.places])


def read_past_launch(folder: Path) -> PastLaunch:
    """Read a launch of any program, over shaped or unshaped links.

    Raises:
        UsageError: the folder is not a run folder, or a file is missing or damaged.
    """
    config = _read_config(folder)
    spec, places, links = _spec(config, folder), _places(config, folder), _read_links(folder)
    return PastLaunch(folder, config, spec, places, _link_spec(config, folder, links), links)


def read_past_run(folder: Path) -> PastRun:
    """Read a run of node.train, or of a program with the same records, over links that stayed as they were.

    Raises:
        UsageError: it is no such run, a file is missing or damaged, or its links were not shaped, changed or lost.
    """
    past = read_past_launch(folder)
    _refuse_changed_links(past)
    config, spec, places, links, link_spec = (
        past.config,
        past.spec,
        past.places,
        past.links,
        past.link_spec,
    )
    if link_spec is None:
        raise UsageError(
            f"{folder}: the links of this run were not shaped", "name a run with --profile NAME"
        )
    collectives = _read_collectives(folder, spec, places)
    contract = _read_document(folder / "contract.json")
    network = _undamaged(
        folder / "contract.json", lambda: _network(past, link_spec, links, contract)
    )
    tcp = str(_shaping(config, folder).get("tcp"))
    recorded = Recorded(
        collectives,
        network,
        links,
        past.nodes,
        places[0].local_world_size,
        restarts_after_idle(tcp, is_on=link_spec.profile.slow_start_after_idle),
        past.training,
    )
    return PastRun(folder, config, spec, places, link_spec, links, recorded, network.source)


def links_by(run: PastRun, profile: Profile) -> OtherLinks:
    """Return the links that this run would have had by another profile, as asked for: same topology, seed and wire.

    Raises:
        UsageError: the run's topology does not fit this profile.
    """
    spec, nodes = replace(run.link_spec, profile=profile), run.spec.nodes
    network = _network(run, spec, links := spec.links(nodes))
    slow_start = restarts_after_idle(profile.tcp, is_on=profile.slow_start_after_idle)
    return OtherLinks(network, slow_start, any(link.is_rough for link in links))


@contextmanager
def consistent(run: PastRun) -> Iterator[None]:
    """Turn errors of a prediction into a line for the user: types of a record are checked, its values may be anything.

    Raises:
        UsageError: the run's records are inconsistent.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{run.folder}: the records of its ranks are inconsistent ({error!r})",
            "name a run whose records are unchanged",
        ) from error


def took_s(folder: Path, ranks: Sequence[str]) -> float | None:
    """Return the seconds from the first rank's start to the last one's end; None if a rank did not get that far."""
    told = [last_events(folder, rank) for rank in ranks]
    starts = [lines.start.time for lines in told if lines.start]
    ends = [lines.end.time for lines in told if lines.end]
    if not len(starts) == len(ends) == len(told):
        return None
    return float(max(ends) - min(starts))


def same_links(links: Sequence[Link], others: Sequence[Link]) -> bool:
    """Return whether two sets of links are the same, apart from their wires."""

    def key(some: Sequence[Link]) -> list[Link]:
        return sorted(link._replace(wire="auto") for link in some)

    return key(links) == key(others)


def _refuse_changed_links(past: PastLaunch) -> None:
    """Refuse a run for whose later part the figures of its links are not known.

    Raises:
        UsageError: a schedule, another command or the program itself changed them, or they were lost.
    """
    folder = past.folder
    if past.config.get("schedule"):
        raise UsageError(
            f"{folder}: a schedule changed links or nodes during this run",
            f"name a run without --schedule, or launch this one again: python -m cluster.launch -f {folder}",
        )
    summary = _read_document(folder / "summary.json") or {}
    again = f"launch it again: python -m cluster.launch -f {folder}"
    if changed := summary.get("links_changed"):
        raise UsageError(f"{folder}: its links changed while it ran: {shown(changed)}", again)
    if lost := summary.get("links_lost"):
        raise UsageError(
            f"{folder}: its links are not known to have lasted until it ended: {shown(lost)}", again
        )


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
            f"{folder}: its ranks left no record of collectives; only node.train with two ranks or more does",
            "name a run of node.train with two ranks or more",
        )
    return collectives


def _network(
    run: PastLaunch,
    link_spec: LinkSpec,
    links: Sequence[Link],
    contract: Mapping[str, object] | None = None,
) -> Network:
    """Return the network of these links between a run's ranks, with figures as measured if there is a contract."""
    nodes = [place.node for place in run.places]
    access, mtu = _access(link_spec, run.spec), _mtu(run.config, run.folder)
    return make_network(nodes, links, access, mtu, contract, isolated=link_spec.topology.isolated)


def number(said: Mapping[str, object], key: str, folder: Path) -> int:
    """Return a whole number from run.yml.

    Raises:
        UsageError: it is not one.
    """
    value = said.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{folder / 'run.yml'}: {key} is {shown(value)}", HINT)
    return value


def essential_of(config: Mapping[str, object], folder: Path) -> list[int] | None:
    """Return the essential ranks of a run; None: all. Raises like `number`."""
    said = config.get("essential_ranks")
    if said is None:
        return None
    if not isinstance(said, list) or not all(isinstance(rank, int) for rank in said):
        raise UsageError(f"{folder / 'run.yml'}: essential_ranks is {shown(said)}", HINT)
    return said


def _link_spec(
    config: Mapping[str, object], folder: Path, links: Sequence[Link]
) -> LinkSpec | None:
    if not links:
        return None
    shaping = _shaping(config, folder)
    return _undamaged(folder / "run.yml", lambda: LinkSpec.from_origin(_origin(shaping)))


def _shaping(config: Mapping[str, object], folder: Path) -> Mapping[str, object]:
    said = config.get("shaping")
    if not isinstance(said, dict):
        path = folder / "run.yml"
        raise UsageError(f"{path} is damaged: shaping is {shown(said)}", HINT)
    return said


def _origin(shaping: Mapping[str, object]) -> Mapping[str, object]:
    return {key: shaping[key] for key in ("profile", "topology", "seed", "wire")}


def _mtu(config: Mapping[str, object], folder: Path) -> int:
    mtu = number(_shaping(config, folder), "mtu", folder)
    if not 0 < mtu <= MOST_MTU:
        raise UsageError(f"{folder / 'run.yml'}: mtu is {mtu}", f"1 to {MOST_MTU}")
    return mtu


def _access(link_spec: LinkSpec, spec: ClusterSpec) -> dict[str, dict[str, float]]:
    """Return uplinks and downlinks by node; drawn again, as the run folder only has what they were drawn from."""
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
        raise UsageError(f"{path} is damaged: {error}", HINT) from error


def is_words(value: object) -> TypeGuard[list[str]]:
    """Return whether a value is a list of strings without null characters."""
    return isinstance(value, list) and all(
        isinstance(word, str) and "\0" not in word for word in value
    )


def _read_document(path: Path) -> Mapping[str, object] | None:
    """Return contract.json, or summary.json; None if there is none: links were not measured, or the run was killed."""
    if not is_file(path):
        return None
    document = _read_json(path)
    if not isinstance(document, dict):
        raise UsageError(f"{path} is damaged: its content is not what a run writes", HINT)
    return document


def _read_json(path: Path) -> object:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than any run writes it", HINT)
        document: object = json.loads(path.read_text(encoding="utf-8"))
        return document
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", HINT) from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no JSON: cut short, or damaged", HINT) from None


def _undamaged(path: Path, make: Callable[[], T]) -> T:
    """Return the result of `make`; turn errors due to a damaged file into a one-line UsageError."""
    try:
        return make()
    except UsageError:
        raise
    except (ArithmeticError, AttributeError, ClusterError, LookupError, TypeError, ValueError):
        raise UsageError(f"{path} is damaged: its content is not what a run writes", HINT) from None
