"""What each rank of `node.train` writes to its run's folder: lines of metrics, and a line for each collective.

`metrics.jsonl` has one JSON object per line, flushed at once: a killed rank leaves all lines so far. `"event"` names
the type of a line (EVENTS); `rank` and `time` are in all of them:

- `start`, when the ranks have met; `step` after each step; `end`, the last line.
- `rollout`, `experience` and `weights`: reinforcement learning.
- `eval`: an evaluation, on rank 0. With `--eval after`, these lines follow that of the last step.

`collectives.jsonl` has a line for each collective (protocol/collectives.py). If several ranks share a machine
(LOCAL_WORLD_SIZE above 1), the files are `metrics-rank<r>.jsonl` and `collectives-rank<r>.jsonl`. A run that continues
in the folder of the previous one (`--resume`) appends its lines.

Readers ignore unknown keys: other versions and users' own tasks write them. Lines that are truncated, or in which a key
has the wrong type, are ignored.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from protocol.collectives import CollectiveSum
from protocol.reader import NOT_NULL, Check, Count, document, read, within
from protocol.values import (
    Figure,
    MaybeCount,
    MaybeNumber,
    Name,
    Number,
    RankKey,
)

MOST_LINE_BYTES = 1 << 22
MOST_WEIGHTS_BYTES = 1 << 30
"""The most bytes of a message between learner and actors: node/transport/messages.py."""


def _is_distribution(value: Mapping[str, float]) -> bool:
    return not value or value.keys() >= {"mean", "median", "p95", "max"}


def _is_actor(value: Mapping[str, float]) -> bool:
    counts = [value.get("lives"), value.get("connections")]
    return all(isinstance(count, int) and count >= 0 for count in counts)


Distribution = Annotated[
    dict[Name, Number], Check("mean, median, p95 and max, or nothing", _is_distribution)
]
"""Mean, median, 95th percentile and maximum over steps; empty if there were none."""


class Start(NamedTuple):
    """The first line of a rank, written when all ranks have met."""

    rank: Count
    """The rank that writes."""
    time: Number
    """Unix time."""
    config: dict[str, object] | None = None
    """The resolved configuration (protocol/training.py)."""
    seconds: dict[Name, Number] = {}  # noqa: RUF012 - nobody changes it
    """Seconds by bucket so far, and their `total`."""
    link_bytes: dict[Name, Count] = {}  # noqa: RUF012
    """Bytes that each link from this node has carried so far, by peer, headers included; empty if nothing is shaped.
    Read before the first collective, which no rank can complete before all ranks have started it."""


class Step(NamedTuple):
    """A training step; for a learner, an update."""

    rank: Count
    """The rank that writes."""
    time: Number
    """Unix time at its end."""
    step: Count
    """Its number, from 1."""
    sent_bytes: Count
    """Payload bytes that this rank's collectives have sent for the strategy since the previous step."""
    loss: Figure = None
    """This rank's own loss, on its own batch."""
    compute_s: MaybeNumber = None
    """Seconds of computing: passes over the model, steps of the optimiser."""
    comm_s: MaybeNumber = None
    """Seconds in which the rank did nothing but wait for a collective; for a learner, of messages and waiting."""
    strategy_s: MaybeNumber = None
    """Seconds of the strategy's other work: packing, compressing, mixing, an outer optimiser."""
    waiting_s: MaybeNumber = None
    """For a learner: the part of `comm_s` in which it waited for experience."""


class Rollout(NamedTuple):
    """What this rank's environments did.

    `ppo` writes it before the first step that learns from the rollout, an actor every 2 s.
    """

    rank: Count
    """The rank that writes."""
    time: Number
    """Unix time."""
    step: Count
    """The first step that learns from it; for an actor, the version of its weights."""
    env_steps: Count
    """Steps of its environments since the start."""
    episodes: Count
    """Number of episodes that ended: with `ppo`, in this rollout; for an actor, since its start."""
    rollout: MaybeNumber = None
    """With `ppo`, the number of the rollout."""
    episode_return: Figure = None
    """Mean return of those episodes (for an actor, of the latest that ended); missing if none ended."""
    episode_length: Figure = None
    """Mean steps of the same episodes, likewise."""


