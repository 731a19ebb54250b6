"""The Compose document: it equals the committed file, exposes nothing and has no privileges."""

import yaml

from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import ClusterSpec
from cluster.engine.compose import compose_document, has_slow_start
from cluster.engine.compose_up import compose_failure, up_argv


def test_the_document_for_three_nodes_is_the_committed_file():
    committed = yaml.safe_load((PROJECT_DIR / "docker-compose.yml").read_text())
    del committed["x-node"]  # the YAML anchor, not a part of the document
    assert compose_document(ClusterSpec()) == committed


def test_the_document_survives_yaml():
    document = compose_document(ClusterSpec("other", 16, 2))
    assert yaml.safe_load(yaml.safe_dump(document)) == document


def test_ports_are_published_on_loopback_only():
    services = compose_document(ClusterSpec(size=5)).get("services")
    ports = [port for service in services.values() for port in service["ports"]]
    assert len(set(ports)) == 5
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_nodes_get_single_capabilities_and_nothing_else():
    for service in compose_document(ClusterSpec())["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert "SYS_ADMIN" not in service["cap_add"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not {"privileged", "devices", "network_mode", "pid"} & set(service)


def test_each_node_sees_its_own_keys_only_and_cannot_write_them():
    for name, service in compose_document(ClusterSpec())["services"].items():
        keys = f"./.gradwire/gradwire/{name}:/run/keys:ro"
        assert service["volumes"] == [keys, "shared:/shared"]


def test_what_nodes_have_in_common_stays_as_it_is_when_nodes_are_added():
    assert (
        compose_document(ClusterSpec("lab", 3))["volumes"]
        == compose_document(ClusterSpec("lab", 5))["volumes"]
    )


def test_one_call_makes_or_reconciles():
    argv = up_argv(["docker-compose"], "lab")
    assert argv[:3] == ["docker-compose", "--project-name", "gradwire-lab"]
    assert argv[argv.index("--file") + 1] == "-"
    assert "--no-build" in argv
    assert "--remove-orphans" not in argv  # they may be a stranger's


def test_composes_complaints_come_with_a_remedy():
    spec = ClusterSpec()
    for complaint, remedy in {
        "Bind for 127.0.0.1:22001 failed: port is already allocated": "--slot",
        "Pool overlaps with other one on this address space": "10.77.0.0/24",
        "write /x: no space left on device": "docker system prune",
    }.items():
        error = compose_failure(complaint, spec)
        assert complaint in str(error)
        assert remedy in str(error)


def test_slow_start_after_idle_is_taken_away_where_asked_and_read_back():
    usual = compose_document(ClusterSpec())["services"]["node1"]["sysctls"]
    without = compose_document(ClusterSpec(), slow_start_after_idle=False)["services"]
    for service in without.values():
        assert service["sysctls"] == usual | {"net.ipv4.tcp_slow_start_after_idle": "0"}
    # As the engine reports it: null for a container without any.
    assert not has_slow_start({"Sysctls": without["node1"]["sysctls"]})
    for sysctls in (usual, {"net.ipv4.tcp_slow_start_after_idle": "1"}, {}, None):
        assert has_slow_start({"Sysctls": sysctls})


def test_health_checks_of_many_nodes_do_not_come_at_once():
    """Each starts two processes: 64 at once would keep the host busy for seconds."""
    services = compose_document(ClusterSpec(size=64))["services"].values()
    every_s = [int(one["healthcheck"]["interval"].removesuffix("s")) for one in services]
    assert sum(1 / seconds for seconds in every_s) < 1
    late = every_s[8:]
    assert min(late) > every_s[0]
    assert len(set(late)) == len(late)
