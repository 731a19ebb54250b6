"""Tests of one node's wire on a real kernel, as far as a single container with NET_ADMIN allows.

A pair of veth devices stands for the data network. Run as tests/node/Dockerfile says, with --cap-add NET_ADMIN.
"""

import json
import re
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

ADDRESS, DEVICE, PEER_DEVICE = "10.253.7.1", "wiretest0", "wiretest1"
ADD_DEVICE = ("ip", "link", "add", DEVICE, "type", "veth", "peer", "name", PEER_DEVICE)
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"
STATE = Path("/run/gradwire/wire.json")


def run(*argv, stdin=""):
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)


def wire(verb, stdin=""):
    return run(sys.executable, "-m", "node.wire", verb, stdin=stdin)


def output(*argv):
    done = run(*argv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def can_make_devices():
    made = run(*ADD_DEVICE).returncode == 0
    if made:
        run("ip", "link", "del", DEVICE)
    return made


pytestmark = pytest.mark.skipif(not can_make_devices(), reason="needs the capability NET_ADMIN")


def tried():
    """Try both wires; return why this kernel does not support each, or None."""
    return json.loads(output(sys.executable, "-m", "node.wire", "try"))


reasons = cache(tried)  # for tests that need a wire, not to test this


@pytest.fixture(autouse=True)
def device(request):
    if "name" in request.fixturenames:
        request.getfixturevalue("name")  # it may skip the test, which then needs no device
    output(*ADD_DEVICE)
    output("ip", "address", "add", f"{ADDRESS}/24", "dev", DEVICE)
    output("ip", "link", "set", DEVICE, "up")
    output("ip", "link", "set", PEER_DEVICE, "up")
    yield DEVICE
    wire("clear")
    run("ip", "link", "del", DEVICE)


@pytest.fixture(params=["netem", "nfqueue"])
def name(request):
    """A wire that this kernel supports."""
    if reason := reasons()[request.param]:
        pytest.skip(f"not on this kernel: {reason}")
    return request.param


def plan(wire_name="auto", peers=(2, 3), **changes):
    values = {"rate_mbyte_s": 5.0, "delay_ms": 50.0, "jitter_ms": 0.0, "loss_pct": 0.0}
    few = {"loss_burst": 1.0, "duplicate_pct": 0.0, "corrupt_pct": 0.0, "reorder_pct": 0.0}
    link = values | few | {"buffer_ms": 100.0, "distribution": "normal", "wire": "auto"} | changes
    ends = [pair for n in peers for pair in (("node1", f"node{n}"), (f"node{n}", "node1"))]
    return {
        "node": "node1",
        "address": ADDRESS,
        "wire": wire_name,
        "tcp": "cubic",
        "slow_start_after_idle": True,
        "seed": 1,
        "origin": {"profile": "test"},
        "underlay_ms": {},
        "uplink_mbyte_s": None,
        "downlink_mbyte_s": None,
        "isolated": False,
        "routes": {},
        "peers": {
            f"node{n}": {"address": f"10.253.7.{n}", "mac": f"02:67:77:00:07:0{n}"} for n in peers
        },
        "links": [{"src": src, "dst": dst} | link for src, dst in ends],
    }


def apply(document):
    done = wire("apply", json.dumps(document))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def show():
    return json.loads(output(sys.executable, "-m", "node.wire", "show"))


def kernel_state():
    """Return all kernel state that a wire may leave behind."""
    return {
        # Without HTB's count of unclassified packets: IPv6 sends some at any time. And without netem's seeds, which
        # count the changes.
        "qdiscs": re.sub(r"direct_packets_stat \d+| seed \d+", "", output("tc", "qdisc", "show")),
        "classes": output("tc", "class", "show", "dev", DEVICE),
        "filters": output("tc", "filter", "show", "dev", DEVICE),
        "devices": [row["ifname"] for row in json.loads(output("ip", "-json", "link", "show"))],
        "routes": output("ip", "route", "show", "dev", DEVICE),
        # Without the kernel's own routes: IPv6 adds some up to a second after a device is up.
        "all routes": [
            line
            for line in output("ip", "route", "show", "table", "all").splitlines()
            if "proto kernel" not in line
        ],
        "routing rules": output("ip", "rule", "show"),
        "neighbours": neighbours(),
        "rules": [
            line
            for command in ("iptables-save", "iptables-legacy-save")
            for line in run(command).stdout.splitlines()
            if "GRADWIRE" in line
        ],
        "queues": Path("/proc/net/netfilter/nfnetlink_queue").read_text().split("\n")
        if Path("/proc/net/netfilter/nfnetlink_queue").exists()
        else [],
        "offloads": output("ethtool", "-k", DEVICE),
        "segments": segments(),
        "redirects": Path(f"/proc/sys/net/ipv4/conf/{DEVICE}/send_redirects").read_text(),
    }


def neighbours():
    """Return the permanent entries as lines of address and MAC address."""
    rows = json.loads(output("ip", "-json", "-4", "neigh", "show", "nud", "permanent"))
    return sorted(f"{row['dst']} {row['lladdr']}" for row in rows if row["dev"] == DEVICE)


def kinds_until_data_to(mac, address):
    """Return the kinds of frames that leave the device up to and including a datagram to this address, without IPv6."""
    kinds = set()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sniffer:
        sniffer.bind((PEER_DEVICE, 0))
        sniffer.settimeout(10)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"gradwire", (address, 9))
        while IPV4 not in kinds:
            frame = sniffer.recv(2000)
            kinds |= {frame[12:14]} - {IPV6}
    assert frame[:6].hex(":") == mac
    return kinds


