"""The conformance table in its short form: one grid of links, measured and kept."""

import csv
import subprocess
import sys

from containers import PROJECT_DIR, TIMEOUT_S


def test_a_grid_is_measured_and_every_link_kept(tmp_path):
    argv = [sys.executable, "tests/conformance.py", "--grids", "rates", "--out", str(tmp_path)]
    done = subprocess.run(
        argv, cwd=PROJECT_DIR, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| even | rates | yes |" in (tmp_path / "table.md").read_text()
    links = list(csv.DictReader((tmp_path / "links.csv").read_text().splitlines()))
    assert len(links) == 12
    for link in links:
        expected, measured = (
            float(link[f"{kind}_goodput_mbyte_s"]) for kind in ("expected", "measured")
        )
        assert abs(measured / expected - 1) <= 0.03
