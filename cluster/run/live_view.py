"""What a launch tells the live view (cluster/live) at its beginning. Pure."""

from pathlib import Path

from cluster.live.telemetry import Post, interval_s
from cluster.live.tracker import LiveRank, Tracker
from cluster.run.job import Job, run_dir
from protocol.metrics import METRICS


def live_tracker(job: Job, folder: Path, began_at: float) -> Tracker:
    """What is known of a launch before anything has happened."""
    steps = job.program.config.get("steps")
    ranks = (LiveRank(p.name, p.node, p.rank, p.is_essential) for p in job.places)
    return Tracker(
        run=folder.name,
        folder=str(folder),
        program=job.program.name,
        profile=job.link_state.profile,
        steps=steps if isinstance(steps, int) else None,
        began_at=began_at,
        ranks=tuple(ranks),
        links=job.link_state.links,
        interval_s=interval_s(job.spec.size),
    )


def live_posts(job: Job, run: str) -> list[Post]:
    """What is read of each node."""
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
