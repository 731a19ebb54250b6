"""Files and folders that host and node both name: on a node, and in the folder of a run.

They are text, as the host names them only in commands and in what it fetches.
"""

STATE_FOLDER = "/run/gradwire"
"""What a node remembers while it is up: a file system in memory."""
FIRST_REPORT = f"{STATE_FOLDER}/first-report.json"
"""The report of a new node's first links (`protocol/link_report.py`). node/boot.sh writes it."""
FIRST_REPORT_LOCK = f"{STATE_FOLDER}/first-report.lock"
"""Held until the first report is written."""
RANK_LOCK = f"{STATE_FOLDER}/rank.lock"
"""Locked, shared by all ranks of a run, while that run has the node; holds the run's name."""
RUNS_FOLDER = f"{STATE_FOLDER}/runs"
"""A folder for each run, with what its ranks leave (GRADWIRE_RUN_DIR)."""
SHARED_FOLDER = "/shared"
"""The one file system that all nodes of a cluster have in common: a Docker volume, which no link carries."""
HOME_FOLDER = "/root"
"""The current folder of a program of which nothing is sent."""
WORK_FOLDER = f"{HOME_FOLDER}/work"
"""A folder for each run whose program is sent: the program's current folder."""
RESUME_FOLDER = ".resume"
"""In the current folder of a program: the checkpoints that it goes on from."""
FIT_FOLDER = ".fit"
"""In the current folder of a program: what `Trainer.fit` tells its ranks (`protocol/fit_order.py`)."""

SHARED = "shared"
"""In the folder of a run: what its ranks left in the folder that they had in common."""
METRICS = "metrics.jsonl"
"""In the folder of a run: what a rank of node.train says of its steps."""
COLLECTIVES = "collectives.jsonl"
"""Likewise of its collectives."""
MODEL = "model.pt"
"""Likewise what it has trained: of rank 0 alone."""


def run_dir(run: str) -> str:
    """Where the ranks of a run leave what comes home, on every node."""
    return f"{RUNS_FOLDER}/{run}"


def shared_dir(run: str) -> str:
    """What all ranks of a run have in common under `--shared`, on every node."""
    return f"{SHARED_FOLDER}/{run}"


def work_dir(run: str) -> str:
    """Where the program of a run lies, on every node, if it is sent."""
    return f"{WORK_FOLDER}/{run}"


def error_file(rank: int) -> str:
    """The name of a rank's TORCHELASTIC_ERROR_FILE in the folder of its run."""
    return f"error-rank{rank}.json"


def rank_file(name: str, rank: int, local_world_size: int) -> str:
    """What a rank calls a file such as METRICS: its number is added where ranks of a node share a folder.

    Args:
        name: the file of the only rank of a node.
        rank: of all ranks.
        local_world_size: how many ranks share the folder.
    """
    stem, dot, end = name.rpartition(".")
    return name if local_world_size == 1 else f"{stem}-rank{rank}{dot}{end}"