def segments():
    """Return the number of segments that TCP may hand to the device as one."""
    (link,) = json.loads(output("ip", "-json", "-details", "link", "show", "dev", DEVICE))
    return link["gso_max_segs"]


def test_apply_show_and_clear(name):
    before = kernel_state()
    document = plan(name)
    report = apply(document)
    assert (report["device"], report["mtu"], report["wire"]) == (DEVICE, 1500, name)
    assert {link["wire"] for link in report["links"]} == {name}
    assert kernel_state()["redirects"] == "0\n"
    shown = show()
    assert (shown["plan"], shown["report"], shown["notes"]) == (document, report, [])
    assert set(shown["counters"]) == {"node2", "node3"}
    punctual = {"packets": 0, "late": 0, "worst_ms": 0.0, "dropped": 0}
    assert shown["lateness"] == (punctual if name == "nfqueue" else None)
    assert shown["received"] == {peer: {"packets": 0, "lost": 0} for peer in ("node2", "node3")}
    assert wire("clear").returncode == 0
    assert kernel_state() == before
    cleared = show()
    assert cleared.pop("host")["cores"]
    assert cleared.pop("settings") == shown["settings"]
    none = {"plan": None, "report": None, "counters": {}, "lateness": None, "notes": []}
    assert cleared == none | {"replayed": [], "received": {}}
    assert wire("clear").returncode == 0


FLAWS = {"loss_pct": 5.0, "loss_burst": 3.0, "duplicate_pct": 1.0, "corrupt_pct": 1.0}
ODD = FLAWS | {"reorder_pct": 1.0, "jitter_ms": 5.0, "distribution": "uniform"}


def odd_plan(name, peers=(2, 3)):
    """Return a plan with settings that few plans have."""
    routes = {"node9": {"address": "10.253.7.9", "via": "node2"}}
    return plan(name, peers, **ODD) | {"downlink_mbyte_s": 3.0, "isolated": True, "routes": routes}


@pytest.mark.parametrize("make", [plan, odd_plan])
def test_apply_twice_is_apply_once(name, make):
    apply(make(name))
    once = kernel_state()
    apply(make(name))
    assert kernel_state() == once


def test_from_odd_to_plain_and_back(name):
    before = kernel_state()
    apply(plan(name))
    plain = kernel_state()
    apply(odd_plan(name))
    odd = kernel_state()
    assert (
        any("unreachable 10.253.7.9" in line for line in odd["all routes"])
        and "6777" in odd["routing rules"]
    )
    apply(plan(name))
    assert kernel_state() == plain
    apply(odd_plan(name))
    assert kernel_state() == odd
    assert wire("clear").returncode == 0
    assert kernel_state() == before


def test_auto_takes_a_wire_that_works_and_keeps_it():
    works = [name for name, reason in reasons().items() if not reason]
    assert apply(plan())["wire"] == works[0]
    assert apply(plan(delay_ms=1.0))["wire"] == works[0]


