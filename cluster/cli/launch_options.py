"""The flags of `python -m cluster.launch`; cluster.run.experiment_file has a key for each, or says why not."""

from argparse import SUPPRESS, ArgumentParser
from pathlib import Path

from cluster.base.console import as_typed
from cluster.cli.command_line import add_name, add_shape, add_size, make_parser
from cluster.cli.live_options import add_http
from cluster.run.launch_words import LOOK, NONE, VERIFICATIONS
from cluster.run.results import MOST_RESULTS


def launch_parser(description: str | None) -> ArgumentParser:
    """Return the parser of launch; `description` is its help."""
    parser = make_parser("cluster.launch", description)
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        metavar="FILE",
        help="experiment.yml to launch (flags override it), or an earlier run to repeat: its folder, or its run.yml",
    )
    add_name(parser)
    add_size(parser)
    add_shape(parser, with_training=True)
    verify = parser.add_mutually_exclusive_group()
    verify.add_argument(
        "--verify",
        choices=tuple(VERIFICATIONS),
        default=LOOK,
        metavar="|".join(VERIFICATIONS),
        help="; ".join(f"{word}: {what}" for word, what in VERIFICATIONS.items())
        + " (default: %(default)s)",
    )
    verify.add_argument(
        "--no-verify", dest="verify", action="store_const", const=NONE, help="same as --verify none"
    )
    parser.add_argument(
        "--allow-undecided",
        action="store_true",
        help="run even if the host is too busy to tell whether some links are as asked; never over broken links",
    )
    parser.add_argument(
        "--folder", type=Path, help="folder to send with your program (default: the program's own)"
    )
    # Trainer.fit passes these two: docs/formats.md.
    parser.add_argument("--fit", type=Path, help=SUPPRESS)
    parser.add_argument("--attached", action="store_true", help=SUPPRESS)
    parser.add_argument(
        "--nproc-per-node",
        type=int,
        default=1,
        metavar="K",
        help="ranks per node; ranks on the same node communicate without links (default: %(default)s)",
    )
    parser.add_argument(
        "--rank-order",
        metavar="NODE,NODE|best",
        help="order of nodes by rank, such as node1,node3,node2; `best`: the order with the fastest all-reduce over"
        " the links; rank 0 stays on node1 (default: node1, node2, …)",
    )
    parser.add_argument(
        "--max-results",
        default=MOST_RESULTS,
        metavar="SIZE",
        help="most to fetch of the results of one node's ranks; larger results stay there (default: %(default)s)",
    )
    parser.add_argument(
        "--shared",
        action="store_true",
        help="give all ranks a shared folder, $GRADWIRE_SHARED_DIR, for checkpoints that they write together;"
        " its traffic bypasses the links",
    )
    parser.add_argument(
        "--schedule",
        type=Path,
        metavar="FILE",
        help="changes of links and nodes during the run",
    )
    parser.add_argument(
        "--stall-timeout",
        metavar="TIME",
        help="end the run after this time (2m, 90s) without any output, computing or bytes sent; none: only report it,"
        " after 30 s (default: ten times what an all-reduce of 16 MB may take on these links, at least 1m; at least"
        " 10m for your own program)",
    )
    parser.add_argument(
        "--essential-ranks",
        metavar="R,R",
        help="ranks that your program cannot do without, such as 0 or 0,2; the run continues if others fail"
        " (default: all)",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        metavar="N",
        help="restarts of each non-essential rank after failures (default: 3)",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--plain", action="store_true", help="print only lines, without a screen, on a terminal too"
    )
    shown.add_argument(
        "--no-live",
        action="store_true",
        help="do not poll nodes during the run: no screen, nothing for"
        + as_typed(" `python -m cluster.watch`"),
    )
    add_http(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be done, do nothing"
    )
    return parser
