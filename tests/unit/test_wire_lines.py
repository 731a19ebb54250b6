"""The commands to tc, iptables and ip for a small plan: first from scratch, then in place."""

import statistics

import pytest
from plans import node_plan

from node.wire import egress, htb, iptables, isolation, netem, routes, segmentation
from node.wire.commands import CommandError, Device, Qdisc, _name_failed_line
from node.wire.layout import MAX_SLOT, lay_out, packets_in_flight, seed_of
from node.wire.nfqueue import backend
from node.wire.nfqueue.nfnetlink import META, SIZE, WHOLE
from node.wire.node_cap import burst_bytes
from protocol.gilbert import loss_burst_chances
from protocol.link import Link
from protocol.link_report import LinkCounters, WireCounters
from protocol.node_plan import Route
from protocol.reader import FormatError

ETH0 = Device("eth0", 1500)
LINK = Link("node1", "node2", 5.0, 100.0, 0.0, 0.0, 200.0)
LITTLE_LOSS_PCT = (0.001, 0.05, 0.3, 0.8)  # as on real links; the contract may not detect it


def shape(
    *peers,
    before=None,
    mac="02:67:77:00:00:0{}",
    device=ETH0,
    routes_of=None,
    uplink_mbyte_s=None,
    downlink_mbyte_s=None,
    isolated=False,
    **changes,
):
    """Return a shape of node1 with links to and from the peers of these numbers."""
    there = [LINK._replace(dst=f"node{n}", **changes) for n in peers]
    back = [link._replace(src=link.dst, dst="node1") for link in there]
    plan = node_plan(
        peers,
        there + back,
        mac,
        uplink_mbyte_s=uplink_mbyte_s,
        downlink_mbyte_s=downlink_mbyte_s,
        isolated=isolated,
        routes=routes_of or {},
    )
    return lay_out(plan, device, before)


def words(lines, kind):
    return [line for line in lines if line.startswith(kind)]


def test_egress_from_nothing():
    lines = egress.tc_lines(None, shape(2))
    assert lines[0] == "qdisc add dev eth0 root handle 6777: htb default 2 direct_qlen 1000"
    assert lines[-3:] == [
        (
            "class replace dev eth0 parent 6777:1 classid 6777:11 "
            "htb rate 40000000bit ceil 40000000bit burst 5000 cburst 5000 quantum 1600"
        ),
        "qdisc replace dev eth0 parent 6777:11 handle 11: tbf rate 1000tbit burst 1514 limit 1000000",
        (
            "filter replace dev eth0 parent 6777: protocol all prio 1 handle 800::11 u32 "
            "match u32 0x77000002 0xffffffff at -12 match u16 0x0267 0xffff at -14 flowid 6777:11"
        ),
    ]


def test_address_resolution_passes_unshaped_on_both_sides_of_a_link():
    for lines in (egress.tc_lines(None, shape(2)), netem.tc_lines(None, shape(2))):
        discovery = [line for line in words(lines, "filter replace") if "flowid 6777:2" in line]
        assert ["0x0806" in line for line in discovery] == [True, False, False]
        # Filters are tried in numerical order: discovery before any link.
        assert [line.split("800::")[1].split()[0] for line in discovery] == ["1", "2", "3"]


def test_egress_in_place_touches_only_what_the_plan_names():
    before = shape(2, 3)
    after = shape(2, 4, before=before, rate_mbyte_s=1.0)
    lines = egress.tc_lines(before, after)
    assert not words(lines, "qdisc add") and not words(lines, "qdisc del")
    assert lines[:2] == [  # node3 is gone
        "filter del dev eth0 parent 6777: protocol all prio 1 handle 800::12 u32",
        "class del dev eth0 classid 6777:12",
    ]
    classes = [line.split("classid ")[1].split(" burst")[0] for line in words(lines, "class rep")]
    assert classes == [
        "6777:11 htb rate 8000000bit ceil 8000000bit",  # node2 keeps its class
        "6777:13 htb rate 8000000bit ceil 8000000bit",  # node4 does not take over node3's class
    ]