class Experience(NamedTuple):
    """The experience that a learner has received from its actors since it began; written every 2 s."""

    rank: Count
    """The rank that writes: 0."""
    time: Number
    """Unix time."""
    step: Count
    """The number of the latest update."""
    env_steps: MaybeCount = None
    """Steps of environments that the learner received."""
    pieces: MaybeCount = None
    """Pieces of experience, each an episode or an unroll."""
    rejected: MaybeCount = None
    """Pieces that were rejected because they were too old."""
    mean_steps: MaybeNumber = None
    """Mean steps of a piece."""
    mean_steps_kept: MaybeNumber = None
    """Mean steps of a piece that was not rejected."""
    replay_ratio: MaybeNumber = None
    """Steps learnt ÷ steps received; a step counts each time it is learnt."""
    duplicates: MaybeCount = None
    """Pieces that arrived twice."""
    malformed: MaybeCount = None
    """Messages or pieces that were invalid."""
    received_bytes: MaybeCount = None
    """Payload bytes of all pieces."""
    updates_s: MaybeNumber = None
    """Updates per second."""
    staleness_updates: Distribution = {}  # noqa: RUF012
    """Updates between the weights that acted and the first update that can learn the piece. Here and below, the
    distribution is over steps."""
    staleness_s: Distribution = {}  # noqa: RUF012
    """Seconds from the publication of the weights that acted to the arrival of the piece."""
    weights_age_s: Distribution = {}  # noqa: RUF012
    """Seconds from a version's publication to a step that acts by it. Steps by the first version have no age."""


class Weights(NamedTuple):
    """The arrival of a version of the weights at an actor (`pull_every=0`: each version is sent when published)."""

    rank: Count
    """The rank that writes."""
    time: Number
    """Unix time."""
    step: Count
    """The version."""
    version: Count
    """The version."""
    source: Count
    """The rank that sent it to this one."""
    bytes: Annotated[int, within(1, MOST_WEIGHTS_BYTES)]
    """Payload bytes; fewer for changes than for whole weights."""
    waited: bool
    """Whether this rank was waiting for it when it was published."""
    published_at_s: Number
    """Unix time at which the learner published it."""
    received_at_s: Number
    """Unix time at which all of it had arrived."""


class Evaluation(NamedTuple):
    """An evaluation on held-out data. The figures depend on the task; a task may add figures of its own."""

    rank: Count
    """The rank that writes: 0."""
    time: Number
    """Unix time."""
    step: Count
    """The step after which the model was evaluated."""
    eval_s: MaybeNumber = None
    """Duration of the evaluation, in seconds."""
    test_loss: Figure = None
    """Pictures: loss in nats."""
    test_accuracy: Figure = None
    """Pictures: accuracy, 0 to 1."""
    validation_loss: Figure = None
    """`language`: loss in nats per byte; also for users' own tasks."""
    validation_bits: Figure = None
    """`language`: the same in bits per byte."""
    test_return: Figure = None
    """`ppo` and `impala`: mean return of episodes in environments that training never sees."""
    test_length: Figure = None
    """`ppo` and `impala`: mean steps of these episodes."""
    test_success: Figure = None
    """`mapf`: share of instances that the policy solved."""
    test_steps: Figure = None
    """`mapf`: mean steps of the instances that it solved."""
    cbs_success: Figure = None
    """`mapf`: share of instances that conflict-based search solved."""
    cbs_steps: Figure = None
    """`mapf`: mean steps of the search's solutions."""
    steps_over_cbs: Figure = None
    """`mapf`: the policy's steps ÷ the search's steps, mean over instances that both solved."""


class LearnerFigures(NamedTuple):
    """A learner's figures at the end: those of Experience, and more."""

    env_steps: Count
    """Steps of environments that the learner received."""
    pieces: Count
    """Pieces of experience."""
    rejected: Count
    """Pieces that were rejected because they were too old."""
    mean_steps: Number
    """Mean steps of a piece."""
    mean_steps_kept: Number
    """Mean steps of a piece that was not rejected."""
    replay_ratio: Number
    """Steps learnt ÷ steps received; a step counts each time it is learnt."""
    duplicates: Count
    """Pieces that arrived twice."""
    malformed: Count
    """Messages or pieces that were invalid."""
    received_bytes: Count
    """Payload bytes of all pieces."""
    updates_s: Number
    """Updates per second."""
    staleness_updates: Distribution
    """Updates between the weights that acted and the first update that can learn the piece."""
    staleness_s: Distribution
    """Seconds from the publication of the weights that acted to the arrival of the piece."""
    weights_age_s: Distribution
    """Seconds from a version's publication to a step that acts by it."""
    pull_every: Count
    """Steps between an actor's requests for weights; 0: each version is sent when published."""
    publish_every: Count
    """Updates between versions."""
    broadcast: Name
    """The topology by which versions are sent from rank to rank: star, chain or tree."""
    changed: Figure
    """`weights=delta`: the mean share of numbers that had changed; else null."""
    actors: dict[RankKey, Annotated[dict[Name, Number], Check("figures of an actor", _is_actor)]]
    """Figures of each actor, by rank: `connections`, `lives` (how often it was started), `duplicates`, `pieces`,
    `steps`, `received_bytes`, `rejected`, `rejected_steps`, `weights_age_s` (mean), and the figures of its goodbye,
    if one came: `step_interval_s` (between steps of an environment, from its first to its last), `window_full_share`
    (share of that time in which it waited because `window` pieces were unacknowledged), `not_handed_over` (pieces that
    the learner had not acknowledged), `pulled_bytes` (mean size of a version of the weights), `pull_s_…` (from request
    to answer) and `publish_lag_s_…` (from a version's publication until the actor uses it)."""


