"""Uses all of gradwire as a user would, on a kernel that has netem. Runs in the guest.

    python3 guest_checks.py RESULTS [CHECK …]

Every check, or each named one, in the order of CHECKS, writes one JSON line to the file RESULTS: what it measured, and
what is wrong. A failed check does not stop the others. The order matters, because each check finds the cluster as the
previous one left it: the guest has one slow processor, and a separate cluster for each check would take minutes.
"""

import json
import math
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import IMAGE

VERB_TIMEOUT_S = 300.0
FAR_PROFILE = "tests/netem/far.yml"
ROUGH_PROFILE = "tests/netem/rough.yml"

RTT_TOLERANCE_PCT, RTT_TOLERANCE_MS = 1.0, 0.5
GOODPUT_TOLERANCE_PCT = 5.0
PAYLOAD_SHARE = 1448 / 1514  # of a full frame: Ethernet, IPv4 and TCP with timestamps take the rest
INITIAL_WINDOW_BYTES = 14_480
WRONG_DELAY = 1.1
NETEM_TESTS = 15  # at least: a `pytest -k` expression that selects nothing must not pass

Json = dict[str, Any]


class Findings:
    """The findings of one check: figures, good or bad, and problems.

    Collected, not raised, because whoever reads a failure needs all of its numbers.
    """

    def __init__(self) -> None:
        self.figures: Json = {}
        self.problems: list[str] = []

    def expect(self, name: str, found: object, wanted: object) -> None:
        """Expect an exact value."""
        self.figures[name] = found
        if found != wanted:
            self.problems.append(f"{name} is {found!r}, not {wanted!r}")

    def expect_near(
        self, name: str, measure: Callable[[], float], wanted: float, tolerance: float
    ) -> None:
        """Expect a measurement near `wanted`. If it is off, it is repeated, as in `cluster.verify`; both are kept."""
        found = [measure()]
        if abs(found[0] - wanted) > tolerance:
            found.append(measure())
        off_pct = 100 * (found[-1] / wanted - 1)
        self.figures[name] = {
            "asked": round(wanted, 4),
            "found": [round(value, 4) for value in found],
            "off_pct": round(off_pct, 2),
        }
        if not abs(found[-1] - wanted) <= tolerance:
            self.problems.append(
                f"{name} is {found[-1]:.4f}, not {wanted:.4f} ± {tolerance:.4f} ({off_pct:+.2f} %)"
            )


