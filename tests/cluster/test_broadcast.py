"""Broadcasts of weights to actors over real links: attribution of bytes, and each version's time against its bound."""

import json
from pathlib import Path

import pytest
from containers import PROJECT_DIR

# A version is timed only if the one before has arrived everywhere, so versions must be rare enough on a quick machine.
WORDS = ["--task", "impala", "--steps", "1200", "--batch-size", "1", "--no-verify"]
OPTIONS = ["hidden=256", "publish_every=300", "eval_episodes=5"]
UPLINKS = PROJECT_DIR / "examples" / "uplinks.yml"


@pytest.mark.slow
def test_in_a_chain_over_uplinks_a_version_takes_as_long_as_the_links_say(shared):
    words = [
        *WORDS,
        *(word for one in [*OPTIONS, "broadcast=chain"] for word in ("--task-set", one)),
    ]
    done = shared.run("launch", "--nodes", "3", "--profile", UPLINKS, *words)
    assert "broadcast (chain) of" in done.stdout
    folder = Path(done.stdout.splitlines()[-1].split()[-1])
    summary = json.loads((folder / "summary.json").read_text())
    broadcast = summary["experience"]["broadcast"]
    assert broadcast["topology"] == "chain"
    assert broadcast["timed"] >= 3, broadcast
    # 0.54 MB in 9 shards over two hops of 1 MB/s and 20 ms: this is the lower bound.
    assert 0.95 < broadcast["ratio"] < 3, broadcast
    assert broadcast["bound_s"] > 0.54 + 2 * 0.02
    for actor in summary["experience"]["actors"].values():
        assert actor["predicted_weights_age_s"] > 0
    loop = summary["bytes"]["loop"]
    assert loop["off"] == [], loop
    weights = [line for line in events(folder, "node3") if line["event"] == "weights"]
    assert weights[-1]["source"] == 1


def events(folder, node):
    return map(json.loads, (folder / "metrics" / f"{node}.jsonl").read_text().splitlines())