def test_what_is_queued_survives_a_change(name):
    apply(plan(name, rate_mbyte_s=0.02, buffer_ms=40_000.0))
    send = (  # 32: SO_SNDBUFFORCE, so that sending does not wait for the queue
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(socket.SOL_SOCKET, 32, 1 << 22)\n"
        "for _ in range(400): s.sendto(bytes(1400), ('10.253.7.2', 9))"
    )
    output(sys.executable, "-c", send)
    apply(plan(name, peers=(2,), rate_mbyte_s=0.01, buffer_ms=60_000.0))
    counters = show()["counters"]
    assert set(counters) == {"node2"}
    of_node2 = counters["node2"]
    assert of_node2["dropped_packets"] == 0
    assert of_node2["sent_bytes"] + of_node2["backlog_bytes"] == 400 * 1442
    assert of_node2["backlog_bytes"] > 200 * 1442  # sending half of them takes at least 14 s


def send_super_packets(count):
    """Send super-packets of 40 datagrams of 1400 bytes each; return the link's counters."""
    send = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(17, 103, 1400)\n"  # UDP_SEGMENT
        f"for _ in range({count}): s.sendto(bytes(40 * 1400), ('10.253.7.2', 9))"
    )
    output(sys.executable, "-c", send)
    return show()["counters"]["node2"]


def test_what_comes_as_one_super_packet_waits_as_frames(name):
    apply(plan(name, peers=(2,), rate_mbyte_s=0.02, buffer_ms=20_000.0))
    counted = send_super_packets(3)
    assert counted["sent_packets"] + counted["backlog_packets"] == 120
    assert counted["dropped_packets"] == 0
    assert counted["backlog_packets"] > 60
    assert counted["backlog_bytes"] == counted["backlog_packets"] * 1442


def test_of_a_super_packet_that_does_not_fit_single_frames_are_dropped_and_counted(name):
    apply(plan(name, peers=(2,), rate_mbyte_s=0.01, buffer_ms=3000.0))  # room for 30,000 bytes
    counted = send_super_packets(1)
    passed = counted["sent_packets"] + counted["backlog_packets"]
    assert 18 <= passed <= 24
    assert counted["dropped_packets"] == 40 - passed


def test_what_waits_as_super_packets_goes_on_when_the_link_is_made_slow(name):
    apply(plan(name, peers=(2,), rate_mbyte_s=16.0, buffer_ms=3000.0) | {"uplink_mbyte_s": 0.1})
    send = (  # super-packets of two datagrams, which such a link takes whole; they wait at the uplink
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(socket.SOL_SOCKET, 32, 1 << 26)\n"
        "s.setsockopt(17, 103, 1400)\n"
        "for _ in range(2000): s.sendto(bytes(2 * 1400), ('10.253.7.2', 9))"
    )
    output(sys.executable, "-c", send)
    apply(plan(name, peers=(2,), rate_mbyte_s=1.0, buffer_ms=3000.0))
    before = show()["counters"]["node2"]
    time.sleep(1)
    after = show()["counters"]["node2"]
    assert before["backlog_bytes"] > 0
    assert after["sent_bytes"] - before["sent_bytes"] > 500_000


def links_bytes():
    """Return what a rank reads of the links at its start and at its end."""
    read = "import json; from node.accounting.link_counters import link_bytes; print(json.dumps(link_bytes()))"
    return json.loads(output(sys.executable, "-c", read))


def test_a_link_that_somebody_removes_is_told_and_mended(name):
    apply(plan(name))
    assert links_bytes() == {"node2": 0, "node3": 0}
    match = ("parent", "6777:", "protocol", "all", "prio", "1", "handle", "800::11", "u32")
    output("tc", "filter", "del", "dev", DEVICE, *match)
    output("tc", "class", "del", "dev", DEVICE, "classid", "6777:11")
    assert links_bytes() == {"node3": 0}
    shown = show()
    assert shown["plan"] is None
    assert shown["notes"] == [f"{DEVICE} has no queue of node1 -> node2: apply the plan again"]
    apply(plan(name))
    assert show()["plan"] == plan(name)
    output("tc", "qdisc", "del", "dev", DEVICE, "root")
    assert links_bytes() == {}


