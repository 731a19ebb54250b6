"""The types of summary.json, as far as our own code reads it; docs/run-folder.md defines each figure.

`cluster.accounting.summary` makes most of its parts. Untrusted summaries are read by `cluster.reporting.read_run`,
which validates them.
"""

from typing import NotRequired, TypedDict


class LinkBytes(TypedDict):
    """Bytes carried by one link, or by all, with the bytes expected."""

    carried: int
    payload: int
    expected: int
    ratio: float | None


class LoopBytes(LinkBytes):
    """The same, between the ranks' own readings of the counters at the start and the end of their loops."""

    links: dict[str, LinkBytes]
    off: list[str]


class BytesPart(TypedDict):
    """`bytes`: bytes that all links carried, headers included."""

    total: int | None
    links: dict[str, int]
    payload: int | None
    expected: int | None
    tests: int | None
    measured_over_expected: float | None
    loop: LoopBytes | None


class CollectiveRow(TypedDict):
    """One of `collectives`: all of one kind, purpose and size, or all that vary in size."""

    kind: str
    purpose: str
    bytes: int
    sizes_vary: bool
    count: int
    timed: int
    bounded: int
    seconds: float | None
    gloo_bound_s: float | None
    links_bound_s: float | None
    ratio: float | None


class AttributionPart(TypedDict):
    """`attribution`: the time of collectives, split into parts."""

    seconds: dict[str, float]
    share: dict[str, float]
    collectives: list[dict[str, object]]


class WhatIfRow(TypedDict):
    """One of `what_if`: the seconds that a better link would save."""

    what: str
    carrier: str
    saves_s: float


class CriticalPathPart(TypedDict):
    """`critical_path`: the chain of computing and sending that took as long as the run."""

    wall_s: float
    ranks: dict[str, dict[str, float]]
    links: dict[str, dict[str, float]]
    not_known_s: float
    collectives: int
    replayed: int


class CauseRow(TypedDict):
    """One of `causes`: what slowed the run down."""

    cause: str
    of: str
    seconds: float
    factor: float | None
    words: str


class EnvironmentsPart(TypedDict):
    """`environments`: steps of the ranks' environments."""

    steps: int
    steps_s: float | None


class BroadcastPart(TypedDict):
    """`broadcast` of `experience`: the time that versions of the weights took to reach all actors; medians."""

    topology: str
    versions: int
    timed: int
    seconds: float | None
    bound_s: float | None
    ratio: float | None


class ActorRow(TypedDict):
    """One of `actors` of `experience`; other keys are only passed on."""

    pieces: NotRequired[float]
    lives: float
    connections: float
    weights_age_s: NotRequired[float | None]
    predicted_weights_age_s: float | None


class ExperiencePart(TypedDict):
    """`experience`: what the learner received; other keys are only passed on."""

    env_steps: int
    pieces: int
    rejected: int
    replay_ratio: float
    staleness_updates: dict[str, float]
    staleness_s: dict[str, float]
    broadcast: BroadcastPart | None
    actors: dict[str, ActorRow]


class HostPart(TypedDict):
    """`host`: the host load; other keys are only passed on."""

    limits: list[str]


class Summary(TypedDict):
    """summary.json."""

    run: str
    folder: str
    status: str
    wall_s: float
    exit_codes: dict[str, int]
    restarts: dict[str, int]
    test_accuracy: float | None
    tested: dict[str, float]
    final_loss: float | None
    steps: int | None
    bytes: BytesPart
    bounds: str | None
    collectives: list[CollectiveRow]
    attribution: AttributionPart | None
    what_if: list[WhatIfRow] | None
    critical_path: CriticalPathPart | None
    causes: list[CauseRow]
    seconds: dict[str, dict[str, float]]
    environments: EnvironmentsPart | None
    experience: ExperiencePart | None
    host: HostPart | None
    links: list[dict[str, object]]
    links_lost: str
    links_changed: str
    verified: bool
    verified_by: str
    proved_at: str
    undecided: str
    not_fetched: dict[str, str]
    failure: str
    root_cause: dict[str, str] | None
