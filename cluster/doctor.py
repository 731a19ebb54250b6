"""Check everything that a run needs, from the engine to torch on every node; each line is ok, or says what to do.

    python -m cluster.doctor
    python -m cluster.doctor --name second --json

Without a cluster, only this machine is checked. Exit 1 if anything is wrong.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from cluster.api import Cluster
from cluster.base.console import Console, as_typed
from cluster.base.errors import ClusterError, NodeError
from cluster.base.processes import run_bounded
from cluster.base.spec import IMAGE
from cluster.cli.command_line import add_name, make_parser, run_verb
from cluster.engine.client import Engine
from cluster.engine.compose_up import compose_command
from cluster.engine.image import NEEDED_DISK_BYTES, is_current
from cluster.hosts.connect import connect_engine
from cluster.hosts.remote_engine import RemoteEngine
from protocol.node_check import NodeCheck
from protocol.reader import FormatError, parse

FREE_DISK = "free some: docker system df tells what takes it"


@dataclass(frozen=True)
class Finding:
    """The result of one check; `advice` is empty if all is well."""

    what: str
    found: str
    advice: str = ""


def main(argv: list[str] | None = None) -> int:
    """Check this machine and the cluster."""
    parser = make_parser("cluster.doctor", __doc__)
    add_name(parser)
    return run_verb(parser, doctor, argv)


def doctor(args: Namespace) -> list[dict[str, str]]:
    """Run the verb; prints each finding as soon as it is known."""
    findings = []
    for finding in examine(args.name):
        findings.append(finding)
        if not args.json:
            mark = "!!" if finding.advice else "ok"
            print(as_typed(f"{mark}  {finding.what:<13} {finding.found}"), flush=True)
            if finding.advice:
                print(as_typed(f"    {'':<13} try: {finding.advice}"))
    document = [asdict(finding) for finding in findings]
    wrong = [finding.what for finding in findings if finding.advice]
    if wrong:
        raise ClusterError(
            f"{len(wrong)} of {len(findings)} checks failed: {', '.join(wrong)}", "", document
        )
    return document


def examine(name: str) -> Iterator[Finding]:
    """Yield all findings, in the order of their dependencies; stops when further checks are impossible."""
    try:
        engine = connect_engine(name)
        yield from _host(engine)
        yield Finding("engine", f"{engine.kind} {engine.version()}")
    except ClusterError as error:
        yield Finding("engine", error.message, error.hint)
        return
    if engine.kind == Engine.kind:
        yield _compose()
    yield _disk(engine)
    if engine.image_id(IMAGE) is None:
        yield Finding("image", f"{IMAGE} is not built yet", "python -m cluster.image")
        return
    yield _image(engine)
    for one in engine.engines:
        yield from _wires(one)
    if engine.cluster(name) is None:
        yield Finding(
            "cluster", f"{name!r} is not up (python -m cluster.up): its nodes are not checked"
        )
        return
    cluster = Cluster(name)
    try:
        yield from _nodes(cluster)
    finally:
        cluster.close()


def _compose() -> Finding:
    try:
        command = compose_command()
    except ClusterError as error:
        return Finding("compose", error.message, error.hint)
    version = run_bounded([*command, "version", "--short"])
    return Finding("compose", f"{' '.join(command)} {version.stdout.strip()}")


def _disk(engine: Engine) -> Finding:
    free = engine.free_disk_bytes()
    if free is None:
        return Finding("disk", "the engine is on another machine, not checked")
    text = f"{free / 1e9:.0f} GB free for images"
    return Finding("disk", text, FREE_DISK if free < NEEDED_DISK_BYTES else "")


def _image(engine: Engine) -> Finding:
    if is_current(engine):
        return Finding("image", f"{IMAGE} is that of this checkout")
    return Finding("image", f"{IMAGE} is older than this checkout", "python -m cluster.image")


def _host(engine: Engine) -> Iterator[Finding]:
    for one in engine.engines:
        if isinstance(one, RemoteEngine):
            yield Finding("host", f"{one.host.name} answers ({one.host.ssh})")


def _wires(engine: Engine) -> Iterator[Finding]:
    """Check which wires the kernel of this machine or a host supports, by trying both."""
    where = f" on {engine.where}" if engine.where else ""
    done = engine.try_wires(IMAGE)
    if done.returncode != 0:
        yield Finding("wire", done.stderr.strip(), "mend what the line above says")
        return
    try:
        reasons = parse(dict[str, str], done.stdout)
    except FormatError as error:
        yield Finding("wire", f"{IMAGE} answers something else: {error}", "python -m cluster.image")
        return
    able = [wire for wire, reason in reasons.items() if not reason]
    for wire, reason in reasons.items():
        if reason:
            yield Finding(
                f"wire {wire}",
                f"not on this kernel: {reason}" if not where else f"not{where}: {reason}",
                "" if able else "sudo modprobe --all sch_netem ifb",
            )
        else:
            auto = " (auto takes it)" if wire == able[0] else ""
            yield Finding(f"wire {wire}", f"works{where}{auto}")


def _nodes(cluster: Cluster) -> Iterator[Finding]:
    try:
        fleet = cluster.fleet
    except NodeError as error:
        yield Finding("ssh", error.message, error.hint or "python -m cluster.up")
        return
    names = [node.name for node in fleet.nodes]
    # Each node checks all others, which takes a while with many nodes.
    Console().say(f"asking {len(names)} nodes")
    yield Finding("ssh", f"{len(names)} of {len(names)} nodes answer")
    reports = fleet.run_read(NodeCheck, ["python3", "-m", "node.check", *names])
    names_wrong = {node: report.names for node, report in reports.items()}
    yield _everywhere("names", "every node knows every node", names_wrong, "python -m cluster.up")
    peers_wrong = {node: report.peers for node, report in reports.items()}
    yield _everywhere(
        "data network",
        "every node reaches every node",
        peers_wrong,
        "python -m cluster.shape --clear",
    )
    yield _torch(reports)
    gpus = {name: report.gpus for name, report in reports.items() if report.gpus}
    yield Finding(
        "gpu",
        f"{gpus}" if gpus else "none: ranks use gloo on the CPU (python -m cluster.up --gpus all)",
    )


def _everywhere(what: str, fine: str, problems: dict[str, list[str]], advice: str) -> Finding:
    wrong = [f"{node}: {problem}" for node, found in problems.items() for problem in found]
    return Finding(what, "; ".join(wrong), advice) if wrong else Finding(what, fine)


def _torch(reports: dict[str, NodeCheck]) -> Finding:
    broken = [f"{node}: {r.torch_error}" for node, r in reports.items() if r.torch_error]
    if broken:
        return Finding("torch", "; ".join(broken), "python -m cluster.image")
    versions = sorted({report.torch for report in reports.values()})
    return Finding(
        "torch", ", ".join(versions), "" if len(versions) == 1 else "python -m cluster.up"
    )


if __name__ == "__main__":
    sys.exit(main())
