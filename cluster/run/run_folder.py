"""The run folder: what one launch asked for, measured and left behind.

runs/20261121-101500-mobile-fedavg/
run.yml          the resolved configuration, versions, the command
hostfile         node1 slots=1 …: nodes, and how many ranks on each
links.json       every link, as in force
contract.json    asked against measured
live.json        its state while it went on, as it was last
links.csv        what each link had carried, dropped and had waiting, second by second
events.jsonl     what a schedule did to the links, and when
logs/node1.log … what each rank printed; with several on a node node1-0.log, node1-1.log …, and so below
metrics/node1.jsonl …, metrics/node1.collectives.jsonl …
summary.json     how it ended
model.pt         what rank 0 saved; files/node1/… whatever else a rank left in GRADWIRE_RUN_DIR
"""

import platform
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from cluster.accounting.metrics import LastLines, last_lines, parse_event
from cluster.base.errors import ClusterError
from cluster.base.files import write_text
from cluster.base.json_file import write_json
from cluster.run.placement import RankPlacement
from protocol.link import Link
from protocol.metrics import MOST_LINE_BYTES
from protocol.places import COLLECTIVES, METRICS, MODEL

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")
MOST_OF_NAME = 80  # of a profile's or a program's, in the name of a folder


def check_writable(parent: Path) -> None:
    """See that runs can be kept there, before anything is started.

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
            "every run gets a folder there: change whose it is, or free disk",
        ) from None


def make_run_folder(parent: Path, profile: str, name: str) -> Path:
    """A new folder, named by the time, what the links are and what runs.

    Names may be anything, of any length: a node says what the profile is called. A second folder in the same second
    gets a number.

    Raises:
        ClusterError: it cannot be made.
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
            raise ClusterError(f"{folder} cannot be made: {error.strerror}", "free disk?") from None
        return folder
    raise ClusterError(f"{parent / stem} is there a thousand times")


def write_links(folder: Path, links: Sequence[Link], places: Sequence[RankPlacement]) -> None:
    """links.json and the hostfile."""
    write_json(folder / "links.json", [link._asdict() for link in links])
    hosts = (f"{p.node} slots={p.local_world_size}\n" for p in places if p.local_rank == 0)
    write_text(folder / "hostfile", "".join(hosts))


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    """run.yml: what was asked for, resolved, and on what it ran."""
    host = {"host": {"system": platform.platform(), "python": platform.python_version()}}
    text = yaml.safe_dump(dict(config) | host, sort_keys=False, width=120)
    write_text(folder / "run.yml", text)


def sort_results(folder: Path, node: str, places: Sequence[RankPlacement]) -> None:
    """Sort what the ranks of a node left, which lies in files/NODE/, into the run folder.

    Metrics and rank 0's model have places of their own; everything else keeps its name under files/NODE/, also what a
    program of the user's own calls metrics.jsonl.
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
    """The last start, rollout and end in a rank's metrics."""
    return last_lines(folder / "metrics" / f"{rank}.jsonl")


def _part_of_name(text: str) -> str:
    """What may stand in a file name, and no more of it than leaves room for the rest."""
    return NOT_IN_NAMES.sub("-", text)[:MOST_OF_NAME]


def _is_metrics(path: Path) -> bool:
    """Whether a file is one of node.train's, by its first line: an event, of which rank, and when."""
    if not path.is_file():
        return False
    with path.open("rb") as lines:
        return parse_event(lines.readline(MOST_LINE_BYTES)) is not None


def _move(source: Path, target: Path) -> None:
    """Move a plain file, where there is one."""
    if source.is_file():
        target.parent.mkdir(exist_ok=True)
        source.replace(target)
