"""Writes the reports for the browser tests: of two trainings, of a foreign program that failed, and a comparison.

python tests/browser/make_reports.py FOLDER
"""

import sys
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT_DIR), str(PROJECT_DIR / "tests" / "unit")]

from run_folders import BEGAN, change_summary, make_run  # noqa: E402

from cluster.report import main  # noqa: E402

HOSTILE = "</script><script>document.title = 'broken in'</script><img src='https://example.com/x'>"


def make(folder: Path) -> int:
    """Write the reports; return 0 if all are written."""
    event = {"time": BEGAN + 3, "after_s": 3.0, "step": 5, "what": f"at: 3s {HOSTILE}"}
    training = make_run(folder / "training", nodes=4, steps=200, events=[event])
    failed = make_run(folder / "failed", program=True)
    (failed / "logs" / "node2.log").write_text(f"{HOSTILE}\n\x1b[31mred\x1b[0m\n")
    change_summary(failed, status="failed", exit_codes={"node1": -15, "node2": 1, "node3": -15})
    large = make_run(folder / "large", nodes=64, steps=200, every=4)
    codes = [main([str(one)]) for one in (training, failed, large)]
    codes.append(main([str(training), str(failed), "--output", str(folder)]))
    return max(codes)


if __name__ == "__main__":
    sys.exit(make(Path(sys.argv[1])))
