"""Explains a failed run: the root cause, the end of its log, and hints beyond the log."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.base.errors import RunFailed
from cluster.base.files import last_lines
from cluster.base.spec import Node
from cluster.run.rank_exit import RankExit, how_it_ended
from cluster.run.stall import Stall
from cluster.run.summary_document import Summary
from protocol.link import Link
from protocol.rank import guilt

LAST_LINES, MOST_LINES = 8, 1000  # shown, searched
# faulthandler's output; the current thread is the one that failed, or got the signal.
FATAL, CURRENT = "Fatal Python error: ", "Current thread 0x"
FRAME = r"  |Current thread 0x"
OF_STACKS = re.compile(rf"\s*$|{FRAME}|Thread 0x|{FATAL}|Extension modules: ")
GO_ON = "--stall-timeout none, if all ranks may wait for so long"
IP_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


def root_cause(failed: Sequence[RankExit]) -> RankExit:
    """Return the rank that made a run fail, if the run did not stall.

    It is not always the first one that reported an error: a failing rank leaves the group before it can say why, and
    others may report sooner that it left; ranks that we stopped failed because of us. A rank that is not essential is
    no root cause unless it stalls, as essential ranks should have gone on without it.
    """
    return min(failed, key=_guilt)


def _guilt(end: RankExit) -> tuple[bool, bool, bool, tuple[bool, float]]:
    own = guilt(is_bystander=end.is_bystander, time=end.time)
    return not end.stall, not end.place.is_essential, end.was_stopped, own


def cause_document(
    ended: Sequence[RankExit], fates: Mapping[str, str], stall: Stall | None
) -> dict[str, str] | None:
    """Return `root_cause` of summary.json: a rank, '' if unknown, and words that follow its name; None if none failed.

    The arguments are those of `raise_failure`.
    """
    if stall:
        said = [stall.why] if stall.place else []
        words = "; ".join([*said, stall.words().partition("\n")[0], "ended by --stall-timeout"])
        return {"rank": stall.place.name if stall.place else "", "words": f"stalled: {words}"}
    failed = _failed(ended)
    if not failed:
        return None
    first = root_cause(failed)
    error = f": {first.error}" if first.error else ""
    words = "; ".join([how_it_ended(first, fates) + error, *_done_by_then(ended, first)])
    return {"rank": first.place.name, "words": words}


def _failed(ended: Sequence[RankExit]) -> list[RankExit]:
    """Return the ranks that failed, the first one first; none if no essential rank did."""
    failed = sorted((end for end in ended if end.exit_code != 0), key=lambda end: end.time)
    return failed if any(end.place.is_essential for end in failed) else []


def raise_failure(
    folder: Path,
    ended: Sequence[RankExit],
    fates: Mapping[str, str],
    stall: Stall | None,
    nodes: Sequence[Node],
    isolated: Sequence[Link],
    summary: Summary,
) -> None:
    """Raise an error if the run stalled or an essential rank failed.

    Args:
        folder: the run folder.
        ended: how the ranks ended.
        fates: why nodes were lost, by node, as far as known.
        stall: the stall for which the run was ended, if any.
        nodes: the nodes of the cluster.
        isolated: the links, if nodes without a link cannot reach each other; otherwise empty.
        summary: the summary of the run.

    Raises:
        RunFailed: names the root cause.
    """
    if stall:
        raise _stalled(folder, stall, summary)
    failed = _failed(ended)
    if not failed:
        return
    first = root_cause(failed)
    before = [end for end in failed if _was_done_without(end, first)]
    others = [end for end in failed if end != first and end not in before]
    log = folder / "logs" / f"{first.place.name}.log"
    words = last_lines(log, MOST_LINES)
    who = f"rank {first.place.rank} on {first.place.node} {how_it_ended(first, fates)}"
    lines = [
        f"{who}: the root cause ({_among(1 + len(others))})",
        *([f"  {first.error}"] if first.error else []),
        *(f"  | {line}" for line in _end_of_log(words)),
        *(f"  {text}" for text in missing_links(first.place.node, words, nodes, isolated)),
        *(f"  {text}" for text in _done_by_then(ended, first)),
        *([f"  before it: {_how_each(before, fates)}"] if before else []),
        *([f"  the others: {_how_each(others, fates)}"] if others else []),
    ]
    raise RunFailed("\n".join(lines), document=summary, see=str(log))


def _stalled(folder: Path, stall: Stall, summary: Summary) -> RunFailed:
    words = "ended by --stall-timeout: " + stall.words()
    if stall.place is None:
        return RunFailed(words, GO_ON, summary, see=str(folder / "logs"))
    log = folder / "logs" / f"{stall.place.name}.log"
    who = f"rank {stall.place.rank} on {stall.place.node} stalled: {stall.why}"
    tail = [f"  | {line}" for line in _end_of_log(last_lines(log, MOST_LINES))]
    message = "\n".join([f"{who}: the root cause", *tail, words])
    return RunFailed(message, GO_ON, summary, see=str(log))


def _end_of_log(log: Sequence[str]) -> Sequence[str]:
    """Return the last lines of a log; if it ends with Python's stacks, those before and the failed thread's stack."""
    fatal = max((n for n, line in enumerate(log) if line.startswith(FATAL)), default=-1)
    stacks = log[fatal:]
    if fatal < 0 or not all(map(OF_STACKS.match, stacks)):
        return log[-LAST_LINES:]
    at = [n for n, line in enumerate(stacks) if line.startswith(CURRENT)]
    own = [line for line in stacks[at[0] :][:LAST_LINES] if re.match(FRAME, line)] if at else []
    return [*log[: fatal + 1][-LAST_LINES // 2 :], *own]


def missing_links(
    node: str, log: Sequence[str], nodes: Sequence[Node], isolated: Sequence[Link]
) -> list[str]:
    """Return hints on the missing links that the end of a rank's log mentions, if nodes are isolated."""
    if not isolated:
        return []
    names = {one.address: one.name for one in nodes}
    neighbours = {link.dst for link in isolated if link.src == node} | {node}
    spoken_of = {names.get(address) for line in log for address in IP_ADDRESS.findall(line)}
    return [
        f"{node} and {other} have no link, and nodes are isolated: this needs one"
        for other in sorted(name for name in spoken_of if name and name not in neighbours)
    ]


