"""A script with Trainer.fit runs on the nodes: as any script does, and as the ranks of a fit called on the host.

The host of these tests has no torch. What a fit called there does is in tests/node/test_trainer.py; here is what
it hands to the launcher.
"""

import json
import shutil

from containers import PROJECT_DIR

EXAMPLE = PROJECT_DIR / "examples" / "rings.py"


def test_a_fit_trains_on_the_nodes(unshaped, tmp_path):
    first = unshaped.json("launch", "--", EXAMPLE)
    folder = PROJECT_DIR / "runs" / first["run"]
    assert {line["strategy"] for line in configs(folder)} == {"ddp"}
    # A ring of three sends 4 times the parameters (4,612 of 4 bytes), each of 60 steps.
    assert first["bytes"]["payload"] > 60 * 4 * 4 * 4612

    order = tmp_path / "order"
    order.mkdir()
    for name in ("initial.pt", "model-1.pt"):
        shutil.copy(folder / "model.pt", order / name)
    ended = [{"what": "model-1.pt", "error": ""}]
    (order / "order.json").write_text(json.dumps({"fit": 2, "seed": 1, "data": "", "ended": ended}))
    second = unshaped.json("launch", "--fit", order, "--", EXAMPLE, "--backend", "cluster")
    again = PROJECT_DIR / "runs" / second["run"]
    assert {line["strategy"] for line in configs(again)} == {"diloco"}
    assert (again / "model.pt").read_bytes() != (folder / "model.pt").read_bytes()
    before, after = (first_loss(path) for path in (folder, again))
    assert after < 0.7 * before  # it began with what it was handed


def test_an_order_without_a_program_is_refused(unshaped, tmp_path):
    done = unshaped.run("launch", "--fit", tmp_path, check=2)
    assert "--fit without a program" in done.stderr
    done = unshaped.run("launch", "--fit", tmp_path, "--", EXAMPLE, check=2)
    assert "no order.json" in done.stderr


def events(folder, event):
    for path in sorted((folder / "metrics").glob("node?.jsonl")):
        lines = map(json.loads, path.read_text().splitlines())
        yield from (line for line in lines if line["event"] == event)


def configs(folder):
    return [line["config"] for line in events(folder, "start")]


def first_loss(folder):
    return next(events(folder, "step"))["loss"]