def test_links_share_an_uplink_that_is_too_narrow_for_all():
    rates = [
        line.split("htb ")[1].split(" burst")[0]
        for line in words(egress.tc_lines(None, shape(2, 3, uplink_mbyte_s=4.0)), "class")
    ]
    assert rates[2] == "rate 32000000bit ceil 32000000bit"  # the uplink: 4 MB/s
    assert rates[3:] == ["rate 16000000bit ceil 40000000bit"] * 2  # 2 MB/s guaranteed, 5 MB/s alone


def test_an_uplink_that_is_wide_enough_or_gone_leaves_links_their_rates():
    wide = shape(2, 3, uplink_mbyte_s=10.0)
    assert words(egress.tc_lines(None, wide), "class")[-1].count("40000000bit") == 2
    assert (
        "classid 6777:1 htb rate 100000000000bit"
        in egress.tc_lines(wide, shape(2, 3, before=wide))[0]
    )


def test_a_new_mac_address_takes_the_old_filter_away():
    before = shape(2)
    lines = egress.tc_lines(before, shape(2, before=before, mac="02:67:77:00:01:0{}"))
    assert words(lines, "filter del") and words(lines, "class del")
    assert "0x77000102" in lines[-1]


def test_egress_limits():
    assert burst_bytes(5e6, 1514) == 5000  # 1 ms
    assert burst_bytes(0.1e6, 1514) == 1514
    assert egress.queue_bytes(LINK, 1514) == 1_000_000
    assert egress.queue_bytes(LINK._replace(buffer_ms=0.0), 1514) == 4 * 1514
    assert egress.queue_bytes(LINK._replace(rate_mbyte_s=1e4, buffer_ms=6e4), 1514) == 2**32 - 1


def test_rates_are_whole_bits_from_the_slowest_to_the_fastest():
    for rate_mbyte_s, bits in ((0.1, 800_000), (0.123456789, 987_654), (10_000, 80_000_000_000)):
        lines = egress.tc_lines(None, shape(2, rate_mbyte_s=rate_mbyte_s))
        assert f"rate {bits}bit ceil {bits}bit" in words(lines, "class")[-1]


def test_counters_are_those_of_the_links_by_peer():
    stats = {"bytes": 1, "packets": 2, "drops": 0, "backlog": 4, "qlen": 5}
    none = dict.fromkeys(stats, 0)
    classes = {"6777:11": stats, "6777:2": none}
    queues = {"11:": {"drops": 3}, "2:": {"drops": 0}}
    assert egress.counters(shape(2), classes, queues) == {"node2": LinkCounters(1, 2, 3, 4, 5)}


def test_counters_leave_out_a_link_that_somebody_has_removed():
    stats = dict.fromkeys(("bytes", "packets", "drops", "backlog", "qlen"), 1)
    classes, queues = {"6777:11": stats, "6777:12": stats}, {"12:": {"drops": 0}}
    assert list(egress.counters(shape(2, 3), classes, queues)) == ["node3"]
    assert egress.counters(shape(2, 3), {}, {}) == {}


def test_a_link_without_its_queue_is_a_fault_on_either_side():
    layout = shape(2, 3)
    whole = [Qdisc("eth0", "tbf", "11:", False), Qdisc("eth0", "tbf", "12:", False)]
    assert egress.fault(layout, whole) == ""
    assert egress.fault(layout, whole[:1]) == "eth0 has no queue of node1 -> node3"
    roots = [Qdisc("eth0", "ingress", "ffff:", False), Qdisc(netem.IFB, "htb", "6777:", True)]
    delays = [qdisc._replace(device=netem.IFB, kind="netem") for qdisc in whole]
    assert netem.fault(layout, [*whole, *roots, *delays]) == ""
    found = netem.fault(layout, [*whole, *roots, *delays[1:]])
    assert found == "gradwire-ifb has no queue of node2 -> node1"


