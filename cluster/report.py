"""Write the report of a run, one file that needs no network; of several runs, a comparison.

    python -m cluster.report runs/20261121-101500-mobile-fedavg          # report.html, .md and .csv in its folder
    python -m cluster.report runs/20261121-101500-mobile-fedavg --png    # and its charts as PNG files
    python -m cluster.report runs/A runs/B runs/C                        # runs/comparison.html, .md and .csv

Every launch writes its own report. Works on any run folder, also of a failed run, and changes only these files in it.
Charts need vl-convert-python (in a checkout `pip install -e '.[report]'`); without it, there are only report.md and
report.csv.
"""

import sys
from argparse import Namespace
from pathlib import Path

from cluster.base.console import eprint
from cluster.cli.command_line import make_parser, run_verb
from cluster.reporting.compare import comparison_page
from cluster.reporting.read_run import read_run
from cluster.reporting.write import run_page, write_page

COMPARISON = "comparison"


def main(argv: list[str] | None = None) -> int:
    """Report runs."""
    parser = make_parser("cluster.report", __doc__)
    parser.add_argument(
        "folders",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="run folder: runs/<time>-<profile>-<what>",
    )
    parser.add_argument(
        "--png", action="store_true", help="also write every chart as report-<chart>.png"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where to write (default: the run's folder; for several, its parent)",
    )
    return run_verb(parser, report, argv)


def report(args: Namespace) -> dict[str, object]:
    """Run the verb; all folders are read before anything is written."""
    runs = [read_run(folder) for folder in args.folders]
    if len(runs) == 1:
        folder = args.output or args.folders[0]
        written = write_page(run_page(runs[0]), folder, pictures=args.png)
    else:
        folder = args.output or args.folders[0].resolve().parent
        written = write_page(comparison_page(runs), folder, COMPARISON, pictures=args.png)
    if written.missing:
        eprint(written.missing)
    if not args.json:
        print("\n".join(map(str, written.files)))
    return {"written": [str(path) for path in written.files], "missing": written.missing}


if __name__ == "__main__":
    sys.exit(main())
