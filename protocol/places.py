"""Files and folders that host and node both name: on a node, and in the folder of a run.

They are text because the host uses them only in commands and in what it fetches.
"""

STATE_FOLDER = "/run/gradwire"
"""A node's state while it is up, on a file system in memory."""
FIRST_REPORT = f"{STATE_FOLDER}/first-report.json"
"""The report of a new node's first links (`protocol/link_report.py`). node/boot.sh writes it."""
FIRST_REPORT_LOCK = f"{STATE_FOLDER}/first-report.lock"
"""Held until the first report is written."""
KEYS_FOLDER = "/run/keys"
"""A node's keys, which the host makes."""
FIRST_PLAN = "plan.json"
"""Beside these keys while a new node boots: its first link plan."""
RANK_LOCK = f"{STATE_FOLDER}/rank.lock"
"""Holds the name of the run that has the node; all ranks of that run hold a shared lock on it."""
RUNS_FOLDER = f"{STATE_FOLDER}/runs"
"""Holds a folder for each run, with the results of its ranks (GRADWIRE_RUN_DIR)."""
SHARED_FOLDER = "/shared"
"""The one file system that all nodes of a cluster share: a Docker volume, whose data no link carries."""
HOME_FOLDER = "/root"
"""The working directory of a program whose files are not sent."""
WORK_FOLDER = f"{HOME_FOLDER}/work"
"""Holds a folder for each run whose program is sent: the program's working directory."""
RESUME_FOLDER = ".resume"
"""In a program's working directory: the checkpoints that it continues from."""
FIT_FOLDER = ".fit"
"""In a program's working directory: the order of `Trainer.fit` to its ranks (`protocol/fit_order.py`)."""

SHARED = "shared"
"""In the folder of a run: what its ranks left in their shared folder."""
METRICS = "metrics.jsonl"
"""In the folder of a run: the metrics of a rank of node.train."""
COLLECTIVES = "collectives.jsonl"
"""Likewise its collectives."""
MODEL = "model.pt"
"""Likewise the trained model, from rank 0 only."""


def run_dir(run: str) -> str:
    """Return the folder, on every node, of the results that the host fetches from a run's ranks."""
    return f"{RUNS_FOLDER}/{run}"


def shared_dir(run: str) -> str:
    """Return the folder, on every node, that all ranks of a run share under `--shared`."""
    return f"{SHARED_FOLDER}/{run}"


def work_dir(run: str) -> str:
    """Return the folder, on every node, of a run's program if it is sent."""
    return f"{WORK_FOLDER}/{run}"


def error_file(rank: int) -> str:
    """Return the name of a rank's TORCHELASTIC_ERROR_FILE in the folder of its run."""
    return f"error-rank{rank}.json"


def rank_file(name: str, rank: int, local_world_size: int) -> str:
    """Return a rank's name for a file such as METRICS, with the rank added if ranks of a node share a folder.

    Args:
        name: the name if the node has one rank.
        rank: the rank among all ranks.
        local_world_size: number of ranks that share the folder.
    """
    stem, dot, end = name.rpartition(".")
    return name if local_world_size == 1 else f"{stem}-rank{rank}{dot}{end}"
