"""A look: a few pings that check whether proved links still exist and have the delays asked for. No speeds.

It detects what nothing else would: a delay that no plan contains, or a link that carries nothing. Every other change
since the proof shows in what the nodes report about their kernels (`cluster.contract.proof`). If a look finds a
deviation, all links are measured.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.base.json_file import finite
from cluster.base.wording import first_names
from cluster.contract.checks import delay_tolerance_ms, rtt_tolerance_ms
from cluster.contract.measured import Measured
from cluster.contract.probe_plan import look_pings
from cluster.contract.probe_results import by_clocks, ping_each_pair
from cluster.contract.probe_session import ProbeSession
from cluster.links.expected import Expected
from cluster.shaping.link_state import LinkState, expected_of
from cluster.ssh.fleet import Fleet
from protocol.link import Link

MOST_NAMED = 5


@dataclass(frozen=True)
class Look:
    """The result of a look.

    Attributes:
        seconds: how long it took.
        measured: the measurement of each link.
        failed: for each link that is not as asked, the names of the failed checks.
    """

    seconds: float
    measured: Mapping[Link, Measured]
    failed: Mapping[Link, tuple[str, ...]]

    def updated(self, news: "Look") -> "Look":
        """Return a copy with what a later look at some of the links has found."""
        kept = {link: what for link, what in self.failed.items() if link not in news.measured}
        measured = {**self.measured, **news.measured}
        return Look(news.seconds, measured, {**kept, **news.failed})

    def words(self) -> str:
        """Return the first links that are not as asked, with the failed checks; '' if there are none."""
        names = [
            f"{link.src} -> {link.dst} ({', '.join(what)})" for link, what in self.failed.items()
        ]
        return first_names(names, MOST_NAMED, "links")

    def document(self) -> dict[str, object]:
        """Return the value of `look` in contract.json."""
        return {
            "seconds": round(self.seconds, 2),
            "links": [
                {
                    "src": link.src,
                    "dst": link.dst,
                    "delay_ms": finite(found.delay_ms),
                    "rtt_ms": finite(found.rtt_ms),
                    "packets": found.sent,
                    "arrived": found.arrived,
                }
                for link, found in self.measured.items()
            ],
        }


def look_at_links(fleet: Fleet, link_state: LinkState) -> Look:
    """Ping over every link, in both directions at once, and judge the results.

    Late pings are repeated once: a busy moment of the host passes, and a link with another delay stays as it is.

    Raises:
        NodeError: a node does not answer, or its probe failed.
    """
    started, asked = time.monotonic(), expected_of(link_state)
    with ProbeSession(fleet) as session:
        look = _ping(session, asked.links, asked, started)
        late = [link for link, what in look.failed.items() if "loss" not in what]
        return look.updated(_ping(session, late, asked, started)) if late else look


def _ping(session: ProbeSession, links: Sequence[Link], asked: Expected, started: float) -> Look:
    pinged = by_clocks(ping_each_pair(session, links, asked.links, look_pings), asked)
    measured = {link: pinged[link.ends] for link in links}
    return judge_look(time.monotonic() - started, asked, measured)


def judge_look(seconds: float, asked: Expected, measured: Mapping[Link, Measured]) -> Look:
    """Compare what was measured with what was asked."""
    failed = {link: _failed(link, asked, found) for link, found in measured.items()}
    return Look(seconds, measured, {link: what for link, what in failed.items() if what})


def _failed(link: Link, asked: Expected, found: Measured) -> tuple[str, ...]:
    checks = {"loss": _loss_holds(link, found)}
    if not asked.is_cut(link):
        checks |= {"delay": _delay_holds(link, found), "rtt": _rtt_holds(link, asked, found)}
    return tuple(name for name, holds in checks.items() if not holds)


def _delay_holds(link: Link, found: Measured) -> bool:
    """Check the typical or the early one-way delay, as in `_rtt_holds`; a delay that is None passes."""
    most_ms = delay_tolerance_ms(link, found)
    delays_ms = found.delay_ms, found.early_delay_ms
    return any(ms is None or abs(ms - link.delay_ms) <= most_ms for ms in delays_ms)


def _rtt_holds(link: Link, asked: Expected, found: Measured) -> bool:
    """Check the typical or the early round trip: if the early one is as asked, the host delayed the others."""
    most_ms, expected_ms = rtt_tolerance_ms(link, asked, found), asked.rtt_ms(link)
    return any(abs(rtt - expected_ms) <= most_ms for rtt in (found.rtt_ms, found.early_rtt_ms))


def _loss_holds(link: Link, found: Measured) -> bool:
    """Check loss as far as so few pings allow: a lossless link loses none, a lossy one not all, a cut one all."""
    if 0 < link.lost_pct < 100:
        return found.arrived > 0
    return found.arrived == (0 if link.lost_pct else found.sent)
