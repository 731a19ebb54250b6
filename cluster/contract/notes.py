"""The remarks under a contract: what was not measured, what so few packets cannot tell, what gloo cannot fill."""

from collections.abc import Sequence

from cluster.contract.gloo import gloo_note
from cluster.contract.power import detectable_errors
from cluster.contract.probe_schedule import ProbeSchedule
from cluster.contract.verdicts import Verdict
from cluster.links.link import paths
from cluster.links.underlay import underlay_notes
from cluster.shaping.link_state import LinkState, expected_of


def notes_on(
    link_state: LinkState,
    schedule: ProbeSchedule,
    of_links: Sequence[Verdict],
    of_paths: Sequence[Verdict],
) -> list[str]:
    """Return notes on what was not measured or cannot be told, and on links that gloo cannot fill."""
    apart = len(paths(link_state.links)) if link_state.isolated else 0
    isolated = f"{apart} pairs of nodes without a link are isolated: not measured" if apart else ""
    notes = [schedule.note, isolated, clocks_note(link_state)]
    notes += [rare_losses_note(of_links), gloo_note([*of_links, *of_paths])]
    spec = link_state.link_spec
    return [*filter(None, notes)] + (
        underlay_notes(spec.underlay, expected_of(link_state)) if spec else []
    )


def rare_losses_note(verdicts: Sequence[Verdict]) -> str:
    """Return on how many links losses are so rare that one without any would have passed; '' if on none."""
    rare = sum(
        0 < v.link.loss_pct < 100
        and detectable_errors(v.link, v.measured).loss_shortfall_factor is None
        for v in verdicts
        if v.measured.sent
    )
    if not rare:
        return ""
    return f"links with losses too rare to be told from none by so few packets: {rare}"


def clocks_note(link_state: LinkState) -> str:
    """Return a note on links between nodes without a common clock; '' if all nodes share one."""
    asked = expected_of(link_state)
    between = sum(not asked.has_one_clock(link.ends) for link in link_state.links)
    if not between:
        return ""
    return f"{between} links are between hosts, without a common clock: of their delays only the round trip is judged"