def test_no_packet_that_waits_takes_a_nanosecond_of_the_cutter():
    """Else one larger than the burst could never pass: sch_tbf counts whole nanoseconds of its burst and of packets."""
    assert egress.CUTTER_RATE.endswith("tbit")
    bytes_a_ns = int(egress.CUTTER_RATE.removesuffix("tbit")) * 1e12 / 8 / 1e9
    assert bytes_a_ns > segmentation.MAX_SUPER_PACKET


def test_of_what_netem_has_dropped_all_had_come():
    counted = {"packets": 940, "drops": 50, "qlen": 10}
    assert netem.counters_of(counted) == WireCounters(packets=1000, lost=50)


def test_netem_is_tried_beside_what_a_killed_trial_left(monkeypatch):
    devices = ["lo", "gradwire-try"]

    def run(argv):
        verb, name = argv[2:4]
        if verb == "del":
            devices.remove(name)
        elif name in devices:
            raise CommandError("RTNETLINK answers: File exists")
        else:
            devices.append(name)

    monkeypatch.setattr(netem.socket, "if_nameindex", lambda: list(enumerate(devices)))
    monkeypatch.setattr(netem, "run", run)
    monkeypatch.setattr(netem, "run_batch", lambda program, lines: None)
    assert netem.unavailable() == ""
    assert devices == ["lo"]


def test_netem_from_nothing_redirects_last():
    lines = netem.tc_lines(None, shape(2, jitter_ms=10.0, loss_pct=0.5))
    (queue,) = (line for line in lines if "netem" in line)
    assert "parent 6777:11 handle 11: netem limit " in queue
    assert (
        "delay 100.000000ms 10.000000ms distribution normal rate 100gbit loss 0.500000% "
        "duplicate 0.000000% corrupt 0.000000% reorder 0.000000% seed" in queue
    )
    assert "match u16 0x0002 0xffff at -4 match u32 0x02677700 0xffffffff at -8" in lines[-3]
    assert lines[-2:] == [
        "qdisc add dev eth0 handle ffff: ingress",
        (
            "filter add dev eth0 parent ffff: protocol all prio 1 u32 match u32 0 0 "
            "action mirred egress redirect dev gradwire-ifb"
        ),
    ]


def seeds(lines):
    """Return the seed of each netem among these lines."""
    return [int(line.split(" seed ")[1]) for line in lines if " seed " in line]


def test_netem_in_place_draws_otherwise_on_each_link():
    """A schedule that changes another link every few seconds must not lose the same packets each time."""
    first = shape(2, 3)
    second = shape(2, 3, before=first)
    third = shape(2, 3, before=second)
    told = [seeds(netem.tc_lines(None, first)), seeds(netem.tc_lines(first, second))]
    told.append(seeds(netem.tc_lines(second, third)))
    assert [len(set(of_link)) for of_link in zip(*told, strict=True)] == [3, 3]


def test_netem_in_place_changes_the_netem_and_no_redirection():
    before = shape(2)
    lines = netem.tc_lines(before, shape(2, before=before, delay_ms=20.0))
    assert [line.split()[0:2] for line in lines] == [
        ["class", "replace"],
        ["qdisc", "replace"],
        ["filter", "replace"],
    ]


def test_a_wire_has_room_for_all_that_is_under_way():
    # 5 MB/s for 100 ms: 500 kB, half as much again in frames of 200 bytes; 0.2 s of full frames; 100,000.
    assert packets_in_flight(LINK) == 3750 + 661 + 100_000
    assert packets_in_flight(LINK._replace(jitter_ms=25.0)) == 7500 + 661 + 100_000
    assert packets_in_flight(LINK._replace(rate_mbyte_s=1e4, delay_ms=1e4)) == 1_000_000