def run(argv: Sequence[str], *, text: str = "") -> str:
    """Run one command, which must succeed; return its standard output."""
    done = subprocess.run(
        argv, input=text, capture_output=True, text=True, cwd=PROJECT_DIR, timeout=VERB_TIMEOUT_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def on_node(node: str, *argv: str, text: str = "") -> str:
    """Run a command by `docker exec`, bypassing gradwire."""
    return run(["docker", "exec", "--interactive", f"gradwire-{node}", *argv], text=text)


def gradwire(findings: Findings, verb: str, *args: str, exit_codes: Sequence[int] = (0,)) -> Json:
    """Return the document of `python -m cluster.VERB … --json`; record its output if it ends unexpectedly."""
    argv = [sys.executable, "-m", f"cluster.{verb}", "--json", *args]
    started = time.monotonic()
    done = subprocess.run(
        argv, capture_output=True, text=True, cwd=PROJECT_DIR, timeout=VERB_TIMEOUT_S
    )
    findings.figures[f"{verb}_s"] = round(time.monotonic() - started, 1)
    findings.figures[f"{verb}_exit_code"] = done.returncode
    if done.returncode not in exit_codes or "Traceback" in done.stderr:
        findings.problems.append(
            f"cluster.{verb} ended with {done.returncode}: {done.stderr.strip()[-2000:]}"
        )
    document: Json = json.loads(done.stdout) if done.stdout else {}
    return document


def comes_up_by_compose_v2(findings: Findings) -> None:
    """Run `cluster.up` with the versions that only the guest has."""
    findings.expect("compose", run(["docker", "compose", "version", "--short"])[0], "2")
    findings.figures["python"] = platform.python_version()
    findings.figures["kernel"] = platform.release()
    image = run(["docker", "image", "inspect", "--format", "{{.Id}}", IMAGE])
    status = gradwire(findings, "up", "--nodes", "3", "--profile", FAR_PROFILE, "--wire", "netem")
    findings.expect("wire", status.get("wire"), "netem")
    findings.expect("links", len(status.get("links", [])), 6)
    findings.expect("states", [n["state"] for n in status.get("nodes", [])], ["running"] * 3)
    now = run(["docker", "image", "inspect", "--format", "{{.Id}}", IMAGE])
    findings.expect("image built again", now != image, False)


def contract_holds(findings: Findings) -> None:
    """Run `cluster.verify` on the links in force, up to three times, because an overload of the processor is temporary.

    Inside the guest nothing shows that it had to wait for its one processor; a wrong link is wrong each time. If the
    contract never holds as a whole, because each time the machine hid something else, the three together must:
    nothing may be broken, and each check of each link must hold once.
    """
    contracts: list[Json] = []
    for _ in range(3):
        tried = Findings()
        contracts.append(gradwire(tried, "verify", exit_codes=(0, 1)))
        tried.figures |= {"measuring_s": contracts[-1].get("seconds")}
        tried.figures |= {"links": _short(contracts[-1]), "notes": contracts[-1].get("notes")}
        if contracts[-1].get("holds"):
            break
        findings.figures.setdefault("tries before", []).append(tried.figures)
    else:
        tried.problems += never_held(contracts)
    findings.figures |= tried.figures
    findings.problems += tried.problems
    settings = contracts[-1].get("settings", [])
    findings.expect("kernels", [row["kernel"] for row in settings], [platform.release()])
    most = int(Path("/proc/sys/net/core/wmem_max").read_text())
    findings.expect("wmem_max", [row["wmem_max_bytes"] for row in settings], [most])


def never_held(contracts: Sequence[Json]) -> list[str]:
    """Return what is wrong with contracts of the same links of which none holds; none: each check held once.

    A contract that was broken, or undecided although the machine was not the limit, counts as it is.
    """
    for contract in contracts:
        links = contract.get("links", [])
        if not links or not contract.get("overloaded") or any(v["broken"] for v in links):
            return [str(contract.get("verdict"))]
    hidden = [
        {(v["link"]["src"], v["link"]["dst"], name) for v in c["links"] for name in v["undecided"]}
        for c in contracts
    ]
    always = sorted(set.intersection(*hidden))
    return [f"{src} -> {dst}: {name} undecided each time" for src, dst, name in always]


def ping_and_iperf_agree(findings: Findings, src: str = "node1", dst: str = "node2") -> None:
    """Measure between two nodes with ordinary tools, on the links in force."""
    there, back = links_in_force(src, dst)
    rtt_ms = there["delay_ms"] + back["delay_ms"]
    tolerance_ms = rtt_ms * RTT_TOLERANCE_PCT / 100 + RTT_TOLERANCE_MS

    def typical_rtt_ms() -> float:
        """Return the median: a stall of the guest's processor shifts a mean, but is not the link's."""
        pings = pings_ms(src, dst)
        findings.figures.setdefault("pings_ms", []).append(pings)
        return statistics.median(pings)

    findings.expect_near("rtt_ms", typical_rtt_ms, rtt_ms, tolerance_ms)

    def goodput_mbyte_s() -> float:
        return iperf_mbyte_s(src, dst, there["rate_mbyte_s"], rtt_ms / 1000)

    asked = there["rate_mbyte_s"] * PAYLOAD_SHARE
    findings.expect_near(
        "goodput_mbyte_s", goodput_mbyte_s, asked, asked * GOODPUT_TOLERANCE_PCT / 100
    )


def wan_is_shaped_live(findings: Findings) -> None:
    """Change the profile without a restart, and measure with ordinary tools.

    Uses a link of 16.7 MB/s. The guest also carries the 68.3 of node1 -> node2, but needs its whole processor for that:
    it gets 1.2 % less than requested there while the host is quiet, and 5.4 % less while it is not.
    """
    gradwire(findings, "shape", "--profile", "wan")
    ping_and_iperf_agree(findings, "node2", "node3")


def poor_is_shaped_live(findings: Findings) -> None:
    """As wan_is_shaped_live, at the other end of the scale."""
    gradwire(findings, "shape", "--profile", "poor")
    ping_and_iperf_agree(findings)


def trace_is_played(findings: Findings) -> None:
    """Replay delay and loss from a trace of ten changes per second; interrupting it restores the links.

    Each change reseeds netem; with a constant seed, the few packets between two changes would share a fate.
    """
    right = netem_delays_ms("node2")
    trace = Path("/tmp/trace.csv")
    rows = [f"{n / 10},{80 + n % 3},20" for n in range(30)]
    trace.write_text("\n".join(["time_s,delay_ms,loss_pct", *rows, ""]))
    words = ("--link", "node1:node2", "--trace", str(trace), "--loop")
    playing = subprocess.Popen(
        [sys.executable, "-m", "cluster.shape", *words],
        cwd=PROJECT_DIR,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while netem_delays_ms("node2") == right and time.monotonic() < deadline:
        time.sleep(0.1)
    back_ms = links_in_force("node1", "node2")[1]["delay_ms"]
    said = on_node("node1", "ping", "-c", "150", "-i", "0.05", "node2")
    playing.send_signal(signal.SIGINT)
    findings.figures["said"] = playing.communicate(timeout=60)[1]
    findings.expect("exit_code", playing.returncode, 130)
    findings.expect("delays once it is over", netem_delays_ms("node2"), right)
    rtts_ms = [float(ms) for ms in re.findall(r"time=([\d.]+)", said)]
    lost, rtt_ms = 150 - len(rtts_ms), statistics.median(rtts_ms)
    findings.figures |= {"lost": lost, "rtt_ms": rtt_ms, "asked_ms": 81 + back_ms}
    if not 14 <= lost <= 47:  # 99.9 % of the binomial distribution
        findings.problems.append(f"{lost} of 150 were lost, not 20 %")
    if abs(rtt_ms - 81 - back_ms) > 0.02 * rtt_ms + 1:
        findings.problems.append(f"the round trip is {rtt_ms} ms")


def wrong_link_is_named_and_mended(findings: Findings) -> None:
    """A delay changed behind gradwire's back breaks the contract of that link, and of no other pair.

    The command that the broken contract recommends then repairs it.
    """
    right = netem_delays_ms("node2")
    make_link_wrong("node1", "node2")
    findings.expect("delays went wrong", netem_delays_ms("node2") != right, True)
    for _ in range(3):
        tried = Findings()
        _expect_wrong(tried, "node1", "node2")
        if not tried.problems:
            break
        # An overload of the guest's one processor is temporary; another wrong link stays wrong.
        findings.figures.setdefault("tries before", []).append(tried.figures)
    findings.figures |= tried.figures
    findings.problems += tried.problems
    gradwire(findings, "shape", "--profile", FAR_PROFILE, "--wire", "netem")
    findings.expect("delays once shaped anew", netem_delays_ms("node2"), right)


def _expect_wrong(findings: Findings, src: str, dst: str) -> None:
    """Expect `cluster.verify` to find broken round trips for this pair only."""
    contract = gradwire(findings, "verify", exit_codes=(1,))
    broken = {
        f"{v['link']['src']}->{v['link']['dst']}": set(v["broken"])
        for v in contract.get("links", [])
        if v["broken"]
    }
    findings.figures["links"] = _short(contract)
    findings.figures["verdict"] = contract.get("verdict")
    # A round trip uses both directions, so both show it.
    both = [f"{src}->{dst}", f"{dst}->{src}"]
    named = [pair for pair in both if "rtt" in broken.get(pair, ())]
    findings.expect("broken", named, both)
    # If the guest's one processor was the limit, and the contract says so, only broken round trips count.
    counted = (
        {"rtt"} if contract.get("overloaded") else {name for of in broken.values() for name in of}
    )
    besides = [pair for pair, names in broken.items() if pair not in both and names & counted]
    findings.expect("broken besides", besides, [])


def a_program_is_launched(findings: Findings) -> None:
    """Launch on three ranks, over the wire that `auto` chooses if both are available."""
    gradwire(findings, "shape", "--clear")
    program = Path("/tmp/hello.py")
    program.write_text("import os\nprint('hello of rank', os.environ['RANK'])\n")
    words = ("--profile", FAR_PROFILE, "--no-verify", "--", str(program))
    summary = gradwire(findings, "launch", *words)
    findings.expect("exit_codes", list(summary.get("exit_codes", {}).values()), [0, 0, 0])
    findings.expect("wires", _wires(summary), ["netem"])


def short_training_ends(findings: Findings) -> None:
    """Train three ranks on a subset of the data: testing on all of it would take the guest a minute."""
    for node in ("node1", "node2", "node3"):
        on_node(node, "python3", "-", "/root/data", text=CUT_DATA)
    words = ("--profile", FAR_PROFILE, "--no-verify", "--steps", "2", "--data-dir", "/root/data")
    summary = gradwire(findings, "launch", *words)
    findings.figures["wall_s"] = summary.get("wall_s")
    findings.figures["seconds"] = summary.get("seconds")
    findings.expect("exit_codes", list(summary.get("exit_codes", {}).values()), [0, 0, 0])
    findings.expect("steps", summary.get("steps"), 2)


def mobile_contract_holds(findings: Findings) -> None:
    """Rates of 1 to 10 MB/s: 34 on six links, nearly all that the guest's processor carries on a good day."""
    gradwire(findings, "shape", "--profile", "mobile")
    contract_holds(findings)


def rough_contract_holds(findings: Findings) -> None:
    """In-order jitter, and loss: the rest of netem's features."""
    shaped = gradwire(findings, "shape", "--profile", ROUGH_PROFILE)
    findings.expect("tcp", shaped.get("tcp"), "bbr")
    contract_holds(findings)


def nfqueue_in_its_place(findings: Findings) -> None:
    """Use the other wire on the same kernel."""
    shaped = gradwire(findings, "shape", "--profile", FAR_PROFILE, "--wire", "nfqueue")
    findings.expect("wires", _wires(shaped), ["nfqueue"])
    ping_and_iperf_agree(findings, "node2", "node3")


def wire_passes_its_own_tests(findings: Findings) -> None:
    """Run those of tests/node that this machine's kernel may have to skip: netem's, and changes between the wires.

    In a separate container, as `make test-node` runs them. None may be skipped here.
    """
    capabilities = ("NET_ADMIN", "NET_RAW", "SYS_NICE", "SETUID", "SETGID", "KILL")
    allowed = [f"--cap-add={name}" for name in capabilities]
    container = ["docker", "run", "--rm", "--init", "--network", "none", "--cap-drop", "ALL"]
    volume = ["--volume", f"{PROJECT_DIR}/tests/node:/root/tests:ro"]
    # Without conftest.py, which would import torch.
    pytest = ["python3", "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", "--noconftest"]
    chosen = ["-k", "netem or one_wire", "tests/test_wire.py", "tests/test_replay.py"]
    argv = [*container, *allowed, *volume, IMAGE, *pytest, *chosen]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=VERB_TIMEOUT_S)
    words = done.stdout.strip().splitlines()
    findings.figures["said"] = words[-1:]
    passed = re.match(r"(\d+) passed, \d+ deselected in", words[-1] if words else "")
    if done.returncode != 0 or passed is None or int(passed[1]) < NETEM_TESTS:
        findings.problems += words[-60:] + done.stderr.strip().splitlines()[-10:]


def down_leaves_nothing(findings: Findings) -> None:
    """Expect no container, network, volume or key after `cluster.down`."""
    gradwire(findings, "down")
    findings.expect("containers", run(["docker", "ps", "--all", "--quiet"]).split(), [])
    networks = run(["docker", "network", "ls", "--format", "{{.Name}}"]).split()
    findings.expect("networks", sorted(networks), ["bridge", "host", "none"])
    findings.expect("volumes", run(["docker", "volume", "ls", "--quiet"]).split(), [])
    state = PROJECT_DIR / ".gradwire"
    findings.expect("keys", [str(p) for p in state.rglob("*") if p.is_file()], [])


CHECKS: Mapping[str, Callable[[Findings], None]] = {
    "comes up by compose v2": comes_up_by_compose_v2,
    "contract holds on far links": contract_holds,
    "ping and iperf3 agree on far links": ping_and_iperf_agree,
    "wrong link is named and mended": wrong_link_is_named_and_mended,
    "a program is launched, on the wire that auto takes": a_program_is_launched,
    "training ends": short_training_ends,
    "contract holds on mobile": mobile_contract_holds,
    "ping and iperf3 agree on wan": wan_is_shaped_live,
    "ping and iperf3 agree on poor": poor_is_shaped_live,
    "a trace is played": trace_is_played,
    "contract holds with jitter and loss": rough_contract_holds,
    "ping and iperf3 agree on far links, over nfqueue": nfqueue_in_its_place,
    "the wire passes its own tests": wire_passes_its_own_tests,
    "down leaves nothing": down_leaves_nothing,
}
# Checks that vary the others, marked as pyproject.toml says.
SLOW = {
    "contract holds on far links",
    "ping and iperf3 agree on far links",
    "a trace is played",
    "contract holds with jitter and loss",
}
NIGHTLY = {
    "training ends",
    "contract holds on mobile",
    "ping and iperf3 agree on wan",
    "ping and iperf3 agree on poor",
    "ping and iperf3 agree on far links, over nfqueue",
}

# Runs on a node: cuts each of Fashion-MNIST's IDX files to 256 pictures, after a header of 8 or 16 bytes.
CUT_DATA = """
import gzip, pathlib, sys
folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
for path in pathlib.Path("/usr/share/datasets/fashion-mnist").glob("*-ubyte"):
    header, size = (16, 784) if "images" in path.name else (8, 1)
    with path.open("rb") as file:
        data = file.read(header + 256 * size)
    cut = data[:4] + (256).to_bytes(4, "big") + data[8:]
    (folder / f"{path.name}.gz").write_bytes(gzip.compress(cut, 1))
"""


def pings_ms(src: str, dst: str) -> list[float]:
    """Return round trips, each to the millisecond or, below 100, to a tenth of one."""
    said = on_node(src, "ping", "-c", "21", "-i", "0.1", dst)
    return [float(found) for found in re.findall(r"time=([\d.]+)", said)]


def iperf_mbyte_s(src: str, dst: str, rate_mbyte_s: float, rtt_s: float) -> float:
    """Return the goodput of one TCP connection after slow start, which doubles ten segments until the pipe is full."""
    doublings = math.log2(max(1.0, rate_mbyte_s * 1e6 * rtt_s / INITIAL_WINDOW_BYTES))
    slow_start_s = 1 + rtt_s * (doublings + 4)
    measured_s = max(5.0, 8 * rtt_s)
    on_node(dst, "iperf3", "--server", "--one-off", "--daemon")
    words = ("--omit", str(math.ceil(slow_start_s)), "--time", str(math.ceil(measured_s)))
    said = json.loads(on_node(src, "iperf3", "--json", "--client", dst, *words))
    return float(said["end"]["sum_received"]["bits_per_second"]) / 8e6


def links_in_force(node: str, peer: str) -> tuple[Json, Json]:
    """Return the link to a peer and the link back, as the peer reports them: docs/formats.md."""
    shown = json.loads(on_node(peer, "python3", "-m", "node.wire", "show"))
    links = {(link["src"], link["dst"]): link for link in shown["report"]["links"]}
    return links[node, peer], links[peer, node]


def netems(node: str) -> list[Json]:
    """Return every netem of a node, as tc lists them."""
    qdiscs: list[Json] = json.loads(on_node(node, "tc", "-json", "qdisc", "show"))
    return [qdisc for qdisc in qdiscs if qdisc["kind"] == "netem"]


def netem_delays_ms(node: str) -> list[float]:
    """Return the delays of all links that end at a node."""
    return sorted(round(_delay_ms(netem), 3) for netem in netems(node))


def make_link_wrong(src: str, dst: str) -> None:
    """Make a link's delay a tenth too long. The delay acts at the link's end; its netem is found by the right delay."""
    asked_ms = links_in_force(src, dst)[0]["delay_ms"]
    qdisc = min(netems(dst), key=lambda netem: abs(_delay_ms(netem) - asked_ms))
    place = ("dev", qdisc["dev"], "parent", qdisc["parent"], "handle", qdisc["handle"])
    limit, delay = qdisc["options"]["limit"], f"{_delay_ms(qdisc) * WRONG_DELAY:.3f}ms"
    on_node(dst, "tc", "qdisc", "change", *place, "netem", "limit", str(limit), "delay", delay)


def _delay_ms(netem: Json) -> float:
    return float(netem["options"]["delay"]["delay"]) * 1000


def _wires(document: Json) -> list[str]:
    return sorted({link["wire"] for link in document.get("links", [])})


def _short(contract: Json) -> list[str]:
    """Return each link's measurements in one line."""
    return [
        f"{v['link']['src']}->{v['link']['dst']} "
        + " ".join(
            f"{key} {v['measured'][key]:g}/{asked:g}"
            for key, asked in v["expected"].items()
            if v["measured"][key] is not None
        )
        + f" late_ms {v['measured']['late_ms']}"
        + (f" BROKEN {v['broken']}" if v["broken"] else "")
        + (f" undecided {v['undecided']}" if v["undecided"] else "")
        for v in contract.get("links", [])
    ]


def result_of(name: str, check: Callable[[Findings], None]) -> Json:
    """Run one check; return its line of the results."""
    findings, started = Findings(), time.monotonic()
    try:
        check(findings)
    except Exception as error:  # any error belongs in the results
        findings.problems.append(f"{type(error).__name__}: {error}")
    return {
        "check": name,
        "problems": findings.problems,
        "figures": findings.figures,
        "seconds": round(time.monotonic() - started, 1),
    }


def main() -> int:
    """Run the checks."""
    path, *names = sys.argv[1:]
    with Path(path).open("w") as results:
        for name, check in CHECKS.items():
            if names and name not in names:
                continue
            line = json.dumps(result_of(name, check))
            print(line, flush=True)
            print(line, file=results, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
