"""Slow start after idle, which only Compose can set: in force on nodes, recorded, and refused if nodes differ."""

from containers import last_run

PROFILE = "rate_mbyte_s: 20\ndelay_ms: 5\n"
SYSCTL = "/proc/sys/net/ipv4/tcp_slow_start_after_idle"
HELLO = "print('hello')\n"


def test_a_profile_takes_slow_start_after_idle_away_and_another_gives_it_back(
    make_cluster, tmp_path
):
    cluster = make_cluster("warm")
    warm, cold, program = (tmp_path / name for name in ("warm.yml", "cold.yml", "hello.py"))
    warm.write_text(PROFILE + "slow_start_after_idle: false\n")
    cold.write_text(PROFILE)
    program.write_text(HELLO)

    def in_the_kernel():
        return {cluster.exec(node, "cat", SYSCTL).strip() for node in ("node1", "node2")}

    # New nodes start with the setting.
    assert not cluster.json("up", "--nodes", "2", "--profile", warm)["slow_start_after_idle"]
    assert in_the_kernel() == {"0"}
    # Running nodes refuse another setting and keep their links.
    refused = cluster.run("shape", "--profile", cold, check=1)
    assert "slow start after idle is off in this node and shall be on" in refused.stderr
    shown = cluster.run("status").stdout
    assert "profile warm" in shown and "no slow start after idle" in shown
    # A launch without a profile keeps the setting and the nodes.
    cluster.exec("node1", "touch", "/root/here")
    cluster.run("launch", "--no-verify", "--", program)
    assert cluster.exec("node1", "ls", "/root/here")
    config = (last_run(cluster, "hello") / "run.yml").read_text()
    assert config.count("slow_start_after_idle: false") == 2  # as requested, and as in force
    # `up` recreates the nodes if the setting differs.
    assert cluster.json("up", "--profile", cold)["slow_start_after_idle"]
    assert in_the_kernel() == {"1"}