def test_clear_removes_what_a_killed_trial_left():
    output("ip", "link", "add", "gradwire-try", "type", "veth", "peer", "name", "wiretest2")
    assert wire("clear").returncode == 0
    assert "gradwire-try" not in kernel_state()["devices"]


def test_netem_is_tried_although_a_killed_trial_left_something():
    if reason := reasons()["netem"]:
        pytest.skip(f"not on this kernel: {reason}")
    output("ip", "link", "add", "gradwire-try", "type", "ifb")
    assert tried() == reasons()
    assert "gradwire-try" not in kernel_state()["devices"]


def test_telemetry_reads_the_counters_that_tc_shows(name):
    """It uses rtnetlink, and separates links. The queue drains meanwhile, so sent plus backlog is compared."""
    apply(plan(name, peers=(2, 3), rate_mbyte_s=0.01, buffer_ms=3000.0))
    counted = send_super_packets(1)
    look = "import json; from node.telemetry.link_looks import LinkLooks; print(json.dumps(LinkLooks().look()))"
    looked = json.loads(output(sys.executable, "-c", look))
    sent_bytes, backlog_bytes, dropped_packets, asked_mbyte_s = looked["node2"]
    assert sent_bytes + backlog_bytes == counted["sent_bytes"] + counted["backlog_bytes"]
    assert backlog_bytes > 0
    assert dropped_packets == counted["dropped_packets"] > 0
    assert asked_mbyte_s == 0.01
    assert looked["node3"] == [0, 0, 0, 0.01]
    assert wire("clear").returncode == 0
    assert json.loads(output(sys.executable, "-c", look)) == {}


def test_a_plan_with_other_peers_takes_their_links_and_no_others(name):
    apply(plan(name, peers=(2, 3)))
    apply(plan(name, peers=(3, 4)))
    assert set(show()["counters"]) == {"node3", "node4"}
    assert "10.253.7.2 " not in output("ip", "route", "show", "dev", DEVICE)
    classes = output("tc", "class", "show", "dev", DEVICE)
    assert ["6777:11 " in classes, "6777:12 " in classes, "6777:13 " in classes] == [
        False,
        True,
        True,
    ]


def test_peers_are_permanent_neighbours_and_nobody_asks_for_their_addresses():
    apply(plan())
    assert neighbours() == ["10.253.7.2 02:67:77:00:07:02", "10.253.7.3 02:67:77:00:07:03"]
    other = plan(peers=(3, 4))
    other["peers"]["node3"]["mac"] = (
        "02:67:77:00:07:33"  # another node with the same name and address
    )
    apply(other)
    assert neighbours() == ["10.253.7.3 02:67:77:00:07:33", "10.253.7.4 02:67:77:00:07:04"]
    assert kinds_until_data_to("02:67:77:00:07:04", "10.253.7.4") == {IPV4}
    output(sys.executable, "-m", "node.wire", "clear")
    assert neighbours() == []


def test_a_restarted_node_is_not_shaped_whatever_its_file_says(name):
    """Simulate a restart: the file stays, the kernel's state is lost."""
    apply(plan(name))
    file = STATE.read_text()
    wire("clear")
    STATE.write_text(file)
    shown = show()
    assert shown["plan"] is None and "no longer shaped" in shown["notes"][0]
    apply(plan(name))
    assert show()["plan"] == plan(name)


def test_without_its_file_it_starts_afresh(name):
    apply(plan(name))
    once = kernel_state()
    STATE.unlink()
    assert "shaped by no known plan" in show()["notes"][0]
    apply(plan(name))
    assert kernel_state()["rules"] == once["rules"]
    assert kernel_state()["qdiscs"] == once["qdiscs"]
    STATE.unlink()
    assert (cleared := wire("clear")).returncode == 0, cleared.stderr
    assert "6777:" not in kernel_state()["qdiscs"] and kernel_state()["rules"] == []


def test_a_dead_daemon_is_told_and_mended():
    if reason := reasons()["nfqueue"]:
        pytest.skip(f"not on this kernel: {reason}")
    apply(plan("nfqueue"))
    output("pkill", "-KILL", "--exact", "delayer")
    assert "the delayer does not run" in show()["notes"][0]
    apply(plan("nfqueue"))
    assert show()["plan"] == plan("nfqueue")


