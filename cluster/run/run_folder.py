"""The run folder: what one launch was asked to do, what it measured, and its results.

runs/20261121-101500-mobile-fedavg/
run.yml          the resolved configuration, versions, the command
clocks.json      how far the clocks of other hosts were ahead of this machine's, by node
hostfile         node1 slots=1 …: nodes, and how many ranks on each
links.json       every link in force
contract.json    measured links against the requested ones
live.json        the last state document
links.csv        bytes carried and packets dropped so far, and backlog, of each link, second by second
events.jsonl     what a schedule did to links and nodes, and when
logs/node1.log … output of each rank; with several ranks on a node node1-0.log, node1-1.log …, likewise below
metrics/node1.jsonl …, metrics/node1.collectives.jsonl …
summary.json     how it ended
model.pt         what rank 0 saved; files/node1/… anything else that a rank left in GRADWIRE_RUN_DIR
"""

import platform
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from cluster.accounting.clocks import CLOCKS, Clocks
from cluster.accounting.metrics import LastLines, last_lines, parse_event
from cluster.base.errors import ClusterError
from cluster.base.files import write_text
from cluster.base.json_file import write_json
from cluster.run.rank_placement import RankPlacement
from protocol.link import Link
from protocol.metrics import MOST_LINE_BYTES
from protocol.places import COLLECTIVES, METRICS, MODEL

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")
MOST_OF_NAME = 80  # characters of a profile's or a program's name, in a folder's name


def check_writable(parent: Path) -> None:
    """Check that run folders can be created in `parent`, before anything starts.

    Raises:
        ClusterError: they cannot.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise ClusterError(
            f"{parent} cannot be written: {error.strerror}",
            "change the owner of the folder, in which every run gets one, or free disk space",
        ) from None


def make_run_folder(parent: Path, profile: str, name: str) -> Path:
    """Create a new folder, named by the time, the profile and the program.

    Names are sanitised and cut, because a node tells the profile's. A second folder in the same second gets a number.

    Raises:
        ClusterError: it cannot be created.
    """
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{_part_of_name(profile)}-{_part_of_name(name)}"
    for number in range(1, 1000):
        folder = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
            (folder / "logs").mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise ClusterError(
                f"{folder} cannot be made: {error.strerror}", "free disk space"
            ) from None
        return folder
    raise ClusterError(f"{parent / stem} exists a thousand times")


def write_links(folder: Path, links: Sequence[Link], places: Sequence[RankPlacement]) -> None:
    """Write links.json and the hostfile."""
    write_json(folder / "links.json", [link._asdict() for link in links])
    hosts = (f"{p.node} slots={p.local_world_size}\n" for p in places if p.local_rank == 0)
    write_text(folder / "hostfile", "".join(hosts))


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    """Write run.yml: the resolved configuration, and the host that it ran on."""
    host = {"host": {"system": platform.platform(), "python": platform.python_version()}}
    text = yaml.safe_dump(dict(config) | host, sort_keys=False, width=120)
    write_text(folder / "run.yml", text)


def write_clocks(folder: Path, clocks: Clocks) -> None:
    """Write clocks.json, if clocks of other hosts were measured."""
    if clocks:
        write_json(folder / CLOCKS, {node: clock._asdict() for node, clock in clocks.items()})


def sort_results(folder: Path, node: str, places: Sequence[RankPlacement]) -> None:
    """Move the results of a node's ranks from files/NODE/ to their places in the run folder.

    Metrics and rank 0's model have places of their own; everything else keeps its name under files/NODE/, also a
    metrics.jsonl of a program of the user's own.
    """
    others = folder / "files" / node
    for place in places:
        if _is_metrics(others / place.file(METRICS)):
            _move(others / place.file(METRICS), folder / "metrics" / f"{place.name}.jsonl")
            kept = folder / "metrics" / f"{place.name}.{COLLECTIVES}"
            _move(others / place.file(COLLECTIVES), kept)
        if place.rank == 0:
            _move(others / MODEL, folder / MODEL)
    for empty in (others, others.parent):
        if empty.is_dir() and not any(empty.iterdir()):
            empty.rmdir()


def last_events(folder: Path, rank: str) -> LastLines:
    """Return the last start, rollout and end in a rank's metrics."""
    return last_lines(folder / "metrics" / f"{rank}.jsonl")


def _part_of_name(text: str) -> str:
    """Return a text fit for a file name, cut to leave room for the rest."""
    return NOT_IN_NAMES.sub("-", text)[:MOST_OF_NAME]


def _is_metrics(path: Path) -> bool:
    """Return whether a file holds metrics of node.train: its first line is an event."""
    if not path.is_file():
        return False
    with path.open("rb") as lines:
        return parse_event(lines.readline(MOST_LINE_BYTES)) is not None


def _move(source: Path, target: Path) -> None:
    if source.is_file():
        target.parent.mkdir(exist_ok=True)
        source.replace(target)