def test_every_link_has_a_seed_of_its_own_and_keeps_it():
    plan = shape(2, 3).plan
    seeds = [seed_of(plan, link) for link in plan.links]
    assert len(set(seeds)) == 4
    assert seeds == [seed_of(plan, link) for link in plan.links]
    assert seed_of(plan._replace(seed=2), plan.links[0]) not in seeds


def test_rules_from_nothing_and_in_place():
    fresh = iptables.ipv4(shape(2), fresh=True)
    assert fresh.splitlines() == [
        "*raw",
        ":GRADWIRE_IN -",
        "-A GRADWIRE_IN -d 10.77.0.11 -p icmp -m icmp --icmp-type echo-reply -j RETURN",
        "-A GRADWIRE_IN -m mac --mac-source 02:67:77:00:00:02 -j NFQUEUE --queue-num 26369 --queue-bypass",
        "-A PREROUTING -i eth0 -j GRADWIRE_IN",
        "COMMIT",
        "*mangle",
        ":GRADWIRE_OUT -",
        (
            "-A GRADWIRE_OUT -d 10.77.0.12 -p icmp -m icmp --icmp-type echo-reply -j NFQUEUE "
            "--queue-num 30465 --queue-bypass"
        ),
        "-A POSTROUTING -o eth0 -j GRADWIRE_OUT",
        "COMMIT",
    ]
    hooks = [line for line in fresh.splitlines() if "ROUTING" in line]
    in_place = iptables.ipv4(shape(2), fresh=False).splitlines()
    assert in_place == [line for line in fresh.splitlines() if line not in hooks]


def test_removal_takes_exactly_our_rules():
    saved = """# Generated by iptables-save v1.8.11 (nf_tables)
*raw
:PREROUTING ACCEPT [20:1680]
:OUTPUT ACCEPT [0:0]
:GRADWIRE_IN - [0:0]
-A PREROUTING -i eth0 -j GRADWIRE_IN
-A GRADWIRE_IN -m mac --mac-source 02:67:77:00:00:02 -j NFQUEUE --queue-num 26369 --queue-bypass
COMMIT
# Generated by iptables-save v1.8.11 (nf_tables)
*nat
:DOCKER_OUTPUT - [0:0]
-A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT
COMMIT
"""
    assert iptables.removal(saved).splitlines() == [
        "*raw",
        "-D PREROUTING -i eth0 -j GRADWIRE_IN",
        "-F GRADWIRE_IN",
        "-X GRADWIRE_IN",
        "COMMIT",
    ]
    assert iptables.removal(saved.replace("GRADWIRE", "OTHER")) == ""


def test_the_daemon_gets_a_queue_for_each_end_of_a_link():
    request = backend.request_of(shape(2, jitter_ms=10.0, loss_pct=1.0))
    queues = request.queues
    assert sorted(queues) == [0x6701, 0x7701]
    assert queues[0x6701][:4] == (0.1, 0.01, "normal", 0.01)
    assert (queues[0x6701].copied, request.downlink) == (META, None)


@pytest.mark.parametrize("loss_pct", LITTLE_LOSS_PCT)
def test_the_daemon_loses_as_little_as_was_asked(loss_pct):
    queues = backend.request_of(shape(2, loss_pct=loss_pct)).queues
    assert [queues[queue].loss for queue in (0x6701, 0x7701)] == [loss_pct / 100] * 2


@pytest.mark.parametrize("loss_pct", LITTLE_LOSS_PCT)
def test_netem_loses_as_little_as_was_asked(loss_pct):
    (queue,) = (
        line for line in netem.tc_lines(None, shape(2, loss_pct=loss_pct)) if "netem" in line
    )
    assert f" loss {loss_pct:.6f}% duplicate " in queue