def test_from_one_wire_to_the_other():
    if any(reasons().values()):
        pytest.skip(f"needs both wires: {reasons()}")
    for name in ("netem", "nfqueue", "netem"):
        assert apply(plan(name))["wire"] == name
        assert ("gradwire-ifb" in kernel_state()["devices"]) == (name == "netem")
        assert bool(kernel_state()["rules"]) == (name == "nfqueue")


def test_a_wire_that_the_kernel_lacks_is_an_error_that_changes_nothing():
    missing = [name for name, reason in reasons().items() if reason]
    if not missing:
        pytest.skip("this kernel can do both wires")
    apply(plan())
    before = kernel_state()
    done = wire("apply", json.dumps(plan(missing[0])))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and missing[0] in done.stderr
    assert kernel_state() == before and show()["plan"] == plan()


def test_an_unknown_congestion_control_is_noted():
    report = apply(plan() | {"tcp": "nonesuch"})
    assert report["tcp"] == Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    assert "this kernel has no nonesuch" in " ".join(report["notes"])


def test_tcp_hands_down_as_much_at_once_as_the_fastest_link_takes():
    before = segments()
    report = apply(plan(rate_mbyte_s=125.0))
    assert (segments(), report["notes"]) == (16, [])
    wire("clear")
    assert segments() == before


def test_another_slow_start_than_the_nodes_is_refused_and_changes_nothing():
    apply(plan())
    before = kernel_state()
    done = wire("apply", json.dumps(plan(delay_ms=20.0) | {"slow_start_after_idle": False}))
    assert done.returncode == 1
    assert "slow start after idle is on in this node and shall be off" in done.stderr
    assert "cluster.up --profile" in done.stderr
    assert kernel_state() == before and show()["plan"] == plan()


def test_settings_are_what_the_kernel_has():
    """Checks the buffers' caps with a socket that requests more; the kernel doubles what it grants."""
    settings = show()["settings"]
    assert settings["kernel"] == output("uname", "-r").strip()
    assert settings["slow_start_after_idle"] is True
    assert (
        settings["default_tcp"]
        == Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    )
    for name, option in (
        ("wmem_max_bytes", socket.SO_SNDBUF),
        ("rmem_max_bytes", socket.SO_RCVBUF),
    ):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, option, settings[name])
            most = sock.getsockopt(socket.SOL_SOCKET, option)
            sock.setsockopt(socket.SOL_SOCKET, option, settings[name] + 4096)
            assert sock.getsockopt(socket.SOL_SOCKET, option) == most == 2 * settings[name]
    shown = Path("/proc/sys/net/core/wmem_max")  # absent on older kernels
    assert not shown.exists() or int(shown.read_text()) == settings["wmem_max_bytes"]


def test_where_flaws_hit_super_packets_a_note_says_so():
    report = apply(plan(rate_mbyte_s=1000.0, loss_pct=1.0))
    assert "hits super-packets of up to 65102 bytes" in " ".join(report["notes"])
    assert "class htb 6777:11 parent 6777:1 leaf 11: prio 0 rate 8Gbit" in output(
        "tc", "class", "show", "dev", DEVICE
    )


def test_a_foreign_qdisc_is_left_alone():
    output("tc", "qdisc", "add", "dev", DEVICE, "root", "handle", "5:", "pfifo", "limit", "10")
    done = wire("apply", json.dumps(plan()))
    assert done.returncode == 1 and "not ours" in done.stderr
    assert "pfifo 5:" in output("tc", "qdisc", "show", "dev", DEVICE)


@pytest.mark.parametrize(
    ("verb", "stdin", "status", "message"),
    [
        ("apply", "{}", 2, "node.wire: plan.node: missing"),
        ("apply", "not JSON", 2, "node.wire: plan: no JSON"),
        (
            "apply",
            json.dumps(plan() | {"address": "192.0.2.1"}),
            1,
            "node.wire: no device of this node",
        ),
        ("aply", "", 2, "usage: "),
    ],
)
def test_errors_are_one_line_and_an_exit_status(verb, stdin, status, message):
    done = wire(verb, stdin)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(message) and "Traceback" not in done.stderr