class End(NamedTuple):
    """The last line of a rank that ran to its end."""

    rank: Count
    """The rank that writes."""
    time: Number
    """Unix time."""
    steps: MaybeCount = None
    """Number of steps; for an actor, the version of its weights."""
    seconds: Annotated[dict[Name, Number] | None, NOT_NULL] = None
    """Seconds by bucket, of which exactly one runs at any time, and their sum `total`: `startup` (until the first
    step), `data`, `rollout`, `compute` (passes over the model, steps of the optimiser), `strategy` (packing,
    compressing, mixing, an outer optimiser), `comm` (only waiting for a collective, which includes waiting for a slower
    rank; at the end, until the other ranks' kernels have acknowledged all data; for a learner and its actors,
    handling messages), `waiting` (only for these: a learner lacks experience or, at the end, goodbyes; an actor's
    window is full, or it needs newer weights; bytes may be under way meanwhile), `eval`, `checkpoint`, `other`."""
    sent_bytes: dict[Name, Count] = {}  # noqa: RUF012
    """Payload bytes that this rank's collectives have sent, by purpose: the algorithm's own count, without headers."""
    collectives: list[CollectiveSum] = []  # noqa: RUF012
    """Sums over all collectives: one for each kind, purpose and size."""
    link_bytes: dict[Name, Count] = {}  # noqa: RUF012
    """See Start; read when everything that this rank has sent has arrived."""
    final_loss: Figure = None
    """Loss of the last step."""
    test_accuracy: Figure = None
    """The accuracy in `tested`; null if there is none."""
    tested: dict[Name, Figure] = {}  # noqa: RUF012
    """The figures of the last evaluation; empty on all ranks but 0."""
    experience: Annotated[LearnerFigures | None, NOT_NULL] = None
    """A learner's figures."""
    acted: Annotated[dict[Name, Number] | None, NOT_NULL] = None
    """An actor's figures: those of its goodbye, `connections` and `env_steps`."""


class Unknown(NamedTuple):
    """A line with another event: of a later version, or a user's own."""

    rank: Count
    """The rank that writes."""
    time: Number
    """Unix time."""
    event: Name
    """The name of the event."""


Line = Start | Step | Rollout | Experience | Weights | Evaluation | End | Unknown
EVENTS: dict[str, type[Line]] = {
    "start": Start,
    "step": Step,
    "rollout": Rollout,
    "experience": Experience,
    "weights": Weights,
    "eval": Evaluation,
    "end": End,
}
NAMES = {kind: event for event, kind in EVENTS.items()}
FIGURES = tuple(
    name for name in Evaluation._fields if name not in ("rank", "time", "step", "eval_s")
)
"""The figures of evaluations of all tasks."""
OF_SOLVER = ("cbs_success", "cbs_steps", "steps_over_cbs")
"""The figures of the solver that `mapf` is compared with."""
SCORES = {
    "test_accuracy": "accuracy",
    "test_return": "return",
    "test_success": "success",
    "validation_bits": "bits",
    "test_loss": "test loss",
    "episode_return": "return",
}
"""The figures that are shown of a running rank, with their labels; if a line has several, the first one here counts."""


def read_line(value: object) -> Line:
    """Read a line of metrics from a parsed JSON value.

    Raises:
        FormatError: it is invalid; the message names the key.
    """
    event = value.get("event") if isinstance(value, dict) else None
    kind = EVENTS.get(event, Unknown) if isinstance(event, str) else Unknown
    return read(kind, value, ignore_unknown=True)


def line_document(line: Line, own: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return the JSON value of a line of metrics; None values are left out, except the accuracy of an `End`.

    Args:
        line: the line to write.
        own: figures of a user's own task that the line's type does not have.
    """
    said = {
        name: value
        for name, value in document(line).items()
        if value is not None or (name == "test_accuracy" and isinstance(line, End))
    }
    event = {} if isinstance(line, Unknown) else {"event": NAMES[type(line)]}
    return {**event, **said, **{name: x for name, x in (own or {}).items() if name not in said}}