def test_the_daemon_sees_as_much_of_packets_as_it_needs():
    limited = backend.request_of(shape(2, downlink_mbyte_s=1.5))
    assert limited.downlink == (1.5e6, 0.2)
    behaviours = [limited.queues[queue] for queue in (0x6701, 0x7701)]
    assert [(b.copied, b.limited) for b in behaviours] == [(SIZE, True), (META, False)]
    harmed = backend.request_of(shape(2, corrupt_pct=1.0)).queues
    assert harmed[0x6701].copied == WHOLE


def test_bursts_lose_as_much_as_was_asked():
    begin, end = loss_burst_chances(LINK._replace(loss_pct=10.0, loss_burst=4.0))
    assert end == 1 / 4
    assert begin / (begin + end) == pytest.approx(0.1)
    assert loss_burst_chances(LINK._replace(loss_pct=10.0)) is None
    assert loss_burst_chances(LINK._replace(loss_pct=100.0, loss_burst=4.0)) is None
    begin, end = loss_burst_chances(
        LINK._replace(loss_pct=80.0, loss_burst=2.0)
    )  # bursts must grow
    assert begin == 1.0 and end == pytest.approx(0.25)


def test_netem_is_told_all_that_few_links_have():
    odd = {"loss_pct": 10.0, "loss_burst": 4.0, "duplicate_pct": 1.0, "reorder_pct": 2.0}
    link = LINK._replace(**odd, jitter_ms=5.0, distribution="uniform")
    options = netem.netem_options(link, 100)
    assert "5.000000ms distribution uniform rate" in options
    assert "loss gemodel 2.777778% 25.000000%" in options
    assert options.endswith("duplicate 1.000000% corrupt 0.000000% reorder 2.000000%")
    table = [int(value) for value in netem.uniform_table().split()]
    assert len(table) == 4096 and abs(sum(table)) < 10
    assert statistics.pstdev(table) == pytest.approx(8192, rel=1e-3)


def test_links_share_a_downlink_on_netem_too():
    lines = netem.tc_lines(None, shape(2, 3, downlink_mbyte_s=4.0))
    classes = [line.split("htb ")[1].split(" burst")[0] for line in words(lines, "class")]
    assert (
        classes[2:]
        == ["rate 32000000bit ceil 32000000bit"] + ["rate 16000000bit ceil 32000000bit"] * 2
    )
    # The queue in front of it is part of netem's: 100 ms in flight and 200 ms queued, in full frames, plus spare.
    assert f"netem limit {round(5e6 * 0.3 / 1514) + 20} " in words(lines, "qdisc replace")[0]


def test_slots_stay_while_their_peer_does_and_run_out_clearly():
    first = shape(2, 3)
    second = shape(3, 4, before=first)
    third = shape(2, 3, before=second)
    assert (first.slots, second.slots) == ({"node2": 1, "node3": 2}, {"node3": 2, "node4": 3})
    assert third.slots == {"node3": 2, "node2": 1}
    with pytest.raises(FormatError, match="too many"):
        shape(*range(MAX_SLOT + 1))


def test_ids_of_sixty_four_nodes_differ():
    lines = egress.tc_lines(None, shape(*range(2, 65)))
    assert len(set(lines)) == len(lines)
    assert max(len(htb.link_id(slot)) for slot in shape(*range(2, 65)).slots.values()) == 2


def test_routes_carry_the_congestion_control():
    assert routes.route_lines(shape(2), "bbr") == [
        "route replace 10.77.0.12/32 dev eth0 congctl bbr"
    ]
    assert routes.route_lines(shape(2), "") == ["route replace 10.77.0.12/32 dev eth0"]


def test_who_is_no_neighbour_is_reached_by_way_of_one():
    lines = routes.route_lines(shape(2, routes_of={"node3": Route("10.77.0.13", "node2")}), "bbr")
    assert lines[1] == "route replace 10.77.0.13/32 via 10.77.0.12 dev eth0 congctl bbr"


