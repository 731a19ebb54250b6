"""The conformance table in its short form: one grid of links is measured, and every link is as requested."""

import csv
import subprocess
import sys

import pytest
from containers import PROJECT_DIR, TIMEOUT_S, WIRE


@pytest.mark.slow
def test_a_grid_is_measured_and_every_link_kept(make_cluster, tmp_path):
    name = make_cluster("conformance").name
    argv = [sys.executable, "tests/conformance.py", "--name", name, "--wire", WIRE or "auto"]
    argv += ["--grids", "rates", "--out", str(tmp_path)]
    done = subprocess.run(
        argv, cwd=PROJECT_DIR, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    contracts = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert done.returncode == 0, done.stdout + done.stderr + contracts
    assert "| even | rates | yes |" in (tmp_path / "table.md").read_text()
    links = list(csv.DictReader((tmp_path / "links.csv").read_text().splitlines()))
    assert len(links) == 12
    for link in links:
        expected, measured = (
            float(link[f"{kind}_goodput_mbyte_s"]) for kind in ("expected", "measured")
        )
        assert abs(measured / expected - 1) <= 0.03
