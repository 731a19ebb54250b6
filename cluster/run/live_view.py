"""Prepares the live view (cluster/live) of a launch. Pure."""

from pathlib import Path

from cluster.live.telemetry import Post, interval_s
from cluster.live.tracker import LiveRank, Tracker
from cluster.run.job import Job
from protocol.places import METRICS, run_dir


def live_tracker(job: Job, folder: Path, began_at: float) -> Tracker:
    """Return the tracker of a launch before anything has happened."""
    ranks = (LiveRank(p.name, p.node, p.rank, p.is_essential) for p in job.places)
    return Tracker(
        run=folder.name,
        folder=str(folder),
        program=job.program.name,
        profile=job.link_state.profile,
        steps=job.program.training.steps or None,
        began_at=began_at,
        ranks=tuple(ranks),
        links=job.link_state.links,
        interval_s=interval_s(job.spec.size),
    )


def live_posts(job: Job, run: str) -> list[Post]:
    """Return what telemetry reads on each node."""
    return [
        Post(
            node.name,
            run,
            {
                p.rank: f"{run_dir(run)}/{p.file(METRICS)}"
                for p in job.places
                if p.node == node.name
            },
            [link.dst for link in job.link_state.links if link.src == node.name],
        )
        for node in job.spec.nodes
    ]