def test_isolated_nodes_are_unreachable_but_to_meet():
    apart = shape(2, routes_of={"node3": Route("10.77.0.13", "node2")}, isolated=True)
    lines = routes.route_lines(apart, "")
    assert lines == [
        "route replace 10.77.0.12/32 dev eth0",
        "route replace unreachable 10.77.0.13/32",
        "route replace 10.77.0.13/32 via 10.77.0.12 dev eth0 table 6777",
        "rule add priority 6777 ipproto tcp lookup 6777",
    ]
    text = isolation.text(apart, was=False).splitlines()
    assert text[:2] == ["*filter", ":GRADWIRE_APART -"]
    assert text[2].startswith("-A GRADWIRE_APART -d 10.77.0.13 -p tcp -m tcp ! --sport 29500 ")
    assert text[2].endswith("-m length --length 301:65535 -j REJECT --reject-with tcp-reset")
    assert text[3:] == ["-A OUTPUT -o eth0 -j GRADWIRE_APART", "COMMIT"]
    assert text[3] not in isolation.text(apart, was=True)
    assert "-D OUTPUT -o eth0 -j GRADWIRE_APART" in isolation.text(shape(2), was=True)


@pytest.mark.parametrize(
    ("rate_mbyte_s", "frames"),
    [(0.1, 1), (5, 1), (15, 1), (16, 2), (65, 8), (125, 16), (625, 43), (12_500, 43)],
)
def test_super_packets_are_two_tenths_of_a_millisecond_of_their_link(rate_mbyte_s, frames):
    link = LINK._replace(rate_mbyte_s=rate_mbyte_s)
    assert segmentation.super_packet_bytes(link, 1514) == frames * 1514
    jittering = link._replace(jitter_ms=3.0)
    assert segmentation.super_packet_bytes(jittering, 1514) == frames * 1514


@pytest.mark.parametrize("flaw", ["loss_pct", "duplicate_pct", "corrupt_pct", "reorder_pct"])
def test_flaws_hit_single_packets_but_where_a_link_is_too_fast_for_them(flaw):
    flawed, faster = (LINK._replace(rate_mbyte_s=rate, **{flaw: 0.1}) for rate in (250, 251))
    assert segmentation.super_packet_bytes(flawed, 1514) == 1514
    assert segmentation.super_packet_bytes(faster, 1514) == 33 * 1514
    assert segmentation.note([LINK, flawed], 1514) == ""
    assert "super-packets of up to 49962 bytes" in segmentation.note([flawed, faster], 1514)


def test_tcp_hands_down_what_makes_the_fewest_packets_of_all_links_together():
    fast, faster, fastest = (LINK._replace(rate_mbyte_s=rate) for rate in (68, 125, 1000))
    assert segmentation.wanted([LINK, faster], 1514) == (False, 16)  # LINK takes frames only
    assert segmentation.wanted([fast, faster], 1514) == (False, 8)  # with 16, `fast` would cut
    assert segmentation.wanted([fast, fastest], 1514) == (False, 43)
    assert segmentation.wanted([LINK], 1514) == (False, 65535)  # all are cut, whatever their size
    assert segmentation.wanted([], 1514) == (False, 65535)


def test_super_packets_fit_into_burst_and_queue():
    lines = egress.tc_lines(None, shape(2, rate_mbyte_s=300.0, buffer_ms=0.0))
    assert "burst 300000 " in words(lines, "class")[-1]
    packet = 39 * 1514
    assert words(lines, "qdisc")[-1].endswith(
        f"tbf rate 1000tbit burst {packet} limit {4 * packet}"
    )


def test_a_failed_line_of_a_batch_is_named_by_its_words():
    said = "tc -batch -: Error: Invalid qdisc name. Command failed -:2"
    assert _name_failed_line(said, ["first", "qdisc add nonsense"]) == (
        "tc qdisc add nonsense: Error: Invalid qdisc name."
    )
