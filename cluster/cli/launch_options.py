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
        help="an experiment.yml (flags beside it win); or an earlier run, launched again as it was: its folder, or"
        " run.yml in it",
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
        "--no-verify", dest="verify", action="store_const", const=NONE, help="--verify none"
    )
    parser.add_argument(
        "--allow-undecided",
        action="store_true",
        help="run also over links of which a busy host lets nobody tell whether they are as asked;"
        " never over links that are broken",
    )
    parser.add_argument(
        "--folder", type=Path, help="what to send with your program (default: its own folder)"
    )
    # Trainer.fit passes these two: docs/formats.md.
    parser.add_argument("--fit", type=Path, help=SUPPRESS)
    parser.add_argument("--attached", action="store_true", help=SUPPRESS)
    parser.add_argument(
        "--nproc-per-node",
        type=int,
        default=1,
        metavar="K",
        help="ranks on each node, which send nothing over links to one another (default: %(default)s)",
    )
    parser.add_argument(
        "--rank-order",
        metavar="NODE,NODE|best",
        help="nodes as their ranks follow one another, node1,node3,node2, or the order in which the links let an"
        " all-reduce be quickest; rank 0 stays on node1 (default: node1, node2, …)",
    )
    parser.add_argument(
        "--max-results",
        default=MOST_RESULTS,
        metavar="SIZE",
        help="fetch no more than this of what the ranks of a node left; what is larger stays there "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--shared",
        action="store_true",
        help="a folder that all ranks have in common, for checkpoints that they write together: $GRADWIRE_SHARED_DIR;"
        " no link carries what goes into it",
    )
    parser.add_argument(
        "--schedule",
        type=Path,
        metavar="FILE",
        help="what happens to links and nodes during the run",
    )
    parser.add_argument(
        "--stall-timeout",
        metavar="TIME",
        help="end a run in which nothing has moved for so long, 2m, 90s: no output, no computing, no bytes sent"
        "; none: after 30 s it is said, and the run goes on (default: as long as a collective may take on these links,"
        " a minute at least; of a program of your own ten)",
    )
    parser.add_argument(
        "--essential-ranks",
        metavar="R,R",
        help="ranks without which your program cannot go on, 0 or 0,2; where another one fails the run goes on"
        " (default: all)",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        metavar="N",
        help="how often each rank that is not essential is started again after a failure (default: 3)",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--plain", action="store_true", help="no screen on a terminal, lines alone, as elsewhere"
    )
    shown.add_argument(
        "--no-live",
        action="store_true",
        help="ask no node while the run goes on: no screen, nothing for"
        + as_typed(" `python -m cluster.watch`"),
    )
    add_http(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be done, do nothing"
    )
    return parser