def _done_by_then(ended: Sequence[RankExit], first: RankExit) -> list[str]:
    """Return a hint on the ranks that were done too early for one that then failed because another had gone."""
    # Whenever it ended: a process may take seconds to, after its connections are closed.
    done = [end.place for end in ended if end.exit_code == 0 and not end.was_stopped]
    if not first.is_bystander or not done:
        return []
    names = ", ".join(place.name for place in done)
    store = any(place.rank == 0 for place in done)
    # torchrun's agent keeps that store, but the clients of a torch without libuv (Debian's) cannot use such a one.
    lost = ", and with rank 0 ended the store by which ranks find each other" if store else ""
    return [
        f"done by then: {names}{lost}; let all ranks end together, with dist.barrier() as their last step"
    ]


def _among(count: int) -> str:
    return "the only one to fail" if count == 1 else f"of {count} ranks that failed"


def _was_done_without(end: RankExit, first: RankExit) -> bool:
    """Return whether a rank that is not essential failed before the one that ended the run."""
    return not end.place.is_essential and not end.was_stopped and end.time < first.time


def _how_each(ended: Sequence[RankExit], fates: Mapping[str, str]) -> str:
    return ", ".join(f"{end.place.name} {_how_later(end, fates)}" for end in ended)


def _how_later(end: RankExit, fates: Mapping[str, str]) -> str:
    """Return how a rank ended that is not the root cause: stopped by us, or by its own failure."""
    return (
        "was stopped"
        if end.was_stopped and end.exit_code < 0 and not end.stall
        else how_it_ended(end, fates)
    )
